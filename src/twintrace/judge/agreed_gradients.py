"""Gradients that agree, and partings of gradients of which nothing is left there.

    left     x ─┬─ chunk ─ −b, a ─ cat ─ ·sin ─┬─ +        the halves get back what comes by the sine alone
                └─ ·cos ───────────────────────┘
    right    x ─── halves ─ a·cos − b·sin, … ─ cat         the same halves get all of it

AgreedGradients(state).is_gone(mistake)     all gradients of the values before a parting agree
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.pairs import Part
from ..model.results import Mistake, TensorResult
from ..model.verdicts import Outcome
from ..operations.sides import inputs_of
from .state import JudgeState, Standing

Values = tuple[int | None, int | None]


class AgreedGradients:
    """Takes note of whole gradients that agree, and of where others parted."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self.ends: dict[int, int] = {}
        """Left values whose gradients agree, and these gradients."""
        self._agreed: tuple[set[int], set[int]] = (set(), set())
        """Values of each side all of whose gradient agrees with the other's by its numbers, too."""
        self._places: dict[Mistake, Values] = {}
        """Mistakes, and the values whose gradients they are in."""

    def note(self, item: TensorResult, values: Values, judged: Standing) -> None:
        """Takes note of a judged pair of gradients of two values."""
        self._places.update(dict.fromkeys(judged.mistakes, values))
        pair, (left, right) = item.pair, values
        bound = self._state.bound.get(right) if right is not None else None
        whole = pair.part is Part.OUTPUT_GRADIENT and bound is not None and bound.left == left
        agrees = judged.outcome in (Outcome.SAME, Outcome.ROUNDING) and not judged.discarded
        if left is None or right is None or not agrees:
            return
        if whole:
            self.ends.setdefault(left, pair.left)
        if item.verdict.outcome.good and (whole or pair.part is Part.PARAMETER_GRADIENT):
            self._agreed[0].add(left)
            self._agreed[1].add(right)

    def is_gone(self, mistake: Mistake) -> bool:
        """True if nothing is left of a mistake in a gradient where gradients are added up: on each way back to what the run began
        with, some value has a gradient that agrees. Two sides that go other ways between two values send other parts back.
        """
        places = self._places.get(mistake, (None, None))
        return all(value is not None and self._agrees_before(which, [value]) for which, value in enumerate(places))

    def _agrees_before(self, which: int, values: Iterable[int]) -> bool:
        side, waiting = self._state.sides[which], [*values]
        seen = set(waiting)
        while waiting:
            number = waiting.pop()
            if number in self._agreed[which]:
                continue
            maker = side.maker(number)
            if maker is None and side.has_gradient(number):
                return False
            taken = () if maker is None else inputs_of(maker).values()
            waiting += [other for other in taken if other not in seen]
            seen.update(taken)
        return True
