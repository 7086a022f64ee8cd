"""A comparison for the browser: verdict, columns of all pairs, tensors by pages.

    comparison_sheet(comparison) -> Sheet

A row is a pair of calls (or of regions of calls), a gradient of a parameter is a row of its own. The numbers in a row are those
of the worst tensor forward, and of the worst gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ..model.curves import Curve
from ..model.measurements import HISTOGRAM_EDGES, Measurement
from ..model.pairs import Alone
from ..model.records import Call
from ..model.results import CallResult, Comparison, Recording, TensorResult, badness
from ..model.sites import Kind, Phase
from ..model.tensors import Spec
from ..model.verdicts import Outcome, Verdict
from .curves import curve_columns
from .graphs import comparison_graph, has_calls
from .headline import headline_of_comparison
from .sheets import PAGE, CallTable, Sheet, Words, heat, number, place, shorten, spec_text, tensor
from .text import reason, sentence

OUTCOMES = tuple(Outcome)
KINDS = (*Kind, "parameter")
PHASES = tuple(Phase)
NONE = len(OUTCOMES)
"""Stands for the outcome where there was nothing to compare."""
INTRODUCED_FORWARD, INTRODUCED_BACKWARD, SET_DIFFERENTLY = 1, 2, 4
METRICS = {  # and with how many digits each is shown
    "max_abs": 4, "mean_abs": 3, "max_rel": 4, "mean_rel": 3, "rmse": 3, "mape": 3, "cosine": 8, "euclidean": 3,
    "within_1_1000": 4, "within_5_1000": 4, "close": 4, "max_ulp": 3, "max_left": 4, "max_right": 4, "rms_left": 4, "rms_right": 4,
    "rms_rest": 4,
}  # fmt: skip
COUNTS = (
    "count", "finite", "equal", "nan_left", "nan_right", "nan_both", "inf_left", "inf_right", "inf_both", "sign_flips",
    "filled",
)  # fmt: skip
TERMS = ("left", "meaning", "inherited", "right")
STATISTICS = ("min", "max", "mean", "norm", "min_rel", "max_rel", "mean_rel", "norm_rel", "nan", "inf", "zero")


def comparison_sheet(
    comparison: Comparison, *, values: bool = False, curves: Sequence[tuple[Curve, ...]] = ()
) -> Sheet:
    """The comparison, ready for the browser. Pages are made when they are asked for.

    `values`: tensors can be asked for by their numbers, since the traces are at hand. `curves`: numbers of both runs over their
    steps, left and right.
    """
    results = tuple(comparison.results)  # asked for by their places, again and again
    comparison = replace(comparison, results=results)
    order = sorted(range(len(results)), key=lambda at: _interest(results[at]))  # stable: as executed among equals
    positions = [0] * len(results)
    for position, row in enumerate(order):
        positions[row] = position
    words = Words()
    rows = _columns(results, words)
    # Differences from the row before: nearly always 1, and so nearly nothing once packed.
    rows["position"] = [here - before for before, here in pairwise([0, *positions])]
    by_identity = {id(result): row for row, result in enumerate(results)}
    partings = [item for item in (comparison.forward, comparison.backward) if item is not None]
    index = {
        "kind": "comparison",
        "sides": [recording_facts(comparison.left), recording_facts(comparison.right)],
        "policy": comparison.policy,
        "outcomes": OUTCOMES,
        "kinds": KINDS,
        "phases": PHASES,
        "metrics": list(METRICS),
        "counts": COUNTS,
        "statistics": STATISTICS,
        "edges": HISTOGRAM_EDGES,
        "page": PAGE,
        "values": values,
        "rows": rows,
        "alone": [_alone_columns(items, words) for items in (comparison.only_left, comparison.only_right)],
        "partings": [[by_identity.get(id(item.result), -1), item.backward, item.inherited] for item in partings],
        "curves": curve_columns(curves),
        "words": words.items,
    }
    return Sheet(
        f"{comparison.left.path} | {comparison.right.path}",
        headline_of_comparison(comparison, [by_identity.get(id(item.result), -1) for item in partings]),
        index,
        lambda: _calls(comparison),
        -(-len(results) // PAGE),
        lambda page: [_tensors(results[row], values) for row in order[page * PAGE : (page + 1) * PAGE]],
        lambda page: [
            [
                item.measurement and item.measurement.heat and heat(item.measurement.heat)
                for item in results[row].tensors
            ]
            for row in order[page * PAGE : (page + 1) * PAGE]
        ],
        (lambda: comparison_graph(comparison)) if has_calls(comparison) else None,
    )


def _interest(result: CallResult) -> int:
    """Rank of a row by interest, 0 first: where a difference arises, then different, unknown and equal ones."""
    if result.introduced_forward or result.introduced_backward:
        return 0
    return {Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 2, Outcome.ROUNDING: 3, Outcome.SAME: 4}[result.verdict.outcome]


def recording_facts(side: Recording) -> dict[str, Any]:
    """Facts about a side as a whole."""
    names = {name: shorten(getattr(side, name)) for name in ("path", "framework", "layout")}
    counts = {"steps": len(side.steps), "ranks": len(side.ranks), "calls": side.calls}
    environment = {shorten(str(key)): shorten(str(value)) for key, value in side.environment.items()}
    return {**names, **counts, "environment": environment}


def _columns(results: Sequence[CallResult], words: Words) -> dict[str, list[Any]]:
    names = (
        "step", "rank", "kind", "phase", "forward", "forward_score", "backward", "backward_score", "flags", "spec",
        *(f"{direction}_{name}" for direction in ("forward", "backward") for name in ("max_abs", "max_rel", "cosine", "ratio")),
        "left", "left_call", "left_type", "left_path", "left_source",
        "right", "right_call", "right_type", "right_path", "right_source",
    )  # fmt: skip
    columns: dict[str, list[Any]] = {name: [] for name in names}
    lists = [columns[name] for name in names]
    for result in results:
        for column, item in zip(lists, _row(result, words), strict=True):
            column.append(item)
    return columns


def _row(result: CallResult, words: Words) -> tuple[Any, ...]:
    match = result.match
    sides = [[item for item in result.tensors if item.pair.part.backward is way] for way in (False, True)]
    forward, backward = (
        max(side, key=lambda item: (*badness(item.verdict), not item.pair.part.incoming), default=None)
        for side in sides
    )
    site = match.left[0].site if match.left else match.right[0].site if match.right else None
    flags = (
        INTRODUCED_FORWARD * result.introduced_forward
        + INTRODUCED_BACKWARD * result.introduced_backward
        + SET_DIFFERENTLY * bool(result.settings)
    )
    shown = forward or backward
    spec = spec_text(shown.left.spec) if shown else ""
    if shown and shown.left.spec != shown.right.spec:
        spec += f" | {spec_text(shown.right.spec)}"
    return (
        result.step,
        result.rank,
        KINDS.index(site.kind) if site else len(KINDS) - 1,
        PHASES.index(site.phase if site else Phase.BACKWARD),
        *_outcome(result.forward),
        *_outcome(result.backward),
        flags,
        words(spec),
        *_numbers(forward),
        *_numbers(backward),
        *side_columns(match.left, result.tensors[0].pair.left_slot if result.tensors else "", words),
        *side_columns(match.right, result.tensors[0].pair.right_slot if result.tensors else "", words),
    )


def _numbers(item: TensorResult | None) -> tuple[Any, ...]:
    """Largest errors, cosine, and the error in units of the bound."""
    if item is None:
        return (None, None, None, None)
    numbers, verdict = item.measurement, item.verdict
    ratio = verdict.error / verdict.bound if verdict.error is not None and verdict.bound else None
    measured = (numbers.max_abs, numbers.max_rel, numbers.cosine) if numbers else (None, None, None)
    return (*(number(value, digits) for value, digits in zip(measured, (3, 3, 6), strict=True)), number(ratio, 3))


def _outcome(verdict: Verdict | None) -> tuple[int, int]:
    if verdict is None:
        return NONE, 0
    score = verdict.score
    return OUTCOMES.index(verdict.outcome), round(1000 * score) if score == score else 1000


def side_columns(calls: tuple[Call, ...], slot: str, words: Words) -> tuple[int, int, int, int, int]:
    """Name, number of the call, type, module and source line of one side."""
    if not calls:
        return words(slot), 0, words(""), words(slot.rpartition(".")[0]), words("")
    site = calls[0].site
    name = site.name or "(model)"
    if len(calls) > 1:
        name = " + ".join(call.site.name or "(model)" for call in calls[:3]) + (" + …" if len(calls) > 3 else "")
    path = site.name if site.kind is Kind.MODULE else site.path
    source = place(calls[0].stack[0]) if calls[0].stack else ""
    return words(name), site.call, words(site.type), words(path), words(source)


def _alone_columns(items: Iterable[tuple[int, int, Alone]], words: Words) -> dict[str, list[Any]]:
    names = ("step", "rank", "kind", "phase", "skipped", "name", "call", "type", "path", "source", "because")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for step, rank, item in items:
        site = item.call.site
        address = (step, rank, KINDS.index(site.kind), PHASES.index(site.phase), int(item.skipped))
        row = (*address, *side_columns((item.call,), "", words), words(item.because))
        for name, value in zip(names, row, strict=True):
            columns[name].append(value)
    return columns


def _calls(comparison: Comparison) -> Mapping[str, Any]:
    """Stacks, configurations, arguments and settings of every row."""
    table = CallTable()
    settings = Words()
    names = ("because", "confidence", "settings", "left", "right")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for result in comparison.results:
        match = result.match
        columns["because"].append(table.texts(match.because))
        columns["confidence"].append(number(match.confidence, 3))
        key = tuple((name, *pair) for name, pair in result.settings.items())
        columns["settings"].append(settings(key))
        specs = (
            {item.pair.left: item.left.spec for item in result.tensors},
            {item.pair.right: item.right.spec for item in result.tensors},
        )
        for name, calls, known in zip(("left", "right"), (match.left, match.right), specs, strict=True):
            columns[name].append([_call(call, known, table, named=len(calls) > 1) for call in calls])
    alone = [
        [table.add(item.call, lambda _: "tensor") for _, _, item in items]
        for items in (comparison.only_left, comparison.only_right)
    ]
    return {**table.columns(), "settings": settings.items, "rows": columns, "alone": alone}


def _call(call: Call, specs: Mapping[int, Spec], table: CallTable, *, named: bool) -> list[Any]:
    """Stack, configuration, arguments; of one among several its address too, since the row has the first one's only."""
    place = table.add(call, lambda identity: spec_text(specs[identity]) if identity in specs else "tensor")
    return [*place, shorten(str(call.site)), shorten(call.site.type)] if named else [*place]


