"""Two traces in, a Comparison out: the stages one after the other.

    store ─calls─▶ align ─pairs─▶ measure ─numbers─▶ judge ─results─▶

For each step and rank that both have: the calls are paired, the tensors of the pairs are measured where their bits are not
known to be equal (on all cores, one pair of arrays at a time), and the pairs are judged in the order of the data flow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.processes import engine_named
from ..judge import first_backward, first_forward, first_mistake, policy_named
from ..judge.divergences import counting_equal_steps
from ..judge.policies import Evidence
from ..model.choices import EngineName, LayoutName, PolicyName, Progress
from ..model.dtypes import UNITS
from ..model.errors import ReportError, TraceError, TraceFormatError, UsageError
from ..model.measurements import Measurement
from ..model.pairs import Alignment, Declared, Part, Side
from ..model.results import CallResult, Divergence, StepResults, TensorResult
from ..model.sites import Kind, Phase
from ..model.verdicts import Outcome
from ..model.words import counted, spans
from ..store.registry import open_trace
from ..store.trace import Trace
from .fleet import compare_many, is_large, scan_ranks
from .places import (
    Request,
    can_recompute,
    graphs_of,
    listed,
    measure_pair,
    recomputation_of,
    side_of,
    silent,
)
from .ranks import WholeTrace, is_same_layout, micro_batches, unlike_models, with_findings, without_unplaced
from .remarks import not_compared_before, not_there, remarks_on, unreadable_places, zoomed
from .results import Comparison
from .walking import Walk

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation

Source = str | os.PathLike[str] | Trace

_PICTURES = 200
"""Pairs that differ and get a picture of where. More would make a report large, and nobody looks at them."""


def compare(
    left: Source,
    right: Source,
    *,
    policy: PolicyName = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    tolerances: str | os.PathLike[str] | None = None,
    mapping: str | os.PathLike[str] | None = None,
    noise: Source | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    equal_nan: bool = True,
    pictures: bool = True,
    recompute: bool = True,
    every_step: bool = False,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Lay two runs side by side: the first call that is to blame, its cause, and all the rest.

        found = tt.compare("runs/a", "runs/b")
        if not found:
            print(found)

    Args:
        left: a trace, its path, or a dump of another tool: the run that is trusted. Errors are relative to it.
        right: the other run.
        policy: "auto": what rounding explains, without a threshold; or the thresholds of "msprobe", "troubleshooter",
            "torch_testing".
        rtol: instead of a policy: every element within atol + rtol·|left|.
        atol: see `rtol`.
        tolerances: a TOML file with rtol and atol per dtype and per name.
        mapping: a YAML file of pairs that are not found by themselves.
        noise: a trace of the left run repeated: differences between these two are not held against the right one.
        steps: numbers of the steps to compare; all that both have if None.
        ranks: numbers of the ranks to compare; all that both have if None.
        equal_nan: NaN beside NaN is no difference.
        pictures: where in a tensor the difference is, for the first that differ.
        recompute: compute unequal results again in float64 (policy auto, without noise, with torch installed).
        every_step: judge each step by itself. Otherwise steps that are equal bit by bit are passed over, steps of the same
            structure are paired once, and steps long after the runs have parted are compared by fingerprints
            alone; of very many ranks, those that differ first are judged (`Comparison.ranks` has the standing of all).
        layout: "auto": where the two have other numbers of ranks, or parameters of other shapes on them, the ranks of each are put
            together; "whole": always; "ranks": never, each rank beside the same rank.
        engine: where many ranks are looked at: "processes" or "threads" of this machine, or "ray"; "auto": processes, where
            there are several cores.
        address: of a Ray cluster; without it one is started on this machine.
        workers: threads to measure with, and processes; all cores if None.
        progress: called with (task, done, total).

    Returns:
        The comparison. `bool()` of it is True if every result of the two runs agrees; its `code` is the exit code of
        `twintrace compare`.

    Raises:
        TraceNotFoundError: one of the two is not there, or is no trace.
        TraceFormatError: one of the two is damaged where it cannot be passed over.
        UsageError: options that contradict each other, a mapping or a file of tolerances that cannot be right, or noise of
            another program.
    """
    from ..align import align
    from ..align.mappings import Unused

    chosen = policy_named(policy, rtol=rtol, atol=atol, tolerances=None if tolerances is None else Path(tolerances))
    traces = (open_trace(left, tolerant=True), open_trace(right, tolerant=True))
    repeat = None if noise is None else open_trace(noise, tolerant=True)
    mapped = _read_mapping(mapping)
    unused = None if mapped is None else Unused(mapped)

    def pair(one: Side, two: Side) -> Alignment:
        if unused is not None:
            unused.saw(one.calls, two.calls)
        return align(one, two, mapping=mapped)

    recorded, traces = traces, _assembled(traces, layout, ranks, pair, mapped)
    wanted = None if any(isinstance(trace, WholeTrace) for trace in traces) else ranks

    request = Request(
        traces,
        chosen,
        pair,
        repeat,
        workers,
        equal_nan,
        recompute=recompute and chosen.name == "auto" and repeat is None,
        shortcuts=not every_step and repeat is None,
    )

    def compare_ranks(some: Collection[int] | None) -> Comparison:
        return compare_traces(request, steps=steps, ranks=some, pictures=pictures, progress=progress)

    common, left_out = _places(traces, steps, wanted)
    if every_step or repeat is not None or not is_large(traces, common):
        comparison = compare_ranks(wanted)
    else:
        scans = scan_ranks(traces, common, engine_named(engine, workers=workers, address=address), progress or silent)
        comparison = replace(compare_many(traces, scans, compare_ranks), left_out=tuple(left_out))
        if left_out:
            which = f"{counted(len(left_out), 'step')} of ranks {spans(rank for _, rank in left_out)}"
            comparison = replace(comparison, remarks=(f"Not compared, only on one side: {which}.", *comparison.remarks))
    told = [
        *(unlike_models(traces) if traces is not recorded else ()),
        *not_there(traces, steps, ranks),
        *zoomed(traces),
        *([unused.sentence()] if unused is not None else []),
        *(_placements_unused(traces, mapped) if mapped is not None else ()),
    ]
    if steps is not None and comparison.code:
        told += not_compared_before(traces, steps)
    if any(told):
        comparison = replace(comparison, remarks=(*filter(None, told), *comparison.remarks))
    if (
        chosen.name != "auto"
        or repeat is not None
        or comparison.recomputed
        or not comparison.count(Outcome.ROUNDING, Outcome.DIFFERENT)
    ):
        return comparison
    why = "PyTorch is not installed here; a CPU build will do" if recompute else "--no-recompute"
    remark = f"The values were not recomputed ({why}): what is within rounding is estimated, and causes are not proven."
    return replace(comparison, remarks=(*comparison.remarks, remark))


