"""What corresponds in two traces of a correct port, seen from the values alone.

    oracle = Oracle(left_journal, right_journal)
    oracle.same(3, 7)                  tensor 3 of the left and tensor 7 of the right have the same elements, in whatever order
    oracle.lies_on(3, 7, layout)       … and element for element, once the right one is laid out like that
    oracle.can_lie_on(3, 7)            … for some layout: not all that have the same elements can be compared element by element
    oracle.counterparts(call)          the calls of the right that make what this one makes

Both traces hold every value (keep="tensor"). The inputs are random, so two tensors that have the same elements but for rounding do
correspond; no name, no kind of operation, no order of calls is looked at. That is what makes it an independent witness.

A call *makes* a value if it puts it out and nothing that it was given has the same elements: a reshape, a transpose, a cast or a
dropout that is off makes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import permutations

import numpy as np

from corpus.ports import same
from twintrace.model.pairs import Layout, Part
from twintrace.model.records import Call, Role
from twintrace.model.sites import Kind, Phase
from twintrace.model.values import TensorRef, leaves, tensor_slots
from twintrace.store.trace import Journal

# Of the largest magnitude in a tensor. Looser than for whole ports: single gradients cancel, casts to half precision round.
ROUNDING = 5e-4
# Of the largest gradient of the step: below it a gradient is rounding noise, and says nothing.
NOISE = 1e-6
_MOST_AXES = 6

_GRADIENT_PARTS = {Role.OUTPUT: Part.OUTPUT_GRADIENT, Role.INPUT: Part.INPUT_GRADIENT}


def tensors_of(call: Call) -> Iterator[tuple[Part, str, int]]:
    """(part, slot, number) of all that is known of a call."""
    yield from ((Part.INPUT, slot, number) for slot, number in tensor_slots(call.args, call.kwargs))
    yield from ((Part.PARAMETER, name, number) for name, number in call.parameters.items())
    yield from ((Part.BUFFER, name, number) for name, number in call.buffers.items())
    yield from ((Part.OUTPUT, slot, leaf.id) for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef))
    yield from ((Part.AFTER, slot, number) for slot, number in call.after.items())
    for gradient in call.gradients:
        if gradient.role in _GRADIENT_PARTS:
            yield _GRADIENT_PARTS[gradient.role], gradient.slot, gradient.tensor


class Half:
    """One journal's values."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.calls = sorted(journal.calls(), key=lambda call: call.order)
        self._arrays: dict[int, np.ndarray] = {}
        self._sorted: dict[int, np.ndarray] = {}

    def array(self, number: int) -> np.ndarray:
        if number not in self._arrays:
            value = np.asarray(self.journal.array(self.journal.tensor(number)))
            self._arrays[number] = value.astype(np.float64)
        return self._arrays[number]

    def elements(self, number: int) -> np.ndarray:
        if number not in self._sorted:
            self._sorted[number] = np.sort(self.array(number), axis=None)
        return self._sorted[number]

    @cached_property
    def gradients(self) -> set[int]:
        """Numbers of all gradients."""
        return {
            *(gradient.tensor for call in self.calls for gradient in call.gradients),
            *(gradient.tensor for gradient in self.journal.parameter_gradients()),
        }

    @cached_property
    def noise(self) -> float:
        largest = (float(np.abs(self.array(number)).max(initial=0.0)) for number in self.gradients)
        return NOISE * max(largest, default=0.0)


class Oracle:
    def __init__(self, left: Journal, right: Journal) -> None:
        self.left, self.right = Half(left), Half(right)
        self._answers: dict[tuple[int, int], bool] = {}
        self._layouts: dict[tuple[int, int], bool] = {}

    def same(self, left: int, right: int) -> bool:
        """Have they the same elements, in whatever order, but for rounding?"""
        key = (left, right)
        if key not in self._answers:
            one, two = self.left.elements(left), self.right.elements(right)
            self._answers[key] = one.size == two.size and _close(one, two, self._floor(left, right))
        return self._answers[key]

    def lies_on(self, left: int, right: int, layout: Layout) -> bool:
        """Are they the same element for element, with the right one laid out as said?"""
        one, two = self.left.array(left), self.right.array(right)
        if layout.axes is not None and len(layout.axes) == two.ndim:
            two = two.transpose(layout.axes)
        if layout.reshaped and one.size == two.size:
            two = two.reshape(one.shape)
        return one.shape == two.shape and _close(one, two, self._floor(left, right))

    def can_lie_on(self, left: int, right: int) -> bool:
        """Is there a layout that brings the right one onto the left one?"""
        key = (left, right)
        if key not in self._layouts:
            rank = self.right.array(right).ndim
            orders = permutations(range(rank)) if rank <= _MOST_AXES else [tuple(range(rank))]
            self._layouts[key] = self.same(left, right) and any(
                self.lies_on(left, right, Layout(axes, True)) for axes in orders
            )
        return self._layouts[key]

    def says_nothing(self, left: int) -> bool:
        """Is it empty, constant, or noise, so that having the same value proves nothing?"""
        value = self.left.elements(left)
        if not value.size or value[0] == value[-1]:
            return True
        return left in self.left.gradients and float(np.abs(value).max()) <= self.left.noise

    def counterparts(self, call: Call) -> set[int]:
        """Ids of the right side's calls of functions that make one of the values which this one makes."""
        return {
            other
            for number in _made(call, self.left)
            if not self.says_nothing(number)
            for other, theirs in self._makers(self.left.elements(number).size)
            if self.same(number, theirs)
        }

    def _makers(self, size: int) -> Iterable[tuple[int, int]]:
        return self._right_makers.get(size, ())

    @cached_property
    def _right_makers(self) -> dict[int, list[tuple[int, int]]]:
        found = defaultdict(list)
        for call in self.right.calls:
            if call.site.kind is Kind.API and call.site.phase is Phase.FORWARD:
                for number in _made(call, self.right):
                    found[self.right.elements(number).size].append((call.id, number))
        return found

    def _floor(self, left: int, right: int) -> float:
        both = left in self.left.gradients and right in self.right.gradients
        return max(self.left.noise, self.right.noise) / ROUNDING if both else 0.0


def _close(one: np.ndarray, two: np.ndarray, floor: float) -> bool:
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return bool(np.array_equal(np.isfinite(one), np.isfinite(two))) and same(
            np.nan_to_num(one, posinf=0.0, neginf=0.0), np.nan_to_num(two, posinf=0.0, neginf=0.0), ROUNDING, floor
        )
    return same(one, two, ROUNDING, floor)


def _made(call: Call, half: Half) -> Iterator[int]:
    """Numbers of what a call put out and was not given."""
    if call.raised is not None:
        return
    given = {number for part, _, number in tensors_of(call) if part.incoming and not part.backward}
    for part, _, number in tensors_of(call):
        if part is Part.OUTPUT and number not in given:
            value = half.elements(number)
            others = (half.elements(other) for other in given)
            if not any(other.size == value.size and _close(other, value, 0.0) for other in others):
                yield number