def _tensors(result: CallResult, values: bool) -> dict[str, Any]:
    # As the verdict on the terminal tells it, which is said once on the page.
    told = {item.what: ": ".join(filter(None, sentence(item))) for item in result.mistakes}
    said = {verdict.because for verdict in (result.forward, result.backward) if verdict is not None}
    mistakes = [
        ["" if item.what in said else shorten(told[item.what]), shorten(reason(item)), int(item.effective)]
        for item in result.mistakes
    ]
    return {
        "forward": _verdict(result.forward, told),
        "backward": _verdict(result.backward, told),
        "tensors": [_tensor(item, values, told) for item in result.tensors],
        **({"mistakes": mistakes} if mistakes else {}),
        "only": [
            [[item.part, shorten(item.slot), shorten(item.because)] for item in items]
            for items in (result.match.only_left, result.match.only_right)
        ],
    }


def _verdict(verdict: Verdict | None, told: Mapping[str, str]) -> list[Any] | None:
    if verdict is None:
        return None
    outcome, score = _outcome(verdict)
    because = told.get(verdict.because, verdict.because)
    return [outcome, shorten(because), number(verdict.error), number(verdict.bound), score]


def _tensor(item: TensorResult, values: bool, told: Mapping[str, str]) -> list[Any]:
    pair = item.pair
    equal = item.left.fingerprint is not None and item.left.fingerprint == item.right.fingerprint
    left, right = tensor(item.left, identify=values), tensor(item.right, identify=values)
    slots = shorten(pair.left_slot), shorten(pair.right_slot)
    return [
        [pair.part, *slots, str(pair.layout), shorten(pair.because), pair.count],
        left,
        0 if left == right else right,
        _verdict(item.verdict, told),
        int(equal),
        _measurement(item.measurement),
        [number(getattr(item.statistics, name)) for name in STATISTICS] if item.statistics and left != right else None,
        *([] if item.terms is None else [[number(getattr(item.terms, name), 3) for name in TERMS]]),
    ]


def _measurement(numbers: Measurement | None) -> list[Any] | None:
    if numbers is None:
        return None
    worst = numbers.worst
    return [
        [number(getattr(numbers, name), digits) for name, digits in METRICS.items()],
        [getattr(numbers, name) for name in COUNTS],
        [number(numbers.rtol), number(numbers.atol)],
        numbers.histogram,
        [worst.index, number(worst.left, 9), number(worst.right, 9)] if worst else None,
        int(numbers.heat is not None),
    ]
