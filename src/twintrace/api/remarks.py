"""Remarks on a comparison: sentences about the traces themselves, beside their differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..model.errors import TraceFormatError
from ..model.pairs import Part
from ..model.results import CallResult, TensorResult
from ..model.sites import Kind
from ..model.steps import FollowedStep
from ..model.tensors import UNITS
from ..model.verdicts import Outcome
from ..model.words import counted, some, spans
from ..store.trace import Trace
from .places import PlaceResult, listed
from .ranks import WholeTrace
from .stepping import sentence
from .walking import Walk


def remarks_on(traces: tuple[Trace, Trace], walk: Walk, left_out: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Steps that were left out or not judged, damage, values without effect, mixed precision, NaN on both sides."""
    parts = list(walk.parts.values())
    if left_out:
        shown = some((f"step {step} rank {rank}" for step, rank in left_out), 6)
        yield f"Not compared, only on one side: {shown}."
    if walk.first_bit is not None and len(walk.seen) > 1:
        yield sentence(walk.first_bit)
    if walk.followed:
        steps = spans([item.step for item in walk.followed])
        yield (
            f"Not judged, because the runs had parted before: step{'s' if len(walk.followed) > 1 else ''} {steps}. "
            f"{_of_followed(walk.followed)} To judge one, compare it alone (--step)."
        )
    yield from dict.fromkeys(note for part in parts for note in part.notes)
    for trace in traces:
        if isinstance(trace, WholeTrace):
            yield from trace.remarks(step for step, _ in walk.parts)
    for which, trace in enumerate(traces):
        damage = [item for seen in walk.seen.values() for item in seen.damage[which]]
        if damage:
            yield f"{trace.path} is damaged in {counted(len(damage), 'place')}, first: {damage[0]}"
        open_ones = [place for place, seen in walk.seen.items() if not seen.complete[which]]
        if open_ones:
            yield f"{trace.path} ended before {listed(open_ones)} was closed; what it wrote is compared."
    results = [result for part in parts for result in part.results]
    verdicts = [item.verdict for result in results for item in result.tensors]
    unknown = [verdict for verdict in verdicts if verdict.outcome is Outcome.UNKNOWN]
    if unknown:
        yield f"{counted(len(unknown), 'pair')} of tensors could not be compared, first: {unknown[0].because}"
    parted = any(not result.harmless for result in results)
    harmless = sum(result.absorbed_forward or result.absorbed_backward for result in results)
    if harmless and not parted:
        have = "has" if harmless == 1 else "have"
        yield f"{counted(harmless, 'pair')} of calls {have} values that differ without effect: what is made of them agrees."
    yield from _precisions(parts)
    yield from _not_numbers(results)
    strays = sum(part.strays for part in parts)
    if strays:
        yield f"{counted(strays, 'gradient')} {'is' if strays == 1 else 'are'} on one side only."


def unreadable_places(errors: Mapping[tuple[int, int], TraceFormatError]) -> Iterator[str]:
    """A sentence for each step of a rank that could not be read at all."""
    for (step, rank), error in errors.items():
        yield f"step {step} of rank {rank} cannot be read ({error})"


def _of_followed(followed: Sequence[FollowedStep]) -> str:
    """Differences of fingerprints in steps that were not judged."""
    tensors, different = sum(item.tensors for item in followed), sum(item.different for item in followed)
    others = sum(not item.tensors for item in followed)
    told = f"By their fingerprints {different} of {tensors} values in them differ."
    return told + (f" In {others} of them the two make different calls." if others else "")


def _not_numbers(results: Sequence[CallResult]) -> Iterator[str]:
    """Two runs that agree in being NaN agree, and yet neither of them is well."""
    from ..report.naming import places

    def is_nan(item: TensorResult) -> bool:
        known = (item.left.statistics, item.right.statistics)
        return not item.pair.part.incoming and all(side is not None and side.nan for side in known)

    both = [result for result in results if any(map(is_nan, result.tensors))]
    if both:
        count = f"{len(both)} pairs of calls give" if len(both) > 1 else "1 pair of calls gives"
        yield f"{count} NaN on both sides, first: {places(both[0])}."


def _precisions(parts: Sequence[PlaceResult]) -> Iterator[str]:
    """Results of mixed precision, which are judged by the coarser one: it may not have been intended."""
    from ..report.naming import places

    mixed: list[tuple[CallResult, str]] = []
    for result in (result for part in parts for result in part.results if result.match.left):
        specs = [
            (item.left.spec.dtype, item.right.spec.dtype) for item in result.tensors if item.pair.part is Part.OUTPUT
        ]
        if any(one != two and one in UNITS and two in UNITS for one, two in specs):
            one, two = next(pair for pair in specs if pair[0] != pair[1])
            mixed.append((result, f"{one} | {two}"))
    if mixed:
        things = "files" if mixed[0][0].match.left[0].site.kind is Kind.SAVE else "calls"
        count = f"{len(mixed)} pairs of {things} give" if len(mixed) > 1 else f"1 pair of {things} gives"
        yield f"{count} results of different precision, first {mixed[0][1]}: {places(mixed[0][0])}."


def not_there(
    traces: tuple[Trace, Trace], steps: Collection[int] | None, ranks: Collection[int] | None
) -> Iterator[str]:
    """Steps and ranks that were asked for and that neither trace has."""
    for name, asked, there in (
        ("step", steps, {*traces[0].steps, *traces[1].steps}),
        ("rank", ranks, {*traces[0].ranks, *traces[1].ranks}),
    ):
        absent = sorted(set(asked or ()) - there)
        if absent:
            shown = ", ".join(map(str, absent[:6])) + (" …" if len(absent) > 6 else "")
            yield f"Asked for and in neither trace: {name}{'' if len(absent) == 1 else 's'} {shown}."


def not_compared_before(traces: tuple[Trace, Trace], steps: Collection[int]) -> Iterator[str]:
    """Steps that were not asked for leave something behind all the same."""
    common = {*traces[0].steps} & {*traces[1].steps}
    first = min(common & {*steps}, default=0)
    earlier = [step for step in common - {*steps} if step < first]
    if earlier:
        which = f"Step {earlier[0]} was" if len(earlier) == 1 else f"Steps {spans(earlier)} were"
        yield f"{which} not compared: what rounding or a mistake has left there in the weights counts as a difference here."


def zoomed(traces: tuple[Trace, Trace]) -> Iterator[str]:
    """The earlier comparison that two zoomed traces continue."""
    settings = [trace.manifest.get("settings") for trace in traces]
    zooms = [str(item.get("zoom", "")) if isinstance(item, Mapping) else "" for item in settings]
    if zooms[0] and zooms[0] == zooms[1]:
        yield f"Continues an earlier comparison: {zooms[0]}."
    elif any(zooms):
        yield "Only one of the traces is a zoom, or they are two zooms: calls that one side did not record are alone."
