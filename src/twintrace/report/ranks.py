"""Standing of many ranks: which parts first, since when, and how many others follow.

sentence(comparison)    rank 37 of 4,096 parts first, in step 2; 4,095 others follow, since step 2
groups(comparison)      ranks with the same standing together, the first to part first: what the page shows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.results import Comparison
from ..model.steps import RankResult, RankState
from ..model.words import spans


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks with one standing that begin to differ in one place."""

    state: RankState
    step: int | None
    where: str
    because: str
    ranks: tuple[int, ...]


_ORDER = (RankState.PARTED, RankState.UNTOLD, RankState.FOLLOWS, RankState.AGREES, RankState.SAME)


def groups(comparison: Comparison) -> list[RankGroup]:
    """Ranks with the same standing, those that have parted first, then what could not be told."""
    standings: dict[tuple[RankState, int | None, str, str], list[int]] = {}
    for item in comparison.ranks:
        standings.setdefault((item.state, item.step, item.where, item.because), []).append(item.rank)
    listed = [RankGroup(*key, tuple(ranks)) for key, ranks in standings.items()]
    return sorted(
        listed, key=lambda item: (_ORDER.index(item.state), -1 if item.step is None else item.step, item.ranks)
    )


def sentence(comparison: Comparison) -> str:
    """The rank that parts first, since when, and how many others follow; empty where not many ranks were compared."""
    of = {state: [item for item in comparison.ranks if item.state is state] for state in RankState}
    if not comparison.ranks:
        return ""
    total = len(comparison.ranks)
    parted = of[RankState.PARTED]
    told = []
    if parted:
        step = min(item.step or 0 for item in parted)
        first = [item for item in parted if item.step == step]
        many = len(first) > 1
        told.append(
            f"{_ranks(first)} of {total:,} {'part' if many else 'parts'} first, in step {step}"
            + (f"; {_ranks(parted[len(first) :])} later" if len(parted) > len(first) else "")
        )
    if of[RankState.FOLLOWS]:
        others = of[RankState.FOLLOWS]
        since = sorted({item.step for item in others if item.step is not None})
        steps = f"since step {since[0]}" if len(since) == 1 else f"since steps {spans(since)}"
        told.append(f"{len(others):,} other{'s follow' if len(others) > 1 else ' follows'}, {steps}")
    for state, text in (
        (RankState.AGREES, "differ by rounding"),
        (RankState.UNTOLD, "could not be told"),
        (RankState.SAME, "are the same throughout, bit by bit"),
    ):
        if of[state]:
            count = "all" if len(of[state]) == total else f"{len(of[state]):,}"
            told.append(f"{count} {text}")
    return (f"{total:,} ranks: " if not parted else "") + "; ".join(told)


def _ranks(items: Sequence[RankResult]) -> str:
    return f"rank{'s' if len(items) > 1 else ''} {spans(item.rank for item in items)}"
