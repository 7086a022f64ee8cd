"""Recorded tensors of two sides beside each other: nothing is computed again.

    recorded.distance((17, 21), layout)        root mean squares of the difference of two gradients, and of the larger one
    recorded.summands(0, 17, [12, 15])         the recorded parts whose sum is a gradient
    recorded.relation(17, 21)                  "the right's is the left's, transposed"

A tensor is named by its number, those of both sides together by a pair of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch

from ..model.pairs import Layout
from ..model.tensors import UNITS
from .differences import laid_back, laid_out
from .evaluation import SINGLE, NotRecomputable, Values
from .leaves import Trend, blocks, relation, shares_rows, trend
from .sides import Side

Tensor = torch.Tensor

_ADDED = 16.0
"""Multiple of the rounding of a sum of gradients. MindSpore adds some up in another order than they are sent: 8 units were seen."""
_SUMMANDS = 8
"""Parts of a gradient up to which all selections are tried: 255 sums."""
_FACTOR_UNITS = 64.0
"""Units by which gradients may differ that are a multiple of each other: those of many layers were rounded in other places."""
_MOST = 0.5
"""A part of a gradient that one side alone has is missing on the other if the two differ by at least half of it."""
_UNKNOWN = NotRecomputable, RuntimeError
"""Values that were not kept, and shapes that do not fit each other."""


class Recorded:
    """Recorded tensors of both sides."""

    def __init__(self, sides: tuple[Side, Side], values: tuple[Values, Values]) -> None:
        self._sides = sides
        self._values = values

    def _laid(self, numbers: tuple[int, int], layout: Layout) -> tuple[Tensor, Tensor]:
        one = self._values[0](numbers[0])
        return one, laid_out(self._values[1](numbers[1]), layout, one.shape)

    def _unit(self, *numbers: int) -> float:
        """The larger unit of the element types of a tensor of each side."""
        return max(UNITS.get(values.spec(item).dtype, 0.0) for values, item in zip(self._values, numbers, strict=True))

    def laid_alike(self, numbers: tuple[int, int], layout: Layout) -> tuple[Tensor, Tensor]:
        """Two tensors, the right one as it lies on the left. Raises NotRecomputable, RuntimeError for other shapes."""
        left, right = self._laid(numbers, layout)
        return left, right if right.shape == left.shape else right.reshape(left.shape)

    def rms(self, which: int, number: int) -> float:
        """Root mean square of a value; 0 where it was not kept."""
        try:
            value = self._values[which](number)
        except NotRecomputable:
            return 0.0
        return float(value.norm()) / math.sqrt(max(value.numel(), 1))

    # --- gradients ------------------------------------------------------------------------------------------------------

    def distance(self, gradients: tuple[int, int], layout: Layout) -> tuple[float, float]:
        """Root mean squares of the difference of two gradients, and of the larger one; zeros where values were not kept."""
        try:
            one, two = (item if item.is_complex() else item.double() for item in self._laid(gradients, layout))
        except _UNKNOWN:
            return 0.0, 0.0
        many = math.sqrt(max(one.numel(), 1))
        return float((one - two).norm()) / many, max(float(one.norm()), float(two.norm())) / many

    def differences(self, gradients: tuple[int, int], layout: Layout) -> tuple[Tensor, Tensor] | None:
        """Difference of two gradients as it lies on the left and on the right; None where values were not kept."""
        try:
            one, two = self.laid_alike(gradients, layout)
            apart = one - two
            return apart, laid_back(apart, layout, self._values[1](gradients[1]).shape)
        except _UNKNOWN:
            return None

    def apart(self, gradients: tuple[int, int], layout: Layout, parts: Sequence[Sequence[int]]) -> float:
        """Distance of two gradients, relative to the parts that each was added up of: these may cancel."""
        try:
            one, two = self._laid(gradients, layout)
            distance = float((one - two).norm())
            sizes = [self._values[which](number).norm() for which in (0, 1) for number in parts[which]]
        except _UNKNOWN:
            return 0.0
        largest = max(map(float, sizes), default=0.0)
        return distance / largest if largest else 0.0

    def factor(self, gradients: tuple[int, int], layout: Layout) -> float | None:
        """Number that the left of two gradients must be multiplied by to give the right one, but for rounding; None if there is
        none, or both are zero.
        """
        try:
            one, two = self._laid(gradients, layout)
        except _UNKNOWN:
            return None
        energy = float((one * one).sum())
        if one.shape != two.shape or not energy or not math.isfinite(energy):
            return None
        factor = float((one * two).sum()) / energy
        size = two.abs() + two.pow(2).mean().sqrt()  # elements that are sums may cancel
        limit = _FACTOR_UNITS * self._unit(*gradients) * size
        return factor if bool(((one * factor - two).abs() <= limit).all()) else None

    def is_the_difference(self, which: int, left: int, right: int, layout: Layout, parts: Sequence[int]) -> bool | None:
        """True if two gradients differ by parts that one side alone has, and not only in how these were added up.

        None where the values to tell it by were not kept.
        """
        values = self._values[which]
        try:
            one, two = self._laid((left, right), layout)
            apart = one - two
            alone = torch.zeros_like(values((left, right)[which]))
            for number in parts:
                alone = alone + values(number).reshape(alone.shape)
        except _UNKNOWN:
            return None
        return float(apart.norm()) >= _MOST * float(alone.norm()) > 0

    def summands(self, which: int, gradient: int, parts: Sequence[int]) -> tuple[int, ...] | None:
        """Parts whose sum is a recorded gradient, up to the rounding of adding them; None if there are none.

        All of them, if that will do; else as many as possible: a part may belong to another tensor with the same bits.
        """
        values = self._values[which]
        try:
            total = values(gradient)
            pieces = [values(number).reshape(total.shape) for number in parts]
        except _UNKNOWN:
            return None
        unit = UNITS.get(values.spec(gradient).dtype, SINGLE)
        # One part alone is not added to anything, but by ranks that were put together. In float32 nobody sees the difference.
        exact = unit > SINGLE and all(values.slack(number) is None for number in (gradient, *parts))
        chosen: Iterator[tuple[int, ...]] = iter([tuple(range(len(pieces)))])
        if len(pieces) <= _SUMMANDS:
            sizes = range(len(pieces), 0, -1)
            chosen = itertools.chain.from_iterable(itertools.combinations(range(len(pieces)), size) for size in sizes)
        for places in chosen:
            if _is_sum(total, [pieces[place] for place in places], unit, exact):
                return tuple(parts[place] for place in places)
        return None

    # --- tensors that no recorded call made -----------------------------------------------------------------------------

    def relation(self, left: int, right: int) -> str:
        """One sentence on how two tensors that differ belong together; empty if nothing is seen."""
        for which, number, other in ((1, right, "left"), (0, left, "right")):
            side = self._sides[which]
            names = self._sides[1 - which].parameters_like(side.tensor(number))
            if names and side.parameter_name(number) not in names:
                return f"the {('left', 'right')[which]} has here what the {other} has as {names[0]}"
        try:
            return relation(self._values[0](left), self._values[1](right), self._unit(left, right))
        except NotRecomputable:
            return ""

    def trend(self, left: int, right: int, layout: Layout) -> Trend | None:
        """Property that the differences of two leaves share which are a few units apart; None if there is none."""
        try:
            one, two = self._laid((left, right), layout)
        except _UNKNOWN:
            return None
        return trend(one, two, self._unit(left, right))

    def nearest_block(self, left: int, right: int) -> tuple[float, int]:
        """Part of the larger of two tensors that is nearest to the smaller (queries of one weight for queries, keys and values):
        distance, relative to a part of that size, and place. Infinite if it has no such parts.
        """
        try:
            one, two = self._values[0](left), self._values[1](right)
        except NotRecomputable:
            return math.inf, -1
        small, large = sorted((one, two), key=lambda value: value.numel())
        size = float(large.norm()) * math.sqrt(small.numel() / max(large.numel(), 1))
        found = [(float((part - small).norm()), place) for place, part in enumerate(blocks(one, two))]
        distance, place = min(found, default=(math.inf, -1))
        return (distance / size if size else distance), place

    def is_part(self, left: int, right: int) -> bool:
        """True if the smaller of two tensors consists of rows of the larger, or of its columns."""
        try:
            return shares_rows(self._values[0](left), self._values[1](right))
        except NotRecomputable:
            return False


def _is_sum(total: Tensor, parts: Sequence[Tensor], unit: float, exact: bool) -> bool:
    """True if a tensor is the sum of others: what may be missing is as small as rounding. `exact`: one alone is rounded once."""
    summed, size = torch.zeros_like(total), torch.zeros_like(total.abs())  # complex numbers have a real size
    for part in parts:
        summed, size = summed + part, size + part.abs()
    added = _ADDED * unit * (len(parts) + 1) * (size + size.pow(2).mean().sqrt())
    allowed = unit * size if exact and len(parts) == 1 else added
    return bool(((summed - total).abs() <= allowed + 1e-300).all())
