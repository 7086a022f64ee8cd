"""A comparison as JSON, and back: everything that a report shows, for machines and for `twintrace view`.

    write_json(comparison, "report.json")     docs/reference/report-json.md describes the file
    read_json("report.json")                  the Comparison again, without the arguments of the calls; of a call without a partner
                                              it has the tensors

The tensors of a pair have the columns of `tables.COLUMNS` by name, those without a value left out. Numbers that are not finite, and
values that JSON does not have, are tagged as in a trace (store/FORMAT.md). It is written result by result, in one object each line.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from ..model.errors import ReportError
from ..model.measurements import Heat, Measurement, StatisticsDifference, Worst
from ..model.pairs import Alone, Layout, Match, Part, Stray, TensorPair
from ..model.records import Call, Config, Frame
from ..model.results import CallResult, Comparison, Divergence, Mistake, Recording, TensorResult, Terms
from ..model.sites import Kind, Phase, Site
from ..model.steps import RankResult, RankState
from ..model.tagged import value_of, wire_of
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
_PLAIN = frozenset((str, int, bool, type(None)))
_NUMBERS = _PLAIN | {float}


def write_json(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the comparison to `path`, whole or not at all."""
    with written(path) as file:
        file.writelines(comparison_json(comparison))


def comparison_json(comparison: Comparison) -> Iterator[str]:
    """The text of the document (docs/reference/report-json.md), a result at a time."""
    first = comparison.divergence
    places = {id(result): place for place, result in comparison.positions()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "agree": comparison.agree,
        "code": comparison.code,
        "recomputed": comparison.recomputed,
        "parted": comparison.parted,
        # Which of the two divergences the verdict begins with.
        "headline": None if first is None else "backward" if first is comparison.backward else "forward",
        "policy": comparison.policy,
        "counts": {str(outcome): comparison.count(outcome) for outcome in Outcome},
        "left": comparison.left,
        "right": comparison.right,
        "left_out": comparison.left_out,
        "strays": comparison.strays,
        "remarks": comparison.remarks,
        "untold": comparison.untold,
        "lone": comparison.lone,
        "ranks": comparison.ranks,
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
    """A value as JSON has it: words and texts as text, facts by the names of their fields, the arguments of calls tagged."""
    if type(value) in _PLAIN or (type(value) is float and isfinite(value)):  # as most are
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _wire(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_wire(item) for item in value]
    if isinstance(value, Spec):
        return str(value)
    if isinstance(value, Call):
        return _call(value)
    if isinstance(value, int | float | complex | TensorRef | Token | Nest):
        return wire_of(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _wire(getattr(value, name)) for name in _fields(type(value))}
    return {"$token": ["opaque", type(value).__name__]}


@functools.cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    """Fields that are written; the role of a stray is of no use to a reader."""
    return tuple(field.name for field in dataclasses.fields(kind) if (kind, field.name) != (Stray, "role"))


def _divergence(parting: Divergence | None, places: Mapping[int, int]) -> dict[str, Any] | None:
    """It points into `results`, so that nothing is said twice."""
    if parting is None:
        return None
    tensors = [
        number for item in parting.tensors for number, other in enumerate(parting.result.tensors) if other is item
    ]
    return {
        "result": places[id(parting.result)],
        "tensors": tensors,
        "inherited": parting.inherited,
        "because": parting.because,
        "after": parting.after,
        "advice": parting.advice,
        "mistake": None if parting.mistake is None else parting.result.mistakes.index(parting.mistake),
        "share": parting.share,
    }


_OF_RESULT = (
    "forward", "backward", "introduced_forward", "introduced_backward", "absorbed_forward", "absorbed_backward", "settings",
    "mistakes", "untold",
)  # fmt: skip


def _result(result: CallResult) -> dict[str, Any]:
    match = result.match
    return {
        **{name: getattr(result, name) for name in ("step", "rank")},
        **{name: getattr(match, name) for name in ("left", "right", "because", "confidence")},
        **{name: getattr(result, name) for name in _OF_RESULT},
        **{name: getattr(match, name) for name in ("only_left", "only_right")},
        "tensors": [_tensors(item) for item in result.tensors],
    }


def _tensors(item: TensorResult) -> dict[str, Any]:
    held = holders(item)
    cells = {name: getattr(held[holder], field, None) for name, holder, field in _WAYS}
    if cells["layout"] == _AS_IT_IS:
        cells["layout"] = None
    return {name: value for name, value in cells.items() if value is not None}


def _alone(step: int, rank: int, item: Alone) -> dict[str, Any]:
    taken, given = taken_and_given(item.call)
    told = {"step": step, "rank": rank, "call": item.call, "because": item.because, "skipped": item.skipped}
    return told | {"takes": taken, "gives": given}


def _call(call: Call) -> dict[str, Any]:
    site = call.site
    told = {
        "id": call.id,
        **{name: getattr(site, name) for name in ("kind", "name", "call", "phase", "path", "type")},
        "parent": call.parent,
        "order": call.order,
        "stack": [[frame.file, frame.line, frame.function, frame.code] for frame in call.stack],
        "config": call.config,
        "raised": call.raised,
        "missing": call.missing or None,
    }
    return {name: _wire(value) for name, value in told.items() if value is not None}


# --- and back ---------------------------------------------------------------------------------------------------------


def _comparison(content: dict[str, Any]) -> Comparison:
    results = tuple(_result_of(item) for item in content["results"])
    return Comparison(
        _made(Recording, content["left"]),
        _made(Recording, content["right"]),
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
        ranks=tuple(_made(RankResult, item) for item in content.get("ranks", ())),
    )


def _plain(wire: Any) -> Any:
    """The inverse of `_wire` for plain JSON but for numbers that are not finite."""
    if isinstance(wire, dict):
        return float(wire["$float"]) if wire.keys() == {"$float"} else {key: _plain(item) for key, item in wire.items()}
    return [_plain(item) for item in wire] if isinstance(wire, list) else wire


_Fact = TypeVar("_Fact")


def _made(kind: type[_Fact], wire: Mapping[str, Any]) -> _Fact:
    """The facts that `_wire` wrote by the names of their fields; those that an older report does not have are the usual ones."""
    known = _READ.get(kind, {})
    facts = {
        name: value if type(value) in _NUMBERS else _plain(value) for name, value in wire.items() if name not in known
    }
    return kind(**facts, **{name: read(wire[name]) for name, read in known.items() if name in wire})


def _maybe(kind: type[_Fact], wire: Mapping[str, Any] | None) -> _Fact | None:
    return None if wire is None else _made(kind, wire)


def _divergence_of(
    wire: dict[str, Any] | None, results: tuple[CallResult, ...], *, backward: bool
) -> Divergence | None:
    if wire is None:
        return None
    result = results[wire["result"]]
    number = wire.get("mistake")
    told = {name: wire[name] for name in ("inherited", "because", "after")}
    told |= {name: wire.get(name, "") for name in ("advice", "share")}
    tensors = tuple(result.tensors[number] for number in wire["tensors"])
    mistake = None if number is None else result.mistakes[number]
    return Divergence(result, backward, tensors, **told, mistake=mistake)


def _result_of(wire: dict[str, Any]) -> CallResult:
    tensors = tuple(_tensors_of(item) for item in wire["tensors"])
    match = Match(
        _calls_of(wire["left"]),
        _calls_of(wire["right"]),
        wire["because"],
        wire["confidence"],
        tuple(item.pair for item in tensors),
        tuple(_made(Stray, item) for item in wire["only_left"]),
        tuple(_made(Stray, item) for item in wire["only_right"]),
    )
    told = {name: wire[name] for name in _OF_RESULT if name in wire}  # an older report has neither mistakes nor untold
    told |= {name: _maybe(Verdict, wire[name]) for name in ("forward", "backward")}
    told["settings"] = {key: (left, right) for key, (left, right) in wire["settings"].items()}
    told["mistakes"] = tuple(_made(Mistake, item) for item in wire.get("mistakes", ()))
    return CallResult(wire["step"], wire["rank"], match, tensors, **told)


def _tensors_of(wire: dict[str, Any]) -> TensorResult:
    """The columns of a row, put back where they were taken from."""
    held: dict[str, dict[str, Any]] = {}
    for name, holder, field in _WAYS:
        held.setdefault(holder, {})[field] = wire.get(name)
    pair, measured, apart, terms = (held[name] for name in ("pair", "measurement", "statistics", "terms"))
    left, right = (_tensor_of(held[side], held[f"{side}.statistics"]) for side in ("left", "right"))
    layout = _made(Layout, pair.pop("layout") or {})
    return TensorResult(
        _made(TensorPair, {**pair, "left": left.id, "right": right.id, "layout": layout}),
        left,
        right,
        _made(Verdict, held["verdict"]),
        None if measured["count"] is None else _measurement_of(measured, held["measurement.worst"]),
        None if apart["nan"] is None else _made(StatisticsDifference, apart),
        None if all(item is None for item in terms.values()) else _made(Terms, terms),
    )


def _tensor_of(facts: dict[str, Any], statistics: dict[str, Any]) -> Tensor:
    spec = _spec_of(facts.pop("spec"))
    known = None if statistics["nan"] is None else _made(Statistics, statistics)
    return Tensor(spec=spec, statistics=known, **facts)


def _measurement_of(numbers: dict[str, Any], worst: dict[str, Any]) -> Measurement:
    told = None if worst["index"] is None else _made(Worst, worst)
    filled = numbers["filled"] or 0  # an older report has none
    return _made(Measurement, {**numbers, "filled": filled, "worst": told, "heat": _maybe(Heat, numbers["heat"])})


def _spec_of(text: str) -> Spec:
    match = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text)
    if match is None:
        raise ValueError(f"{text!r} is no element type and shape")
    return Spec(match[1], tuple(int(length) for length in match[2].split(",") if length.strip()))


