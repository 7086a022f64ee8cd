"""Verdicts by recomputation: which call is to blame, and for what.

    Recomputed(alignment, results, recomputation).judge()      the results again, with mistakes, terms and standing of each value

Values are gone through in the order of the data flow. The calls between two compared values and the compared values before them are
recomputed in float64, on both sides:

    in                   the calls between                                  out
    same or rounding     mean the same, each within its rounding            rounding, whatever the distance
    same or rounding     mean something else                                different, a mistake
    same or rounding     one recorded what it does not compute              different, a mistake of that side
    different            …                                                  different, until nothing of it is left
    any that is unequal  one has no known meaning, or no values             unknown

Gradients go the other way, by the vector-Jacobian product of each call; what comes together at a value is added up.

    state.py          what has been judged so far
    values.py         values of the forward pass
    backward.py       gradients
    detours.py        values that part and meet again
    explanations.py   causes
    conclusion.py     which mistakes reach a result, with ends.py, unpaired.py, lone.py, effects.py and loss_scale.py
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Alignment, Part, TensorPair
from ..model.results import CallResult, Mistake, TensorResult
from ..model.sites import Phase
from ..model.verdicts import Outcome, Verdict
from .backward import Gradients
from .conclusion import Conclusion, Judgement
from .detours import Detours
from .ends import Ends
from .explanations import Explainer
from .state import JudgeState, Standing, comes_in
from .values import Values

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation

__all__ = ["Judgement", "Recomputed", "Standing"]

_PASSED_BACK = (Part.OUTPUT_GRADIENT, Part.INPUT_GRADIENT, Part.PARAMETER_GRADIENT)
"""Parts that are gradients, in the order in which they are made of each other."""


class Recomputed:
    """Judges the pairs of one step of one rank by recomputing them.

    Args:
        alignment: calls and tensors that belong together.
        results: verdicts without recomputation; they stand where nothing can be recomputed.
        recomputation: both sides, ready to be recomputed.
        before: standing of values that earlier steps left behind, by the fingerprints of both.
    """

    def __init__(
        self,
        alignment: Alignment,
        results: Sequence[CallResult],
        recomputation: Recomputation,
        before: Mapping[tuple[str, str], Standing] | None = None,
    ) -> None:
        self._state = JudgeState(alignment, results, recomputation, before or {})
        explainer = Explainer(self._state)
        self._detours = Detours(self._state)
        self._values = Values(self._state, explainer, self._detours)
        self._gradients = Gradients(self._state)
        self._ends = Ends(self._state)
        self._conclusion = Conclusion(self._state, explainer, self._gradients, self._ends)
        self._gradient_bits = {
            self._state.sides[0].tensor(gradient.tensor).fingerprint: gradient.order
            for call in reversed(self._state.sides[0].calls)
            for gradient in call.gradients
        }
        """Earliest place of each gradient of the left, by its fingerprint."""
        self._told: set[int] = set()
        """Mistakes that have their place, by identity."""

    @property
    def left_behind(self) -> Mapping[tuple[str, str], Standing]:
        """Standing of the values that this step made, by the fingerprints of both sides."""
        return {**self._state.before, **self._state.left_behind}

    def judge(self) -> Judgement:
        """The results with what recomputation says of them."""
        judged: dict[int, dict[int, Standing]] = {number: {} for number in range(len(self._state.results))}
        gradients = self._gradient_numbers()
        for number, result in enumerate(self._state.results):  # what a module holds is there before the calls inside it
            for place, item in enumerate(result.tensors):
                if item.pair.part is Part.BUFFER and self._is_held(item.pair):
                    judged[number][place] = self._values.judge(item)
        for number, result in enumerate(self._state.results):
            if any(self._takes_gradient(result, item, gradients[0]) for item in result.tensors if comes_in(item.pair)):
                # Clipping, a norm, an optimizer's step: the backward pass is over. At level op it is among the calls, and what a
                # custom backward calls is in the middle of it.
                first = result.match.left[0]
                self._judge_gradients(
                    judged,
                    over=not self._state.kernels_only,
                    before=first.order if first.site.phase is Phase.RECOMPUTE else None,
                )
            for incoming in (True, False):
                for place, item in enumerate(result.tensors):
                    if not item.pair.part.backward and comes_in(item.pair) is incoming:
                        judged[number][place] = self._values.turned(result, item) or self._values.judge(item)
        self._judge_gradients(judged)
        made = {
            (item.pair.left, item.pair.right)
            for result in self._state.results
            for item in result.tensors
            if item.pair.part is Part.OUTPUT
        }
        results = [self._result(result, judged[number], made) for number, result in enumerate(self._state.results)]
        return self._conclusion.conclude(results, judged)

    def _is_held(self, pair: TensorPair) -> bool:
        """True if nothing that was recorded has made either of two values."""
        left, right = self._state.sides
        return left.maker(pair.left) is None and right.maker(pair.right) is None

    def _judge_gradients(
        self, judged: Mapping[int, dict[int, Standing]], over: bool = True, before: int | None = None
    ) -> None:
        """Judges the gradients that have not been; unless the backward pass is `over`, only those that kernels have computed.

        `before`: only those of calls whose backward pass began before this observation.
        """
        self._detours.settle(self._ends)
        gradients = (
            (_observed(result, item), number, _PASSED_BACK.index(item.pair.part), place)
            for number, result in enumerate(self._state.results)
            if before is None or _backward_order(result) < (0, before)
            for place, item in enumerate(result.tensors)
            if item.pair.part in _PASSED_BACK
        )
        for _, number, _, place in sorted(gradients):  # what a module sends back is made of what the calls inside it do
            item = self._state.results[number].tensors[place]
            waits = not over and not self._gradients.is_computed(item)
            if place not in judged[number] and not waits:
                judged[number][place] = self._computed_gradient(item) or self._gradients.judge(item)

    def _computed_gradient(self, item: TensorResult) -> Standing | None:
        """Standing of a gradient as the result of kernels that were not compared, at level op; None if it cannot be told so."""
        left, right = self._state.sides
        if not self._state.kernels_only or self._gradients.is_computed(item):
            return None
        if left.maker(item.pair.left) is None or right.maker(item.pair.right) is None:
            return None
        return self._values.judge_computed(replace(item, pair=replace(item.pair, part=Part.OUTPUT)))

    def _gradient_numbers(self) -> tuple[set[int], set[int]]:
        """Numbers of all recorded gradients, of both sides."""
        found: tuple[set[int], set[int]] = (set(), set())
        for which, side in enumerate(self._state.sides):
            found[which].update(gradient.tensor for call in side.calls for gradient in call.gradients)
        for result in self._state.results:
            for item in result.tensors:
                if item.pair.part is Part.PARAMETER_GRADIENT:
                    found[0].add(item.pair.left)
                    found[1].add(item.pair.right)
        return found

    def _takes_gradient(self, result: CallResult, item: TensorResult, gradients: Collection[int]) -> bool:
        """True if a call takes a gradient: by its number, or one that was there before, by its bits."""
        if item.pair.left in gradients:
            return True
        since = self._gradient_bits.get(item.left.fingerprint)
        return since is not None and bool(result.match.left) and since < result.match.left[0].order

    def _result(
        self, result: CallResult, judged: Mapping[int, Standing], made: Collection[tuple[int, int]]
    ) -> CallResult:
        tensors = []
        mistakes: list[Mistake] = []
        untold = ""
        for place, item in enumerate(result.tensors):
            own = judged.get(place)
            if own is None:
                tensors.append(item)
                continue
            tensors.append(replace(item, verdict=_verdict(item, own), terms=own.terms))
            untold = untold or own.untold
            if own.mistakes and not (comes_in(item.pair) and (item.pair.left, item.pair.right) in made):
                # A value goes through the modules around its call as well: a mistake is told where it was made.
                mistakes += [mistake for mistake in own.mistakes if id(mistake) not in self._told]
                self._told.update(map(id, own.mistakes))
        values = [item.verdict for item in tensors if not item.pair.part.backward]
        gradients = [item.verdict for item in tensors if item.pair.part.backward]
        forward = [mistake for mistake in mistakes if not mistake.backward]
        return replace(
            result,
            tensors=tuple(tensors),
            forward=_worst(values) if result.forward is not None else None,
            backward=_worst(gradients) if result.backward is not None else None,
            introduced_forward=bool(forward),
            introduced_backward=len(mistakes) > len(forward),
            mistakes=tuple(mistakes),
            untold=untold,
            absorbed_forward=False,
            absorbed_backward=False,
        )


def _backward_order(result: CallResult) -> tuple[int, int]:
    orders = [gradient.order for call in result.match.left for gradient in call.gradients]
    return (0, min(orders)) if orders else (1, 0)


def _observed(result: CallResult, item: TensorResult) -> tuple[int, int]:
    """Place of a gradient in the order of the backward pass; that of the first of its calls' where it was seen elsewhere."""
    orders = [
        gradient.order for call in result.match.left for gradient in call.gradients if gradient.tensor == item.pair.left
    ]
    return (0, min(orders)) if orders else _backward_order(result)


def _verdict(item: TensorResult, judged: Standing) -> Verdict:
    old = item.verdict
    if judged.outcome is Outcome.SAME and old.outcome is Outcome.SAME:
        return old
    because = judged.because or judged.untold or old.because
    if judged.outcome is Outcome.UNKNOWN and judged.untold and judged.untold not in because:
        because = f"not recomputed ({judged.untold}): {because}"
    return Verdict(judged.outcome, because, old.error, old.bound)


def _worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    from ..model.results import badness

    return max(verdicts, key=badness, default=None)