def compare_traces(
    request: Request,
    *,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    pictures: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """The flow itself, given the pairs. `pictures`: where in a tensor the first differences are."""
    traces = request.traces
    common, left_out = _places(traces, steps, ranks)
    recompute = request.recompute and can_recompute()
    request = replace(request, shortcuts=request.shortcuts and len(common) > 1, recompute=recompute)
    walk = Walk(request)
    unreadable: dict[tuple[int, int], TraceFormatError] = {}
    for number, place in enumerate(common):
        try:
            walk.visit(place, silent if progress is None else _among(progress, number, len(common)))
        except TraceFormatError as error:  # a rank or a step that cannot be read costs itself alone
            unreadable[place] = error
            if len(unreadable) == len(common):
                raise
    for which, trace in enumerate(traces):
        if isinstance(trace, WholeTrace):
            for place, part in walk.parts.items():
                walk.parts[place] = without_unplaced(part, trace.assembled(place[0]), which)
    parts, equal = walk.parts, tuple(walk.equal)
    results = tuple(result for part in parts.values() for result in part.results)
    among = {  # differences among the ranks of one side, by the side and the step
        which: {
            step: [item for item in trace.assembled(step).findings if part.parted or not item.suspicion]
            for (step, _), part in parts.items()
        }
        for which, trace in enumerate(traces)
        if isinstance(trace, WholeTrace)
    }
    for which, findings in among.items():
        results = tuple(with_findings(results, findings, which=which))
    if pictures:
        results = _with_pictures(results, request)
    # Steps with calls that only one side makes, and that mean something.
    lone = ((step, item) for (step, _), part in parts.items() for item in part.only_left + part.only_right)
    alone = {step for step, item in lone if not item.skipped}
    forward = (
        _with_share(first_mistake(results, backward=False), results, traces)
        if recompute
        else first_forward(results, alone=alone)
    )
    backward = first_mistake(results, backward=True) if recompute else first_backward(results)

    def load(step: int, rank: int) -> Sequence[CallResult]:
        """Results of a step that is equal bit by bit: nothing that came before has a bearing on them."""
        one = Walk(replace(request, shortcuts=False))
        one.visit((step, rank), silent)
        return one.parts[step, rank].results

    return Comparison(
        walk.recording(0),
        walk.recording(1),
        StepResults(results, equal, load) if equal else results,
        tuple((*place, item) for place, part in parts.items() for item in part.only_left),
        tuple((*place, item) for place, part in parts.items() for item in part.only_right),
        forward and counting_equal_steps(forward, equal),
        backward and counting_equal_steps(backward, equal),
        request.policy.name,
        tuple(left_out),
        tuple(remarks_on(traces, walk, left_out)),
        sum(part.strays for part in parts.values()),
        recompute,
        any(part.parted for part in parts.values()) or any(map(any, (item.values() for item in among.values()))),
        (*unreadable_places(unreadable), *dict.fromkeys(text for part in parts.values() for text in part.untold)),
        tuple(dict.fromkeys(text for part in parts.values() for text in part.lone)),
        tuple(walk.followed),
        walk.first_bit,
    )


def pair_up(
    left: Source,
    right: Source,
    *,
    mapping: str | os.PathLike[str] | None = None,
    modules: Mapping[str, str] | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> Mapping[tuple[int, int], Alignment]:
    """Pairs of two traces, by step and rank; nothing is measured.

    modules   paths of modules that belong together, left: right; instead of a mapping file that says just that
    """
    from ..align import Mapping as Said
    from ..align import align

    if mapping is not None and modules is not None:
        raise UsageError("mapping and modules were both given. Put the modules into the mapping file.")
    traces = (open_trace(left, tolerant=True), open_trace(right, tolerant=True))
    common, _ = _places(traces, steps, ranks)
    mapped = _read_mapping(mapping) if modules is None else Said(modules=dict(modules))
    return {
        place: align(side_of(traces[0].journal(*place)), side_of(traces[1].journal(*place)), mapping=mapped)
        for place in common
    }


def write_mapping(
    left: Source,
    right: Source,
    path: str | os.PathLike[str],
    *,
    mapping: str | os.PathLike[str] | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    layout: LayoutName = "auto",
) -> None:
    """Writes the pairs of the first step and rank that both have as a YAML file to be edited and given back as `mapping`.

    Of a run whose ranks are put together it has the placements of the parameters, and of the results that were inferred with doubt.
    """
    from ..align import align
    from ..align.mappings import dumps, mapping_of

    mapped = _read_mapping(mapping)

    def pair(one: Side, two: Side) -> Alignment:
        return align(one, two, mapping=mapped)

    traces = _assembled(
        (open_trace(left, tolerant=True), open_trace(right, tolerant=True)), layout, ranks, pair, mapped
    )
    common, _ = _places(traces, steps, None if any(isinstance(trace, WholeTrace) for trace in traces) else ranks)
    place = min(common)
    inferred = mapping_of(pair(side_of(traces[0].journal(*place)), side_of(traces[1].journal(*place))))
    placed = [trace.placements(place[0]) if isinstance(trace, WholeTrace) else Declared() for trace in traces]
    try:
        Path(path).write_text(dumps(replace(inferred, placements=(placed[0], placed[1]))), encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"{path}: the mapping could not be written ({error.strerror}). Choose another path."
        ) from None


def _among(progress: Progress, number: int, count: int) -> Progress:
    """Tells how much of all steps and ranks is done, of which this is one; of a single one, its own numbers."""
    if count == 1:
        return progress

    def tell(what: str, done: int, total: int) -> None:
        share = done / total if total else 1.0
        progress(f"{what} ({number + 1} of {count})", round(_PARTS * (number + share)), _PARTS * count)

    return tell


_PARTS = 1000
"""Into how many parts a step is divided where several are told of together."""


def _assembled(
    traces: tuple[Trace, Trace],
    layout: LayoutName,
    ranks: Collection[int] | None,
    pair: Callable[[Side, Side], Alignment],
    mapped: Any = None,
) -> tuple[Trace, Trace]:
    """The traces, those of several ranks or micro-batches put together where the two have other layouts."""
    declared = (None, None) if mapped is None else mapped.placements
    counts = [len(trace.ranks) for trace in traces]
    if layout == "ranks" or ranks is not None:
        return traces
    if counts == [1, 1]:
        counts = micro_batches(traces)
        if min(counts) != 1:
            return traces
    worlds = [trace.manifest.get("world") for trace in traces]
    if layout == "auto" and worlds[0] == worlds[1] and (worlds[0] or 1) > 1 and is_same_layout(traces):
        return traces  # of one layout; a rank of which nothing was recorded is missing, and said to be
    if min(counts) > 1 and (counts[0] != counts[1] or layout == "whole" or not is_same_layout(traces)):
        left = WholeTrace(traces[0], traces[1], pair, flipped=True, declared=declared[0])
        return left, WholeTrace(traces[1], left, pair, flipped=False, declared=declared[1])
    if counts[0] == counts[1]:
        return traces
    if counts[0] > 1:
        return WholeTrace(traces[0], traces[1], pair, flipped=True, declared=declared[0]), traces[1]
    return traces[0], WholeTrace(traces[1], traces[0], pair, flipped=False, declared=declared[1])


def _placements_unused(traces: tuple[Trace, Trace], mapped: Any) -> Iterator[str]:
    """A sentence where the mapping says placements of a run that was not put together."""
    for side, trace, declared in zip(("left", "right"), traces, mapped.placements, strict=True):
        if declared and not isinstance(trace, WholeTrace):
            yield f"The mapping's placements of the {side} have no effect: its ranks were not put together (--layout whole does)."


def _read_mapping(path: str | os.PathLike[str] | None) -> Any:
    from ..align.mappings import load

    return None if path is None else load(Path(path))


# --- which steps and ranks --------------------------------------------------------------------------------------------


def _places(
    traces: tuple[Trace, Trace], steps: Collection[int] | None, ranks: Collection[int] | None
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(on both sides, on one side only) of the requested steps and ranks."""

    def wanted(trace: Trace) -> set[tuple[int, int]]:
        return {
            place
            for place in trace.places
            if (steps is None or place[0] in steps) and (ranks is None or place[1] in ranks)
        }

    left, right = map(wanted, traces)
    if not left & right:
        which = "" if steps is None and ranks is None else " among those that were asked for"
        raise TraceError(
            f"{traces[0].path} and {traces[1].path} have no step and rank in common{which}: the left has "
            f"{listed(traces[0].places)}; the right has {listed(traces[1].places)}."
        )
    return sorted(left & right), sorted(left ^ right)


# --- one step of one rank ---------------------------------------------------------------------------------------------


def _with_share(
    parting: Divergence | None, results: Sequence[CallResult], traces: tuple[Trace, Trace]
) -> Divergence | None:
    """The first mistake with its share in the gap at the end of its step, by replaying the right side from there."""
    if (
        parting is None
        or parting.mistake is None
        or not parting.mistake.effective
        or not parting.tensors
        or parting.place
    ):
        return parting
    from ..operations.replay import Compared, share

    place = parting.result.step, parting.result.rank
    journals = (traces[0].journal(*place), traces[1].journal(*place))
    first = parting.tensors[0]
    recomputation = recomputation_of(journals, graphs_of(journals, (side_of(journals[0]), side_of(journals[1]))))
    origin = Compared(first.pair.left, first.pair.right, first.pair.layout)
    ends = _ends(results, place, recomputation)
    for end in ends:
        if end.pair.right == first.pair.right:
            return parting
        got = share(recomputation, origin, Compared(end.pair.left, end.pair.right, end.pair.layout))
        if got.stopped or got.failed:
            if end is not ends[0]:
                return parting  # the end of the run was replayed, and told nothing
            reason = f"the replay of the right side stops at {got.stopped}" if got.stopped else got.failed
            return replace(parting, share=f"not known: {reason}")
        if got.before and got.before >= _TELLING * UNITS.get(end.left.spec.dtype, 0.0):
            break
    else:
        return parting
    name = "loss" if not end.left.spec.shape else "output"
    start = parting.mistake.kind in ("leaf", "weights")
    fixed = "both start from the same" if start else "this call gives what the left's gives"
    some = f"{100 * got.gone:.1f} %" if 0.0005 <= got.gone < 0.9995 else "all" if got.gone >= 0.9995 else "nothing"
    return replace(parting, share=f"{some} of the gap at the {name} goes away if {fixed}")


_TELLING = 16
"""A gap at the end is taken apart from this many roundings of its type on: the left's own is then some percent of it. A loss that
is off by its last bit has no shares; the output before it may (tests/operations/test_replay.py)."""


def _ends(results: Sequence[CallResult], place: tuple[int, int], recomputation: Recomputation) -> list[TensorResult]:
    """Results at the end of the forward pass that differ, the last first: the loss, the output of the model."""
    side = recomputation.sides[1]
    ends: list[tuple[int, TensorResult]] = []
    for result in results:
        last = max(result.match.right, key=lambda call: call.order, default=None)
        if last is None or (result.step, result.rank) != place or last.site.phase is not Phase.FORWARD:
            continue
        outermost = last.parent is None and last.site.kind is Kind.MODULE
        ends += [
            (last.order, item)
            for item in result.tensors
            if item.pair.part is Part.OUTPUT
            and item.verdict.outcome is Outcome.DIFFERENT
            and (outermost or not side.takers(item.pair.right))
        ]
    return [item for _, item in sorted(ends, key=lambda end: end[0], reverse=True)]


# --- measuring --------------------------------------------------------------------------------------------------------


def _with_pictures(results: tuple[CallResult, ...], request: Request) -> tuple[CallResult, ...]:
    """The first pairs that differ, with a picture of where in the tensor they do."""
    from ..engine.local import Local

    wanted = [
        (number, place)
        for number, result in enumerate(results)
        for place, item in enumerate(result.tensors)
        if item.measurement is not None and item.verdict.outcome is Outcome.DIFFERENT
    ][:_PICTURES]

    def picture(which: tuple[int, int]) -> Measurement | None:
        result = results[which[0]]
        item = result.tensors[which[1]]
        one, two = (trace.journal(result.step, result.rank) for trace in request.traces)
        known = item.measurement
        assert known is not None
        evidence = Evidence(item.pair, item.left, item.right)
        drawn = measure_pair(evidence, (one, two), (known.rtol, known.atol), heat=True).measurement
        return drawn or known

    changed = list(results)
    for done in Local(request.workers).run(picture, wanted):
        number, place = done.item
        tensors = list(changed[number].tensors)
        tensors[place] = replace(tensors[place], measurement=done.result())
        changed[number] = replace(changed[number], tensors=tuple(tensors))
    return tuple(changed)
