"""The share of the first mistake in the gap between two runs, as a sentence: what goes away if that call is right.

99.8 % of the gap at the loss goes away if this call gives what the left's gives
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Part
from ..model.results import CallResult, Divergence, TensorResult
from ..model.sites import Kind, Phase
from ..model.tensors import UNITS
from ..model.verdicts import Outcome
from ..store.trace import Trace
from .places import graphs_of, recomputation_of, side_of

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation


def with_share(
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
    from ..operations.workers import working

    place = parting.result.step, parting.result.rank
    journals = (traces[0].journal(*place), traces[1].journal(*place))
    first = parting.tensors[0]
    recomputation = recomputation_of(journals, graphs_of(journals, (side_of(journals[0]), side_of(journals[1]))))
    origin = Compared(first.pair.left, first.pair.right, first.pair.layout)
    ends = _ends(results, place, recomputation)
    for end in ends:
        if end.pair.right == first.pair.right:
            return parting
        with working():
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
            and item.right.spec.dtype in UNITS
            and not side.is_written_state(last, item.pair.right)
            and (outermost or not side.takers(item.pair.right))
        ]
    return [item for _, item in sorted(ends, key=lambda end: end[0], reverse=True)]