def _alone_of(wire: dict[str, Any]) -> tuple[int, int, Alone]:
    # An older report has neither.
    taken, given = (tuple(map(TensorRef, wire.get(name, ()))) for name in ("takes", "gives"))
    output = given[0] if len(given) == 1 else Nest("tuple", tuple((str(at), ref) for at, ref in enumerate(given)))
    call = dataclasses.replace(_call_of(wire["call"]), args=taken, output=output if given else None)
    return wire["step"], wire["rank"], Alone(call, wire["because"], wire["skipped"])


def _call_of(wire: dict[str, Any]) -> Call:
    site = Site(Kind(wire["kind"]), wire["name"], wire["call"], Phase(wire["phase"]), wire["path"], wire["type"])
    return Call(
        wire["id"],
        site,
        wire.get("parent"),
        (),
        {},
        None,
        stack=tuple(Frame(*frame) for frame in wire["stack"]),
        config=_maybe(Config, wire.get("config")),
        raised=wire.get("raised"),
        missing=tuple(wire.get("missing", ())),
        order=wire["order"],
    )


def _calls_of(wires: Iterable[dict[str, Any]]) -> tuple[Call, ...]:
    return tuple(map(_call_of, wires))


# How fields are read that are not plain JSON: tuples, words, calls.
_READ: dict[type[Any], dict[str, Callable[[Any], Any]]] = {
    Recording: {"steps": tuple, "ranks": tuple},
    Mistake: {"left": _calls_of, "right": _calls_of},
    RankResult: {"state": RankState},
    Verdict: {"outcome": Outcome},
    Stray: {"part": Part},
    TensorPair: {"part": Part},
    Layout: {"axes": lambda axes: None if axes is None else tuple(axes)},
    Worst: {"index": tuple},
    Heat: {"values": lambda values: tuple(map(_plain, values))},
    Measurement: {"histogram": tuple},
    Config: {"values": lambda values: {name: value_of(item) for name, item in values.items()}},
}
