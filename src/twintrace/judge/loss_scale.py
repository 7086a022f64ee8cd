"""Loss scale: one factor on all gradients of a side, which is taken off before the parameters are updated.

    scale = LossScale(state)
    scale.find()
    scale.factor                  1024.0: the right's gradients are 1024 times the left's, and the new parameters have equal bits
    scale.covers(0, 7, 9)         True if a result is the other side's times that factor: the loss itself

A factor that is not taken off is a mistake: `explain` gives it as the cause of gradients that nothing else explains.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.pairs import Layout, Part
from ..model.records import Call
from ..model.results import CallResult
from ..model.sites import Phase
from ..model.verdicts import Outcome
from ..operations.sides import name_of, outputs_of
from .state import JudgeState

_FACTOR = 1e-4
"""Relative distance of two factors that are one loss scale."""


class LossScale:
    """Factor on the loss of the right that is taken off its gradients again."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self.factor: float | None = None
        """The right's gradients over the left's; None if there is no such factor."""

    def find(self) -> None:
        """Looks for a factor on all gradients of the right that is taken off before the parameters are updated: their new values
        have the same bits. The gradients are no results of the run then, and neither is the loss with the factor.
        """
        items = [item for result in self._state.results for item in result.tensors]
        made = (self._updated(0), self._updated(1))
        same = [
            item.verdict.outcome is Outcome.SAME
            for item in items
            if item.pair.left in made[0] and item.pair.right in made[1]
        ]
        if not same or len(same) < len(made[0]) or not all(same):
            return
        factor = self.factor = self._common_factor()
        if factor is None:
            return
        side, other = ("right", "left") if factor > 1 else ("left", "right")
        times = max(factor, 1 / factor)
        text = f"the {side}'s gradients are {times:.6g} times the {other}'s, and not when parameters are updated: a loss scale"
        self._state.remarks.append(text)

    def _common_factor(self) -> float | None:
        """Factor between the gradients of all parameters of the right and those of the left; None if there is none, or it is 1."""
        items = [item for result in self._state.results for item in result.tensors]
        pairs = [item.pair for item in items if item.pair.part is Part.PARAMETER_GRADIENT]
        factors = [self._state.recomputation.recorded.factor((pair.left, pair.right), pair.layout) for pair in pairs]
        known = [factor for factor in factors if factor is not None]
        if not known or len(known) < len(factors) or max(known) - min(known) > _FACTOR * max(known):
            return None
        return known[0] if abs(known[0] - 1) > _FACTOR else None

    def explain(self, results: list[CallResult]) -> list[CallResult]:
        """The results, with a factor on the loss as the cause of gradients that nothing else explains."""
        open_ = [mistake for result in results for mistake in result.mistakes if mistake.backward and not mistake.why]
        factor = self._common_factor() if open_ else None
        if factor is None:
            return results
        why = (
            f"all gradients of the right are {factor:.6g} times the left's: another factor on the loss, or another mean"
        )
        advice = "look at how the two losses are averaged, scaled and accumulated"
        return [
            replace(
                result,
                mistakes=tuple(
                    replace(mistake, why=why, advice=advice) if mistake in open_ else mistake
                    for mistake in result.mistakes
                ),
            )
            if result.mistakes
            else result
            for result in results
        ]

    def _updated(self, which: int) -> set[int]:
        """New values of parameters and states that the updates of one side made."""
        side = self._state.sides[which]
        return {
            number
            for call in side.calls
            if call.site.phase is Phase.UPDATE and side.is_leaf(call)
            for number in outputs_of(call).values()
            if side.tensor(number).spec.shape
        }

    def covers(self, which: int, number: int, partner: int) -> bool:
        """True if a result is the other side's times the loss scale."""
        if self.factor is None:
            return False
        left, right = (number, partner) if which == 0 else (partner, number)
        factor = self._state.recomputation.recorded.factor((left, right), Layout())
        return factor is not None and abs(factor - self.factor) <= _FACTOR * self.factor

    def keeps(self, call: Call) -> bool:
        """True if a call keeps the loss scale: that is nobody's result."""
        return self.factor is not None and "_amp_" in name_of(call)
