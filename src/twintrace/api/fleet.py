"""Many ranks: all are looked at, those that differ first are judged, and the rest follows or is equal.

    scans = scan_ranks(traces, places, engine)      one RankScan for each rank, from an engine
    compare_many(traces, scans, judge)              the most suspicious ranks judged, and a RankResult for each rank

To judge a step takes a hundred times as long as to see that it is equal, and of thousands of ranks most do the same. A rank that
is neither equal bit by bit nor judged never agrees: it follows one that has parted before it, or is not told.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ..engine.protocol import Engine
from ..model.errors import TraceFormatError
from ..model.steps import RankResult, RankState
from ..model.verdicts import Outcome
from ..model.words import Progress, spans
from ..store.trace import Trace
from .results import Comparison
from .scanning import PlaceScan, RankScan, scan_rank
from .stepping import first_bit, outlines_of

MANY_CALLS = 20_000
"""Calls up to which every step of every rank is judged, and to which the judging of many ranks is held: minutes of one core."""
_ALIKE = 2
"""Ranks that are judged of those that begin to differ in the same place: they tell the same."""
_ROUNDS = 3
"""Times that more ranks are judged because those before had not parted."""
_NAMED = 8
"""Places where ranks begin to differ that are looked up: each takes the records of a step."""

Suspicion = tuple[int, float, float]
"""Step, share of the step before the first visible difference, and before the first bit that differs."""


def is_large(traces: tuple[Trace, Trace], places: Sequence[tuple[int, int]]) -> bool:
    """True if there is too much to judge all of it, and the ranks can be looked at one by one."""
    ours = all(trace.layout == "twintrace" for trace in traces)
    several = len({rank for _, rank in places}) > 1
    if not ours or not several:
        return False
    for place in places:
        with contextlib.suppress(TraceFormatError):  # told where it is compared; another tells as much
            return len(traces[0].journal(*place)) * len(places) > MANY_CALLS
    return False


def scan_ranks(
    traces: tuple[Trace, Trace], places: Sequence[tuple[int, int]], engine: Engine, progress: Progress
) -> list[RankScan]:
    """Every rank, looked at."""
    ordered = sorted(places, key=lambda place: (place[1], place[0]))
    tasks = [tuple(group) for _, group in groupby(ordered, key=lambda place: place[1])]
    look = functools.partial(scan_rank, (traces[0].path, traces[1].path))
    scans = []
    tell = functools.partial(_told, progress, len(tasks))
    for done in engine.run(look, tasks, progress=tell):
        if done.value is not None:
            scans.append(done.value)
        else:
            failed = tuple(PlaceScan(*place, failure=str(done.error)) for place in done.item)
            scans.append(RankScan(done.item[0][1], failed))
    return scans


def _told(progress: Progress, total: int, done: int) -> None:
    progress("looking at all ranks", done, total)


def compare_many(
    traces: tuple[Trace, Trace], scans: Sequence[RankScan], judge: Callable[[set[int]], Comparison]
) -> Comparison:
    """The comparison of the ranks that were judged, with the standing of all. `judge` compares some ranks in full."""
    suspects = sorted((scan for scan in scans if scan.first is not None), key=_suspicion)
    groups = [list(group) for _, group in groupby(suspects, key=_suspicion)]
    chosen = set(_representatives(scans))
    comparison: Comparison | None = None
    for _ in range(_ROUNDS):
        more = _next_groups(groups, scans, chosen)
        if comparison is not None and not more:
            break
        chosen |= more
        comparison = judge(chosen)
        if comparison.code == 1 and comparison.divergence is not None:
            break
    assert comparison is not None
    ranks = tuple(_standings(scans, groups, chosen, comparison, traces))
    calls = [sum(place.calls[which] for scan in scans for place in scan.places) for which in (0, 1)]
    return replace(
        comparison,
        left=replace(comparison.left, calls=calls[0]),
        right=replace(comparison.right, calls=calls[1]),
        ranks=ranks,
        untold=(*comparison.untold, *_untold(ranks)),
        remarks=(*_remarks(scans, chosen, traces), *comparison.remarks),
    )


def _suspicion(scan: RankScan) -> Suspicion:
    """Sorts ranks by where they begin to differ. Other calls come before other values, what cannot be read after them."""
    place = scan.first
    assert place is not None
    if place.key is None:
        return place.step, 2.0, 2.0
    if not place.tensors:
        return place.step, -1.0, -1.0

    def share(at: int | None) -> float:
        return 2.0 if at is None else at / place.tensors

    return place.step, share(place.first_visible), share(place.first)


def _representatives(scans: Sequence[RankScan]) -> Iterator[int]:
    """One rank for each structure that equal steps have: it is judged for all of them."""
    seen: set[tuple[str, str, str]] = set()
    for scan in scans:
        keys = {place.key for place in scan.places if place.equal and place.key is not None}
        if scan.first is None and not keys <= seen:
            seen |= keys
            yield scan.rank


def _next_groups(groups: Sequence[Sequence[RankScan]], scans: Sequence[RankScan], chosen: set[int]) -> set[int]:
    """The next ranks to judge: those that begin to differ first, up to the first place where it shows beyond rounding."""
    costs = {scan.rank: sum(max(place.calls) for place in scan.places if not place.equal) for scan in scans}
    spent = sum(costs[rank] for rank in chosen)
    picked: set[int] = set()
    for group in groups:
        if any(scan.rank in chosen for scan in group):
            continue
        for scan in group[:_ALIKE]:
            if picked and spent + costs[scan.rank] > MANY_CALLS:
                return picked
            picked.add(scan.rank)
            spent += costs[scan.rank]
        if _suspicion(group[0])[1] < 1.0:
            return picked
    return picked


def _standings(
    scans: Sequence[RankScan],
    groups: Sequence[Sequence[RankScan]],
    chosen: set[int],
    comparison: Comparison,
    traces: tuple[Trace, Trace],
) -> Iterator[RankResult]:
    """The standing of every rank."""
    parted = {rank for rank in chosen if _is_parted(comparison, rank)}
    first_parting = min((scan.first.step for scan in scans if scan.rank in parted and scan.first), default=None)
    names: dict[int, str] = {}
    for group in groups[:_NAMED]:
        names |= dict.fromkeys((scan.rank for scan in group), _name(traces, group[0]))
    for scan in scans:
        place = scan.first
        if place is None:
            yield RankResult(scan.rank, RankState.SAME)
            continue
        because = ""
        if scan.rank in parted:
            state = RankState.PARTED
        elif scan.rank in chosen and place.key is not None and not _is_unknown(comparison, scan.rank):
            state = RankState.AGREES
        elif scan.rank not in chosen and first_parting is not None and place.step >= first_parting:
            state = RankState.FOLLOWS
        else:
            state, because = RankState.UNTOLD, _why(place, judged=scan.rank in chosen)
        where = names.get(scan.rank, "")
        yield RankResult(scan.rank, state, place.step, where, place.different, place.tensors, because)


def _is_parted(comparison: Comparison, rank: int) -> bool:
    results = [result for result in comparison.judged if result.rank == rank]
    if comparison.recomputed:
        return any(mistake.effective for result in results for mistake in result.mistakes)
    alone = any(
        where == rank and not item.skipped for _, where, item in (*comparison.only_left, *comparison.only_right)
    )
    return alone or any(not result.harmless for result in results)


def _is_unknown(comparison: Comparison, rank: int) -> bool:
    """True if something of a rank that was judged could not be told, or was not judged after all."""
    results = (result for result in comparison.judged if result.rank == rank)
    unknown = any(item.verdict.outcome is Outcome.UNKNOWN for result in results for item in result.tensors)
    return unknown or any(item.rank == rank for item in comparison.followed)


def _why(place: PlaceScan, *, judged: bool) -> str:
    if place.failure:
        return place.failure
    for side, ended in zip(("left", "right"), place.open, strict=True):
        if ended:
            return f"the {side} ended before step {place.step} was closed"
    if place.key is None:
        return f"step {place.step} is damaged"
    return "the values were not kept" if judged else "not judged; compare it alone (--rank)"


def _name(traces: tuple[Trace, Trace], scan: RankScan) -> str:
    """The first value of a rank that differs, as people say it."""
    place = scan.first
    if place is None or place.key is None:
        return ""
    if not place.tensors:
        return "the two make different calls"
    journals = [trace.journal(place.step, place.rank) for trace in traces]
    outlines = outlines_of((journals[0], journals[1]))
    bit = None if outlines is None else first_bit(journals[0], outlines, False, lambda call: False)
    for trace in traces:
        trace.forget()
    return "" if bit is None else bit.where


def _untold(ranks: Sequence[RankResult]) -> Iterator[str]:
    """A sentence for each reason for which ranks could not be told."""
    reasons: dict[str, list[int]] = {}
    for item in ranks:
        if item.state is RankState.UNTOLD:
            reasons.setdefault(item.because, []).append(item.rank)
    for because, numbers in reasons.items():
        yield f"{'ranks' if len(numbers) > 1 else 'rank'} {spans(numbers)}: {because}"


def _remarks(scans: Sequence[RankScan], chosen: set[int], traces: tuple[Trace, Trace]) -> Iterator[str]:
    yield (
        f"Of {len(scans):,} ranks these were judged: {spans(chosen)}. All others were compared by structure, fingerprints and "
        f"statistics; to judge others, name them (--rank)."
    )
    for which, trace in enumerate(traces):
        ended = [place for scan in scans for place in scan.places if place.open[which] and scan.rank not in chosen]
        if ended:
            first = min(ended, key=lambda place: (place.step, place.rank))
            more = f" and {len(ended) - 1:,} more" if len(ended) > 1 else ""
            yield f"{trace.path} ended before step {first.step} of rank {first.rank}{more} was closed."
