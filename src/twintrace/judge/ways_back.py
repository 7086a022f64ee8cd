"""Two ways by which a gradient comes back: the left's gradients of what is made of a value, sent through the calls of each side.

ways = WaysBack(state, parts, rounding, agreed)
ways.are_alike(item, parts)            nothing to compute: equal calls, whose results have gradients that were compared
ways.set_differently(parts)            the only call of the right, if its settings are not the left's
ways.difference(item)                  Pullback(significant=True, cut=…); None if it cannot be recomputed
ways.told(item, difference, parts)     the standing of gradients that differ by that, with the cause
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Part
from ..model.records import Call, Role
from ..model.results import Mistake, TensorResult
from ..model.verdicts import Outcome
from ..operations.sides import name_of, outputs_of
from .agreed_gradients import AgreedGradients
from .gradient_parts import GradientParts
from .gradient_rounding import GradientRounding
from .rounding import unit
from .settings import other_arguments
from .state import JudgeState, Standing, not_recomputable

if TYPE_CHECKING:
    from ..operations.meanings import Meaning
    from ..operations.pullbacks import Pullback

_NEAR = 2.0
"""Units within which two gradients are one, whatever way they came back."""
Parts = Sequence[Sequence[tuple[Call, int]]]
"""`(call, gradient)` of what each side's gradient was added up of."""


class WaysBack:
    """Recomputes gradients that come back in other ways."""

    def __init__(
        self, state: JudgeState, parts: GradientParts, rounding: GradientRounding, agreed: AgreedGradients
    ) -> None:
        self._state = state
        self._parts = parts
        self._rounding = rounding
        self._agreed = agreed

    def difference(self, item: TensorResult) -> Pullback | None:
        """Difference of two gradients that are recomputed from the same gradients of what is made of their value; None if they
        cannot be, or are not those that were recorded: something on the way was not seen.
        """
        from ..operations.differences import relative_difference
        from ..operations.pullbacks import difference_of_gradients

        left, right = self._parts.values_of(item.pair)
        bound = self._state.bound.get(right) if right is not None else None
        if left is None or right is None or bound is None or bound.left != left:
            return None
        if item.pair.part is Part.INPUT_GRADIENT:  # what one call sends back: all of it, if no other takes the value
            sent = [self._state.sides[which].contributions(number) for which, number in enumerate((left, right))]
            if any(len(parts) != 1 for parts in sent):
                return None
        recomputation = self._state.recomputation
        try:
            found = difference_of_gradients(recomputation, (left, right), self._state.bound, self._agreed.ends)
            recorded = recomputation.values[0](item.pair.left), recomputation.values[1](item.pair.right)
        except not_recomputable():
            return None
        seen = all(
            relative_difference(own, got.reshape(own.shape)) < self._rounding.least
            for own, got in zip(recorded, found.gradients, strict=True)
        )
        return found if seen else None

    def set_differently(self, parts: Parts) -> tuple[Call, Meaning, Meaning] | None:
        """The right's only call that sends a gradient back, and what it means on both sides, if its settings are not the left's."""
        if len(parts[0]) != 1 or len(parts[1]) != 1:
            return None
        calls = parts[0][0][0], parts[1][0][0]
        one, two = (side.meaning(call) for side, call in zip(self._state.sides, calls, strict=True))
        if one is None or two is None or one.operation != two.operation:
            return None
        return (calls[1], one, two) if other_arguments(one, two) else None

    def are_alike(self, item: TensorResult, parts: Parts) -> bool:
        """True if two gradients are near each other, or of equal calls whose results have gradients that were compared."""
        if (item.verdict.error or 0.0) <= _NEAR * unit(item.left.spec.dtype, item.right.spec.dtype):
            return True
        if len(parts[0]) != len(parts[1]):
            return False
        for (one, _), (two, _) in zip(*parts, strict=True):
            returned = [
                [gradient.tensor for gradient in call.gradients if gradient.role is Role.OUTPUT] for call in (one, two)
            ]
            match = self._state.match_of[0].get(one.id)
            paired = (
                match is not None
                and match is self._state.match_of[1].get(two.id)
                and len(returned[0]) == len(returned[1])
            )
            if not paired or any(pair not in self._state.gradients for pair in zip(*returned, strict=True)):
                return False
        return True

    def _other_setting(self, item: TensorResult, found: Pullback, parts: Parts) -> tuple[str, str] | None:
        """Cause and advice: the setting of the left with which the right sends the same gradient back; None if there is none."""
        from ..operations.pullbacks import difference_of_gradients

        settings, (left, right) = self.set_differently(parts), self._parts.values_of(item.pair)
        if settings is None or left is None or right is None or found.cut is not None:
            return None
        call, mine, other = settings
        for name, (wanted, given) in other_arguments(mine, other).items():
            changed = {call.id: replace(other, arguments={**other.arguments, name: mine.arguments[name]})}
            try:
                rest = difference_of_gradients(
                    self._state.recomputation, (left, right), self._state.bound, self._agreed.ends, changed
                )
            except not_recomputable():
                continue
            if not rest.significant:
                proof = f"with the left's the gradients agree: {found.relative:.1e} → {rest.relative:.1e}"
                return f"{name}: {wanted} | {given}; {proof}", f"set {name}={wanted} on the right"
        return None

    def _parted(self, found: Pullback) -> frozenset[Mistake]:
        """Mistakes in values that the calls make through which a gradient comes back, where these do not meet again."""
        made = [
            self._state.standing(which, number)
            for which, calls in enumerate(found.calls)
            for call in calls
            for number in outputs_of(call).values()
        ]
        sources = [judged.sources for judged in made if judged.outcome is Outcome.DIFFERENT]
        return frozenset().union(*sources) - self._state.undone

    def told(self, item: TensorResult, found: Pullback, parts: Parts) -> Standing:
        """Verdict on gradients that differ though they are made of the same gradients and values."""
        what = f"the two send other gradients back: {found.relative:.1e} apart for the same gradients of what is made of it"
        names = [" → ".join(dict.fromkeys(name_of(call) for call in calls)) for calls in found.calls]
        why = (
            f"the gradient comes back through {names[0] or 'nothing'} on the left, {names[1] or 'nothing'} on the right"
        )
        advice, side = "", ""
        blamed: tuple[list[Call], list[Call]] = ([], [])
        if found.cut is not None:
            which, call = found.cut
            side = ("left", "right")[which]
            blamed[which].append(call)
            why = (
                f"only the {side} cuts the gradient ({name_of(call)}); without that the gradients agree: "
                f"{found.relative:.1e} → {found.uncut:.1e}"
            )
            advice = f"let the gradient through on the {side}, or see why the other side does"
        setting = self._other_setting(item, found, parts)
        parted = self._parted(found) if found.cut is None and setting is None else frozenset()
        if parted:  # derivatives of calls that compute something else
            return Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=parted)
        why, advice = setting or (why, advice)
        coarse = unit(item.left.spec.dtype, item.right.spec.dtype) or 1.0
        mistake = Mistake(
            "gradient", what, why, advice, side, found.relative / coarse, backward=True,
            left=tuple(blamed[0]), right=tuple(blamed[1]),
        )  # fmt: skip
        return Standing(Outcome.DIFFERENT, None, what, (mistake,))
