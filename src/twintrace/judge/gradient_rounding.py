"""Rounding in gradients: how much of a difference between two gradients the layers behind them may have made.

    rounding.least                   relative distance beyond which two gradients are no longer one that was rounded in many layers
    rounding.are_apart(item, parts)  two gradients differ by more than the rounding of what each was added up of
    rounding.covers(0, call, part)   all that a call sent back is rounding: terms that cancel
    rounding.settle(item)            takes note of two gradients that are right, however far apart

The bound of a call's own vector-Jacobian product comes from its audit. What came back to it with rounding is carried along: of two
gradients that were compared, their difference itself, which the call may make as large as what is left of terms that cancel:

    gradient of k       1e-2 of it apart, which rounding explains   ─▶  summed over all positions, where nearly nothing is left
    gradient of k.bias  as far apart as it is large
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from ..model.pairs import Part
from ..model.records import Call, Role
from ..model.results import TensorResult
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from .fallback import FAR
from .gradient_parts import GradientParts
from .rounding import unit
from .state import SHARES, SINGLE, JudgeState, not_recomputable, times_bound

_NOISE = 64.0
"""Units of the element type by which gradients may differ after many layers, relative to their norm."""
_CARRIED = 2.0
"""Multiple of what the differences that came back become in a call: it is exact but for the rounding of the call itself, and of two
gradients that are nothing but rounding one may be larger than their difference.
"""
_ROUNDINGS = 4.0
"""Times that a gradient in 16 bits was rounded on its way."""


class GradientRounding:
    """Bounds on the rounding of gradients of one step."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self.noise: tuple[set[int], set[int]] = (set(), set())
        """Gradients that are apart and right on both sides: rounding of what cancelled."""
        self._relative_noises: dict[tuple[int, int], float] = {}
        self._parts = GradientParts(state)
        self._settled: dict[tuple[int, int], tuple[int, TensorResult]] = {}
        """Pairs of gradients that are right and not equal, and their places in the order of verdicts, by the side and the number of
        either.
        """
        self._shares: dict[tuple[int, int], float] = {}
        self._sent_back: dict[tuple[int, int], dict[int, float]] = {}
        self._by_operands: dict[int, dict[int, float]] = {}

    @property
    def least(self) -> float:
        """Relative distance of two gradients beyond which they are no longer one gradient that was rounded in many layers."""
        return max(SHARES, self.of_many_layers)

    @cached_property
    def of_many_layers(self) -> float:
        """Relative rounding of many layers in the coarsest element type of the two runs: a gradient in float32 has the rounding of
        16-bit ones before it.
        """
        types = {
            tensor.spec.dtype
            for result in self._state.results
            for item in result.tensors
            for tensor in (item.left, item.right)
        }
        return _NOISE * max((unit(dtype, dtype) for dtype in types), default=0.0)

    def are_apart(self, item: TensorResult, parts: Sequence[Sequence[tuple[Call, int]]]) -> bool:
        """True if two gradients differ by more than many layers' rounding of what each was added up of: its parts, or the terms of
        the only part, which may cancel.
        """
        numbers = item.pair.left, item.pair.right
        least = self.least
        # In 16 bits the terms were rounded, too, and may cancel.
        half = unit(item.left.spec.dtype, item.right.spec.dtype) > SINGLE
        several = max(map(len, parts)) > 1
        if (item.verdict.error or 0.0) < least or ((half or several) and item.verdict.outcome is not Outcome.DIFFERENT):
            return False
        recorded = self._state.recomputation.recorded
        if several:
            numbered = [[part for _, part in own] for own in parts]
            if recorded.apart(numbers, item.pair.layout, numbered) < least:
                return False
            if not all(self._is_audited(which, call, part) for which, own in enumerate(parts) for call, part in own):
                return True
        distance, size = recorded.distance(numbers, item.pair.layout)
        return distance >= max(SHARES * size, self._explained(parts)) > 0

    def settle(self, item: TensorResult) -> None:
        """Takes note of a pair of gradients that is right: its difference is carried along."""
        for which, number in enumerate((item.pair.left, item.pair.right)):
            self._settled.setdefault((which, number), (len(self._settled), item))

    def _is_audited(self, which: int, call: Call, part: int) -> bool:
        """True if the rounding of what a call sent back has a bound."""
        return part in self._state.recomputation.audit(which, call).backward

    def covers(self, which: int, call: Call, part: int, whole: TensorResult | None = None) -> bool:
        """True if all of a part of a gradient is rounding of terms that cancel: the gradient of a mean that is subtracted. Where no
        bound is known, it may be, unless the whole is far beyond what rounding explains.
        """
        if not self._is_audited(which, call, part):
            return whole is None or not self.is_beyond(whole)
        allowed = self._allowed(which, call, part) + _CARRIED * self._carried(which, call, part)
        size = self._state.recomputation.recorded.rms(which, part)
        return size <= allowed or size <= self._left_over(which, call, part) or self._is_left_over(which, call)

    def is_beyond(self, item: TensorResult) -> bool:
        """True if gradients differ by more than functions that were not recorded may make of rounding: far beyond the bound, and
        not because nothing but rounding is left of them (a sum over a softmax).
        """
        if times_bound(item.verdict) < FAR:
            return False
        return not self.is_noise(max(_rms(item.left), _rms(item.right)))

    def is_noise(self, rms: float) -> bool:
        """True of a gradient of this root mean square, if it is no more than the rounding of the largest one."""
        return rms <= self.of_many_layers * self._largest_gradient

    @cached_property
    def _largest_gradient(self) -> float:
        """Root mean square of the largest gradient that was recorded on either side: of calls, and of parameters that are compared,
        which are all there are at level op.
        """
        of_calls = (
            side.tensor(gradient.tensor)
            for side in self._state.sides
            for call in side.calls
            for gradient in call.gradients
        )
        compared = (
            tensor
            for result in self._state.results
            for item in result.tensors
            if item.pair.part is Part.PARAMETER_GRADIENT
            for tensor in (item.left, item.right)
        )
        return max(map(_rms, itertools.chain(of_calls, compared)), default=0.0)

    def _allowed(self, which: int, call: Call, number: int) -> float:
        """Root mean square of the rounding that may be in what a call sent back: its own, and that of the calls before it whose
        gradients were not compared. Infinite if all that came back to it is rounding (scores of a softmax over one element).
        """
        score = self._state.recomputation.audit(which, call, whole=True).backward.get(number)
        if score is None:
            return math.inf
        received = _came_back(call)
        noise = min((self._relative_noise(which, item) for item in received), default=0.0)
        if noise == math.inf and self._carried(which, call, number):
            noise = 0.0  # what that noise becomes here is known
        if noise in (0.0, math.inf):
            return score.limit + noise
        return score.limit + noise * self._state.recomputation.recorded.rms(which, number)

    def _explained(self, parts: Sequence[Sequence[tuple[Call, int]]]) -> float:
        """Root mean square of the difference that rounding explains of two gradients which were sent back like this."""
        sent = [(which, call, part) for which, own in enumerate(parts) for call, part in own]
        own = sum(self._allowed(*each) for each in sent)
        inherited = sum(self._inherited(call, part) for which, call, part in sent if which)
        return _NOISE * own + _CARRIED * (sum(self._carried(*each) for each in sent) + inherited)

    def _inherited(self, call: Call, number: int) -> float:
        """Root mean square of what the differences of its operands, which rounding explains, do to a gradient that a call of the
        right sends back: a divisor near zero.
        """
        if call.id not in self._by_operands:
            from ..operations.pullbacks import inherited_of

            self._by_operands[call.id] = {}
            with contextlib.suppress(not_recomputable(), RuntimeError):
                self._by_operands[call.id] = inherited_of(self._state.recomputation, call, self._state.bound)
        return self._by_operands[call.id].get(number, 0.0)

    def _carried(self, which: int, call: Call, number: int) -> float:
        """Root mean square of what the differences that came back to a call become in a gradient that it sends back, as far as
        rounding explains them where they arose.
        """
        key = which, call.id
        if key not in self._sent_back:
            self._sent_back[key] = {}
            came = _came_back(call)
            self._find_shares((which, item) for item in came)
            received = {}
            for gradient in came:
                share = self._shares.get((which, gradient), 0.0)
                if not share:
                    continue
                _, item = self._settled[which, gradient]
                recorded = self._state.recomputation.recorded
                both = recorded.differences((item.pair.left, item.pair.right), item.pair.layout)
                if both is not None:
                    received[gradient] = share * both[which]
            if received:
                from ..operations.pullbacks import sent_back_of

                with contextlib.suppress(not_recomputable()):
                    self._sent_back[key] = sent_back_of(self._state.recomputation, which, call, received)
        return self._sent_back[key].get(number, 0.0)

    def _find_shares(self, gradients: Iterable[tuple[int, int]]) -> None:
        """Finds the share of their differences that rounding explains, of gradients and of those that they were made of. No
        recursion: the chain of calls may be as long as the run. Each was judged after what it is made of.
        """
        waiting = [key for key in gradients if key in self._settled and key not in self._shares]
        found: dict[int, tuple[int, int]] = {}
        while waiting:
            key = waiting.pop()
            place, item = self._settled[key]
            if place in found:
                continue
            found[place] = key
            made_of = (
                (which, gradient)
                for which, sent in enumerate(self._parts.sent(item.pair))
                for call, _ in sent
                for gradient in _came_back(call)
            )
            waiting += [other for other in made_of if other in self._settled and other not in self._shares]
        for place in sorted(found):
            self._shares[found[place]] = self._share(self._settled[found[place]][1])

    def _share(self, item: TensorResult) -> float:
        """Share of the difference of two gradients that rounding explains: a mistake that is smaller than is seen at once may hide
        in the rest.
        """
        parts = self._parts.sent(item.pair)
        numbers = item.pair.left, item.pair.right
        distance, size = self._state.recomputation.recorded.distance(numbers, item.pair.layout)
        if not any(parts) or distance <= self.of_many_layers * size:
            return 1.0
        return min(1.0, self._explained(parts) / distance)

    def _sent(self, which: int, number: int) -> Sequence[tuple[Call, int]]:
        """`(call, gradient)` of what a gradient that came back is the sum of."""
        values = [value for _, value in self._state.received[which].get(number, ())]
        sent = [item for value in values for item in self._state.sides[which].contributions(value)]
        return sent or [(call, number) for call, _ in self._state.senders[which].get(number, ())]

    def _is_left_over(self, which: int, call: Call) -> bool:
        """True if all that came back to a call was compared with none, and is left of 16-bit gradients that cancelled."""
        came = _came_back(call)
        for number in came:
            sent = () if number in self._state.gradient_of[which] else self._sent(which, number)
            left = sum(self._left_over(which, sender, part) for sender, part in sent)
            if not left or self._state.recomputation.recorded.rms(which, number) > left:
                return False
        return bool(came)

    def _left_over(self, which: int, call: Call, number: int) -> float:
        """Root mean square of what the rounding of 16-bit gradients that came back to a call becomes in one that it sends back: all
        that is left where these cancel.
        """
        from ..operations.pullbacks import rounding_of, sent_back_of

        came = _came_back(call)
        coarse = [item for item in came if unit(*[self._state.sides[which].tensor(item).spec.dtype] * 2) > SINGLE]
        if not coarse:
            return 0.0
        recomputation = self._state.recomputation
        try:
            received = {item: _ROUNDINGS * rounding_of(recomputation.values[which], item) for item in coarse}
            return sent_back_of(recomputation, which, call, received).get(number, 0.0)
        except not_recomputable():
            return 0.0

    def _relative_noise(self, which: int, number: int) -> float:
        """The same of a gradient that came back, over its size; nothing of one that was compared and is not apart."""
        if number in self.noise[which]:
            return math.inf
        judged = self._state.gradient_of[which].get(number)
        if judged is not None and judged.outcome is not Outcome.UNKNOWN:
            return 0.0
        key = which, number
        if key not in self._relative_noises:
            self._relative_noises[key] = 0.0  # a damaged trace may go round in circles
            sent = self._sent(which, number)
            size = self._state.recomputation.recorded.rms(which, number)
            parts = [self._allowed(which, call, part) + self._carried(which, call, part) for call, part in sent]
            known = [part for part in parts if part < math.inf]
            self._relative_noises[key] = math.inf if parts and not known else sum(known) / size if size else 0.0
        return self._relative_noises[key]


def _came_back(call: Call) -> list[int]:
    """Gradients of the results of a call."""
    return [gradient.tensor for gradient in call.gradients if gradient.role is Role.OUTPUT]


def _rms(tensor: Tensor) -> float:
    """Root mean square of a recorded tensor, from its statistics; 0 if it has none."""
    known, count = tensor.statistics, math.prod(tensor.spec.shape)
    return 0.0 if known is None or known.norm is None or not count else known.norm / math.sqrt(count)
