"""Equal results of calls that are not the same, and that send other gradients back.

    bf16   label smoothing 0.1 | 0.1001      the loss is rounded to the same bits, its gradient is not
    f32    x | x.to(f16).to(f32)             the values fit into float16, the gradients do not

EqualResults(state, explainer).judge(item)     the standing of such a pair; None of all others
"""

from __future__ import annotations

from dataclasses import replace

from ..model.pairs import Part
from ..model.results import TensorResult, Terms
from ..model.verdicts import Outcome
from ..operations.sides import Slice, inputs_of
from .explanations import Explainer
from .rounding import unit
from .state import SINGLE, JudgeState, Standing, not_recomputable


class EqualResults:
    """Looks at what equal results hide."""

    def __init__(self, state: JudgeState, explainer: Explainer) -> None:
        self._state = state
        self._explainer = explainer

    def judge(self, item: TensorResult) -> Standing | None:
        """Standing of a pair of equal values whose gradients show that their calls are not the same; None if they do not."""
        return self._rounded_away(item) or self._round_trip(item)

    def _rounded_away(self, item: TensorResult) -> Standing | None:
        """Verdict on calls that mean something else, or compute in another precision, whose results are equal because they were
        rounded to 16 bits, and whose gradients are not: a loss with another smoothing of its labels, a layer of a bf16 run in
        float16. None if there is nothing of the kind.
        """
        pair = item.pair
        if pair.part is not Part.OUTPUT or pair.left in self._state.known[0] or pair.right in self._state.known[1]:
            return None
        if unit(item.left.spec.dtype, item.right.spec.dtype) <= SINGLE:
            return None
        parts = [
            self._state.sides[which].slice((pair.left, pair.right)[which], self._state.known[which]) for which in (0, 1)
        ]
        sent = self._sent_back(0, parts[0]), self._sent_back(1, parts[1])
        if not sent[0] or not sent[1] or set(sent[0].values()) == set(sent[1].values()):
            return None
        if self._explainer.draws(parts[0], parts[1]) is not None:
            return None
        precise = self._explainer.precision_mistake(item, parts[0], parts[1], None)
        if precise is not None and self._are_other_gradients(sent):
            what = f"{precise.what}; the results are equal, the gradients that they send back are not"
            return Standing(Outcome.DIFFERENT, Terms(), what, (replace(precise, what=what),))
        if self._state.recomputation.same_meaning(parts[0], parts[1], self._state.bound):
            return None
        try:
            difference = self._state.recomputation.difference(parts[0], parts[1], self._state.bound, pair.layout)
        except not_recomputable():
            return None
        if not difference.significant or self._state.recomputation.is_unavoidable(parts[0], parts[1]):
            return None
        cause = self._explainer.cause(parts[0], parts[1], pair)
        mistake = self._explainer.meaning_mistake(parts[0], parts[1], pair, difference, cause)
        self._state.origins.setdefault(mistake, (pair, parts[0], parts[1]))
        return Standing(Outcome.DIFFERENT, Terms(meaning=difference.relative), mistake.what, (mistake,))

    def _round_trip(self, item: TensorResult) -> Standing | None:
        """Verdict on casts that one side alone makes, which change the gradient alone; None if there are none."""
        casts = [self._explainer.round_trip(which, (item.pair.left, item.pair.right)[which]) for which in (0, 1)]
        mistakes = tuple(mistake for mistake in casts if mistake is not None)
        if len(mistakes) != 1:
            return None
        if any(
            other.verdict.outcome is not Outcome.SAME
            for result in self._state.results
            for other in result.tensors
            if other.pair.part is Part.PARAMETER_GRADIENT
        ):
            self._state.always.add(mistakes[0])  # no value shows it, and rounding hides it among gradients
        return Standing(Outcome.DIFFERENT, Terms(), mistakes[0].what, mistakes)

    def _sent_back(self, which: int, part: Slice) -> dict[int, str]:
        """Numbers and fingerprints of the gradients that the calls of a slice send back to the values that it begins with."""
        side, edge = self._state.sides[which], set(part.edge)
        found = {}
        for call in part.calls:
            taken = inputs_of(call)
            for gradient in call.gradients:
                if gradient.role != "output" and taken.get(gradient.slot) in edge:
                    found[gradient.tensor] = side.tensor(gradient.tensor).fingerprint or ""
        return found

    def _are_other_gradients(self, sent: tuple[dict[int, str], dict[int, str]]) -> bool:
        """True if gradients differ in their values, and not in their element type alone."""
        compared = [
            item.verdict.outcome is not Outcome.SAME
            for result in self._state.results
            for item in result.tensors
            if item.pair.part.backward and item.pair.left in sent[0] and item.pair.right in sent[1]
        ]
        return any(compared) or not compared
