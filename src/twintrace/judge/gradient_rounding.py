"""Rounding in gradients: how much of a difference between two gradients the layers behind them may have made.

    rounding.least                   relative distance beyond which two gradients are no longer one that was rounded in many layers
    rounding.are_apart(item, parts)  two gradients differ by more than the rounding of what each was added up of
    rounding.covers(0, call, part)   all that a call sent back is rounding: terms that cancel

The bound of a call's own vector-Jacobian product comes from its audit; what came back to it with rounding is carried along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from ..model.records import Call
from ..model.results import TensorResult
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from .fallback import FAR
from .rounding import unit
from .state import SHARES, SINGLE, JudgeState, times_bound

_NOISE = 64.0
"""Units of the element type by which gradients may differ after many layers, relative to their norm."""


class GradientRounding:
    """Bounds on the rounding of gradients of one step."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self.noise: tuple[set[int], set[int]] = (set(), set())
        """Gradients that are apart and right on both sides: rounding of what cancelled."""
        self._relative_noises: dict[tuple[int, int], float] = {}

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
        if several:
            return (
                self._state.recomputation.recorded.apart(
                    numbers, item.pair.layout, [[part for _, part in own] for own in parts]
                )
                >= least
            )
        limit = sum(self._allowed(which, call, part) for which, own in enumerate(parts) for call, part in own)
        distance, size = self._state.recomputation.recorded.distance(numbers, item.pair.layout)
        return distance >= max(SHARES * size, _NOISE * limit) > 0

    def covers(self, which: int, call: Call, part: int) -> bool:
        """True if all of a part is rounding of terms that cancel: the gradient of a mean that is subtracted."""
        return self._state.recomputation.recorded.rms(which, part) <= self._allowed(which, call, part)

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
        """Root mean square of the largest gradient that was recorded on either side."""
        return max(
            (
                _rms(side.tensor(gradient.tensor))
                for side in self._state.sides
                for call in side.calls
                for gradient in call.gradients
            ),
            default=0.0,
        )

    def _allowed(self, which: int, call: Call, number: int) -> float:
        """Root mean square of the rounding that may be in what a call sent back: its own, and that of the calls before it whose
        gradients were not compared. Infinite if all that came back to it is rounding (scores of a softmax over one element).
        """
        score = self._state.recomputation.audit(which, call, whole=True).backward.get(number)
        if score is None:
            return math.inf
        received = [gradient.tensor for gradient in call.gradients if gradient.role == "output"]
        noise = min((self._relative_noise(which, item) for item in received), default=0.0)
        if noise in (0.0, math.inf):
            return score.limit + noise
        return score.limit + noise * self._state.recomputation.recorded.rms(which, number)

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
            values = [value for _, value in self._state.received[which].get(number, ())]
            sent = [item for value in values for item in self._state.sides[which].contributions(value)]
            sent = sent or [(call, number) for call, _ in self._state.senders[which].get(number, ())]
            size = self._state.recomputation.recorded.rms(which, number)
            parts = [self._allowed(which, call, part) for call, part in sent]
            known = [part for part in parts if part < math.inf]
            self._relative_noises[key] = math.inf if parts and not known else sum(known) / size if size else 0.0
        return self._relative_noises[key]


def _rms(tensor: Tensor) -> float:
    """Root mean square of a recorded tensor, from its statistics; 0 if it has none."""
    known, count = tensor.statistics, math.prod(tensor.spec.shape)
    return 0.0 if known is None or known.norm is None or not count else known.norm / math.sqrt(count)
