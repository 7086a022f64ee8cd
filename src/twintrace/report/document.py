"""A comparison as JSON, and back: everything that a report shows, for machines and for `twintrace view`.

    write_json(comparison, "report.json")     docs/reference/report-json.md describes the file
    read_json("report.json")                  the Comparison again, without the arguments of the calls; of a call without a partner
                                              it has the tensors

The tensors of a pair have the columns of `tables.COLUMNS` by name, those without a value left out. Numbers that are not finite, and
values that JSON does not have, are tagged as in a trace (store/FORMAT.md). It is written result by result, in one object each line.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model.errors import ReportError
from ..model.measurements import Heat, Measurement, StatisticsDifference, Worst
from ..model.pairs import Alone, Layout, Match, Part, Stray, TensorPair
from ..model.records import Call, Config, Frame
from ..model.results import (
    CallResult,
    Comparison,
    Divergence,
    Mistake,
    RankResult,
    RankState,
    Recording,
    TensorResult,
    Terms,
)
from ..model.sites import Kind, Phase, Site
from ..model.tensors import Spec, Statistics, Tensor
from ..model.values import Nest, TensorRef, Token
from ..model.verdicts import Outcome, Verdict
from .files import written
from .graphs import taken_and_given
from .tables import COLUMNS, holders

FORMAT, VERSION = "twintrace-comparison", 1

_ROW = tuple(column for column in COLUMNS if column.of == "tensor" and column.name != "score")  # a score is computed
_WAYS = tuple((column.name, column.holder, column.field) for column in _ROW)
_AS_IT_IS = Layout()


def write_json(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the comparison to `path`, whole or not at all."""
    with written(path) as file:
        file.writelines(comparison_json(comparison))


def comparison_json(comparison: Comparison) -> Iterator[str]:
    """The text of the document (docs/reference/report-json.md), a result at a time."""
    places = {id(result): place for place, result in comparison.positions()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "agree": comparison.agree,
        "code": comparison.code,
        "recomputed": comparison.recomputed,
        "parted": comparison.parted,
        "headline": _headline(comparison),
        "policy": comparison.policy,
        "counts": {str(outcome): comparison.count(outcome) for outcome in Outcome},
        "left": _recording(comparison.left),
        "right": _recording(comparison.right),
        "left_out": comparison.left_out,
        "strays": comparison.strays,
        "remarks": comparison.remarks,
        "untold": comparison.untold,
        "lone": comparison.lone,
        "ranks": [_rank(item) for item in comparison.ranks],
        "forward": _divergence(comparison.forward, places),
        "backward": _divergence(comparison.backward, places),
    }
    lists: dict[str, Iterable[dict[str, Any]]] = {
        "results": map(_result, comparison.results),
        "only_left": (_alone(*item) for item in comparison.only_left),
        "only_right": (_alone(*item) for item in comparison.only_right),
    }
    yield _text(head)[:-1]
    for name, items in lists.items():
        yield f',\n"{name}":['
        for number, item in enumerate(items):
            yield (",\n" if number else "\n") + _text(item)
        yield "]"
    yield "}\n"


