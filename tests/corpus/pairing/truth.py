"""What corresponds in a pair: from the values of both programs without their mistake, in float64.

    truth = Truth.of(left, right)                   traces of the sound programs
    truth.belong(l, r, layout)                      do two tensors of these traces belong together?
    truth.shared()                                  groups of tensors that both sides have: (of the left, of the right)
    counterparts(journal, sound)                    tensors of another run of the same program, by its numbers

Tensors that are equal up to the order of their elements form a group: a value, and everything that only moves it about.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twintrace.model.pairs import Layout, Part
from twintrace.model.records import Call
from twintrace.store.arrays import as_float

NEAR, ZERO = 1e-6, 1e-13
"""Of the largest element: float64 and a few hundred operations stay far below, other random numbers far above. Below `ZERO` a
gradient is what rounding leaves of none."""


class Run:
    """One journal: its calls, its tensors by part, their values."""

    def __init__(self, journal: Any) -> None:
        self.journal = journal
        self.calls: list[Call] = sorted(journal.calls(), key=lambda call: call.id)

    @cached_property
    def names(self) -> list[Hashable]:
        """Its calls in order, as another run of the same program has them."""
        return [
            (call.site.kind, call.site.name, call.site.path, call.site.phase, call.stack[:1]) for call in self.calls
        ]

    def tensors(self, call: Call) -> dict[tuple[Part, str, int], int]:
        return {(part, slot, count): number for part, slot, count, number in call.tensors()}

    @cached_property
    def gradients(self) -> dict[tuple[str, int], int]:
        return {(item.slot, item.count): item.tensor for item in self.journal.parameter_gradients()}

    @cached_property
    def unwritten(self) -> set[int]:
        """Memory as it was found: `empty` and its like."""
        makers = [call for call in self.calls if ".empty" in call.site.name or "_empty" in call.site.name]
        return {number for call in makers for (part, _, _), number in self.tensors(call).items() if part is Part.OUTPUT}

    def values(self, number: int) -> np.ndarray | None:
        tensor = self.journal.tensor(number)
        if tensor.payload is None or number in self.unwritten:
            return None
        return as_float(self.journal.array(tensor), tensor.spec.dtype).astype(np.float64)

    @cached_property
    def results(self) -> list[int]:
        """Floating point numbers that some call made, and gradients; each once, and none that is constant."""
        made = {Part.OUTPUT, Part.AFTER, Part.OUTPUT_GRADIENT, Part.INPUT_GRADIENT}
        numbers = [
            number
            for call in self.calls
            for (part, _, _), number in self.tensors(call).items()
            if part in made and call.site.phase != "backward"
        ]
        numbers += self.gradients.values()
        return [number for number in dict.fromkeys(numbers) if self._tells(number)]

    def _tells(self, number: int) -> bool:
        if not self.journal.tensor(number).spec.dtype.startswith(("f", "bf")):
            return False
        values = self.values(number)
        if values is None:
            return False
        finite = values[np.isfinite(values)]
        return bool(finite.size > 1 and np.abs(finite - finite[0]).max() > ZERO)


@dataclass(frozen=True)
class Truth:
    left: Run
    right: Run
    share: float = NEAR

    @property
    def turned(self) -> Truth:
        return Truth(self.right, self.left, self.share)

    def belong(self, left: int, right: int, layout: Layout) -> bool:
        """Do these two hold the same values, the right ones laid as is said?"""
        return equal(self.left.values(left), self.right.values(right), layout, self.share)

    def lies(self, left: int, right: int, layout: Layout) -> bool:
        """Does this layout lay the right tensor on the left one?"""
        shape = self.left.journal.tensor(left).spec.shape
        return laid(np.zeros(self.right.journal.tensor(right).spec.shape), layout, shape) is not None

    def same_elements(self, left: int, right: int) -> bool:
        one, two = self.left.values(left), self.right.values(right)
        if one is None or two is None:
            return True
        return one.size == two.size and near(np.sort(one, axis=None), np.sort(two, axis=None), self.share)

    @cached_property
    def shared(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """Groups of equal elements that both sides have."""
        groups: list[tuple[np.ndarray, set[int], set[int]]] = []
        for which, run in enumerate((self.left, self.right)):
            for number in run.results:
                values = run.values(number)
                assert values is not None
                elements = np.sort(values, axis=None)
                for group in groups:
                    if group[0].size == elements.size and near(group[0], elements, self.share):
                        group[1 + which].add(number)
                        break
                else:
                    groups.append((elements, set(), set()))
                    groups[-1][1 + which].add(number)
        return [(frozenset(one), frozenset(two)) for _, one, two in groups if one and two]


Known = dict[int, set[int]]
"""Of each tensor of a run, those that stand in its places in the sound run: one, but where a mistake puts it elsewhere."""


def counterparts(run: Run, sound: Run) -> Known:
    """Tensors of a run, and those of the sound run of the same program: the same calls in the same order, but for the mistake."""
    found: Known = {}
    for first, second, size in difflib.SequenceMatcher(
        None, run.names, sound.names, autojunk=False
    ).get_matching_blocks():
        for offset in range(size):
            ours = run.tensors(run.calls[first + offset])
            theirs = sound.tensors(sound.calls[second + offset])
            for key in ours.keys() & theirs.keys():
                found.setdefault(ours[key], set()).add(theirs[key])
    for slot in run.gradients.keys() & sound.gradients.keys():
        found.setdefault(run.gradients[slot], set()).add(sound.gradients[slot])
    return found


def equal(one: np.ndarray | None, two: np.ndarray | None, layout: Layout, share: float = NEAR) -> bool:
    """Are these the same values, the right ones laid as is said? True where they were not kept."""
    if one is None or two is None:
        return True
    lies = laid(two, layout, one.shape)
    return lies is not None and near(one, lies, share)


def laid(array: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray | None:
    """The array in this layout; None where it does not fit."""
    if layout.axes is not None:
        if len(layout.axes) != array.ndim:
            return None
        array = array.transpose(layout.axes)
    if layout.reshaped and array.size == math.prod(shape):
        array = array.reshape(shape)
    return array if array.shape == tuple(shape) else None


def near(one: np.ndarray, two: np.ndarray, share: float = NEAR) -> bool:
    """Do the elements differ by no more than this share of the largest?"""
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(two)):
        return False
    one, two = one[finite], two[finite]
    scale = max(np.abs(one).max(initial=0), np.abs(two).max(initial=0))
    return bool(np.abs(one - two).max(initial=0) <= share * scale + ZERO)