def read_json(path: str | os.PathLike[str]) -> Comparison:
    """The comparison that `write_json` wrote. ReportError if the file is none, is damaged, or is of another version."""
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: expected a report of `twintrace compare --json`, got no JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ReportError(
            f'{path}: expected a report with "format": "{FORMAT}", as `twintrace compare --json` writes it.'
        )
    if content.get("version") != VERSION:
        raise ReportError(
            f"{path}: report version {content.get('version')!r}, but this release reads version {VERSION}. "
            f"Update twintrace, or compare again."
        )
    try:
        return _comparison(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise ReportError(f"{path}: the report is damaged ({type(error).__name__}: {error}). Compare again.") from error


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _text(value: object) -> str:
    return _encode(_wire(value))


# --- to JSON ----------------------------------------------------------------------------------------------------------


def _wire(value: Any) -> Any:
    """A value as JSON has it: words and texts as text, what is not finite and what JSON does not know tagged."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": "nan" if math.isnan(value) else f"{value}"}
    if isinstance(value, Mapping):
        return {str(key): _wire(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_wire(item) for item in value]
    if isinstance(value, Spec):
        return str(value)
    if isinstance(value, Layout):
        return {"axes": _wire(value.axes), "reshaped": value.reshaped}
    if isinstance(value, Heat):
        return {"rows": value.rows, "columns": value.columns, "values": _wire(value.values)}
    return _tagged(value)


def _tagged(value: Any) -> Any:
    if isinstance(value, complex):
        return {"$complex": [_wire(value.real), _wire(value.imag)]}
    if isinstance(value, TensorRef):
        return {"$t": value.id}
    if isinstance(value, Token):
        return {"$token": [value.kind, value.text]}
    if isinstance(value, Nest):
        if value.kind in ("list", "tuple", "set"):
            items = [_wire(item) for _, item in value.items]
            return items if value.kind == "list" else {f"${value.kind}": items}
        return {
            "$dict" if value.kind == "dict" else "$object": [
                value.kind,
                [[key, _wire(item)] for key, item in value.items],
            ]
        }
    return {"$token": ["opaque", type(value).__name__]}


def _headline(comparison: Comparison) -> str | None:
    """Which of the two divergences the verdict begins with."""
    first = comparison.divergence
    return None if first is None else "backward" if first is comparison.backward else "forward"


def _mistake(mistake: Mistake) -> dict[str, Any]:
    found = {field.name: getattr(mistake, field.name) for field in dataclasses.fields(Mistake)}
    return found | {"left": [_call(call) for call in mistake.left], "right": [_call(call) for call in mistake.right]}


def _mistake_of(wire: dict[str, Any]) -> Mistake:
    left, right = (tuple(map(_call_of, wire.get(side, ()))) for side in ("left", "right"))
    rest = _plain({name: value for name, value in wire.items() if name not in ("left", "right")})
    return Mistake(**rest, left=left, right=right)


def _recording(side: Recording) -> dict[str, Any]:
    return {
        "path": side.path,
        "framework": side.framework,
        "layout": side.layout,
        "steps": side.steps,
        "ranks": side.ranks,
        "calls": side.calls,
        "environment": side.environment,
        "settings": side.settings,
    }


def _rank(item: RankResult) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(RankResult)}


def _rank_of(wire: dict[str, Any]) -> RankResult:
    return RankResult(**wire | {"state": RankState(wire["state"])})


def _divergence(found: Divergence | None, places: Mapping[int, int]) -> dict[str, Any] | None:
    """It points into `results`, so that nothing is said twice."""
    if found is None:
        return None
    tensors = [number for item in found.tensors for number, other in enumerate(found.result.tensors) if other is item]
    return {
        "result": places[id(found.result)],
        "tensors": tensors,
        "inherited": found.inherited,
        "because": found.because,
        "after": found.after,
        "advice": found.advice,
        "mistake": None if found.mistake is None else found.result.mistakes.index(found.mistake),
        "share": found.share,
    }


def _result(result: CallResult) -> dict[str, Any]:
    match = result.match
    return {
        "step": result.step,
        "rank": result.rank,
        "left": [_call(call) for call in match.left],
        "right": [_call(call) for call in match.right],
        "because": match.because,
        "confidence": match.confidence,
        "forward": _verdict(result.forward),
        "backward": _verdict(result.backward),
        "introduced_forward": result.introduced_forward,
        "introduced_backward": result.introduced_backward,
        "absorbed_forward": result.absorbed_forward,
        "absorbed_backward": result.absorbed_backward,
        "settings": result.settings,
        "mistakes": [_mistake(item) for item in result.mistakes],
        "untold": result.untold,
        "only_left": [_stray(item) for item in match.only_left],
        "only_right": [_stray(item) for item in match.only_right],
        "tensors": [_tensors(item) for item in result.tensors],
    }


def _tensors(item: TensorResult) -> dict[str, Any]:
    held = holders(item)
    found = {name: getattr(held[holder], field, None) for name, holder, field in _WAYS}
    if found["layout"] == _AS_IT_IS:
        found["layout"] = None
    return {name: value for name, value in found.items() if value is not None}


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"outcome": verdict.outcome, "because": verdict.because, "error": verdict.error, "bound": verdict.bound}


def _stray(item: Stray) -> dict[str, Any]:
    return {"part": item.part, "slot": item.slot, "tensor": item.tensor, "because": item.because}


def _alone(step: int, rank: int, item: Alone) -> dict[str, Any]:
    taken, given = taken_and_given(item.call)
    found = {"step": step, "rank": rank, "call": _call(item.call), "because": item.because, "skipped": item.skipped}
    return found | {"takes": taken, "gives": given}


def _call(call: Call) -> dict[str, Any]:
    site = call.site
    config = call.config
    found = {
        "id": call.id,
        "kind": site.kind,
        "name": site.name,
        "call": site.call,
        "phase": site.phase,
        "path": site.path,
        "type": site.type,
        "parent": call.parent,
        "order": call.order,
        "stack": [[frame.file, frame.line, frame.function, frame.code] for frame in call.stack],
        "config": None if config is None else {"path": config.path, "type": config.type, "values": config.values},
        "raised": call.raised,
        "missing": call.missing or None,
    }
    return {name: value for name, value in found.items() if value is not None}


# --- and back ---------------------------------------------------------------------------------------------------------


def _comparison(content: dict[str, Any]) -> Comparison:
    results = tuple(_result_of(item) for item in content["results"])
    return Comparison(
        _recording_of(content["left"]),
        _recording_of(content["right"]),
        results,
        tuple(_alone_of(item) for item in content["only_left"]),
        tuple(_alone_of(item) for item in content["only_right"]),
        _divergence_of(content["forward"], results, backward=False),
        _divergence_of(content["backward"], results, backward=True),
        content["policy"],
        tuple((step, rank) for step, rank in content["left_out"]),
        tuple(content["remarks"]),
        content["strays"],
        content.get("recomputed", False),
        content.get("parted", False),
        tuple(content.get("untold", ())),
        tuple(content.get("lone", ())),
        ranks=tuple(_rank_of(item) for item in content.get("ranks", ())),
    )


def _value_of(wire: Any) -> Any:
    if isinstance(wire, list):
        return Nest("list", tuple((str(number), _value_of(item)) for number, item in enumerate(wire)))
    if not isinstance(wire, dict):
        return wire
    [(tag, content)] = wire.items()
    match tag:
        case "$float":
            return float(content)
        case "$complex":
            return complex(*map(_value_of, content))
        case "$t":
            return TensorRef(content)
        case "$token":
            return Token(*content)
        case "$tuple" | "$set":
            return Nest(tag[1:], _value_of(content).items)
        case "$dict" | "$object":
            return Nest(content[0], tuple((key, _value_of(item)) for key, item in content[1]))
    raise ValueError(f"unknown tag {tag!r}")


def _plain(wire: Any) -> Any:
    """The inverse of `_wire` for what is plain JSON but for numbers that are not finite."""
    if isinstance(wire, dict):
        return float(wire["$float"]) if wire.keys() == {"$float"} else {key: _plain(item) for key, item in wire.items()}
    return [_plain(item) for item in wire] if isinstance(wire, list) else wire


def _recording_of(wire: dict[str, Any]) -> Recording:
    return Recording(
        wire["path"],
        wire["framework"],
        wire["layout"],
        tuple(wire["steps"]),
        tuple(wire["ranks"]),
        wire["calls"],
        _plain(wire["environment"]),
        _plain(wire.get("settings", {})),
    )


def _divergence_of(
    wire: dict[str, Any] | None, results: tuple[CallResult, ...], *, backward: bool
) -> Divergence | None:
    if wire is None:
        return None
    result = results[wire["result"]]
    tensors = tuple(result.tensors[number] for number in wire["tensors"])
    number = wire.get("mistake")
    return Divergence(
        result,
        backward,
        tensors,
        wire["inherited"],
        wire["because"],
        wire["after"],
        wire.get("advice", ""),
        None if number is None else result.mistakes[number],
        wire.get("share", ""),
    )


def _result_of(wire: dict[str, Any]) -> CallResult:
    tensors = tuple(_tensors_of(item) for item in wire["tensors"])
    match = Match(
        tuple(map(_call_of, wire["left"])),
        tuple(map(_call_of, wire["right"])),
        wire["because"],
        wire["confidence"],
        tuple(item.pair for item in tensors),
        tuple(_stray_of(item) for item in wire["only_left"]),
        tuple(_stray_of(item) for item in wire["only_right"]),
    )
    return CallResult(
        wire["step"],
        wire["rank"],
        match,
        tensors,
        _verdict_of(wire["forward"]),
        _verdict_of(wire["backward"]),
        wire["introduced_forward"],
        wire["introduced_backward"],
        {key: (left, right) for key, (left, right) in wire["settings"].items()},
        wire["absorbed_forward"],
        wire["absorbed_backward"],
        tuple(map(_mistake_of, wire.get("mistakes", ()))),
        wire.get("untold", ""),
    )


def _tensors_of(wire: dict[str, Any]) -> TensorResult:
    """The columns of a row, put back where they were taken from."""
    found: dict[str, dict[str, Any]] = {}
    for name, holder, field in _WAYS:
        found.setdefault(holder, {})[field] = _plain(wire.get(name))
    pair, measured, apart = found["pair"], found["measurement"], found["statistics"]
    terms = found["terms"]
    left = _tensor_of(found["left"], found["left.statistics"])
    right = _tensor_of(found["right"], found["right.statistics"])
    layout = pair.pop("layout") or {"axes": None, "reshaped": False}
    axes = None if layout["axes"] is None else tuple(layout["axes"])
    part = Part(pair.pop("part"))
    return TensorResult(
        TensorPair(part, left=left.id, right=right.id, layout=Layout(axes, layout["reshaped"]), **pair),
        left,
        right,
        Verdict(Outcome(found["verdict"].pop("outcome")), **found["verdict"]),
        None if measured["count"] is None else _measurement_of(measured, found["measurement.worst"]),
        None if apart["nan"] is None else StatisticsDifference(**apart),
        None if all(item is None for item in terms.values()) else Terms(**terms),
    )


def _tensor_of(found: dict[str, Any], statistics: dict[str, Any]) -> Tensor:
    spec = _spec_of(found.pop("spec"))
    known = None if statistics["nan"] is None else Statistics(**statistics)
    return Tensor(spec=spec, statistics=known, **found)


def _measurement_of(found: dict[str, Any], worst: dict[str, Any]) -> Measurement:
    heat, histogram = found.pop("heat"), found.pop("histogram")
    found["filled"] = found["filled"] or 0  # an older report has none
    return Measurement(
        worst=None if worst["index"] is None else Worst(tuple(worst["index"]), worst["left"], worst["right"]),
        heat=None if heat is None else Heat(heat["rows"], heat["columns"], tuple(heat["values"])),
        histogram=tuple(histogram),
        **found,
    )


def _spec_of(text: str) -> Spec:
    found = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text)
    if found is None:
        raise ValueError(f"{text!r} is no element type and shape")
    return Spec(found[1], tuple(int(length) for length in found[2].split(",") if length.strip()))


def _verdict_of(wire: dict[str, Any] | None) -> Verdict | None:
    if wire is None:
        return None
    return Verdict(Outcome(wire["outcome"]), wire["because"], _plain(wire["error"]), _plain(wire["bound"]))


def _stray_of(wire: dict[str, Any]) -> Stray:
    return Stray(Part(wire["part"]), wire["slot"], wire["tensor"], wire["because"])


def _alone_of(wire: dict[str, Any]) -> tuple[int, int, Alone]:
    # An older report has neither.
    taken, given = (tuple(map(TensorRef, wire.get(name, ()))) for name in ("takes", "gives"))
    output = given[0] if len(given) == 1 else Nest("tuple", tuple((str(at), ref) for at, ref in enumerate(given)))
    call = dataclasses.replace(_call_of(wire["call"]), args=taken, output=output if given else None)
    return wire["step"], wire["rank"], Alone(call, wire["because"], wire["skipped"])


def _call_of(wire: dict[str, Any]) -> Call:
    site = Site(Kind(wire["kind"]), wire["name"], wire["call"], Phase(wire["phase"]), wire["path"], wire["type"])
    config = wire.get("config")
    return Call(
        wire["id"],
        site,
        wire.get("parent"),
        (),
        {},
        None,
        stack=tuple(Frame(*frame) for frame in wire["stack"]),
        config=None if config is None else Config(config["path"], config["type"], _values_of(config["values"])),
        raised=wire.get("raised"),
        missing=tuple(wire.get("missing", ())),
        order=wire["order"],
    )


def _values_of(wire: dict[str, Any]) -> dict[str, Any]:
    return {key: _value_of(item) for key, item in wire.items()}
