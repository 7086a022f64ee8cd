"""Features that calls may share, as numbers that can be compared by the thousand."""

from __future__ import annotations

from collections.abc import Hashable

from ..model.pairs import Part
from .trees import CallTree
from .values import is_constant, numel

_SOURCES = {
    "in": (Part.INPUT, Part.PARAMETER, Part.BUFFER),
    "out": (Part.OUTPUT, Part.AFTER),
}


class Numbering:
    """A number for each thing, the same for equal things; -1 for None."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, thing: Hashable | None) -> int:
        """The thing's number."""
        return -1 if thing is None else self._numbers.setdefault(thing, len(self._numbers))


def shapes_of(tree: CallTree, index: int) -> Hashable | None:
    """Types and shapes of everything that goes in and comes out."""
    slots = [slot for slot in tree.slots(index) if not slot.part.backward]
    tensors = [tree.tensor(slot.tensor) for slot in slots]
    return tuple(
        (slot.part, tensor.spec) for slot, tensor in zip(slots, tensors, strict=True) if tensor.missing is None
    )


def values_of(tree: CallTree, index: int, which: str) -> Hashable | None:
    """The bits of everything that goes in, or comes out; None where they are not known, or say nothing."""
    marks = []
    telling = False
    for slot in tree.slots(index):
        if slot.part in _SOURCES[which]:
            tensor = tree.tensor(slot.tensor)
            mark = tensor.fingerprint or (tensor.statistics and repr(tensor.statistics))
            if mark is None:
                return None
            telling = telling or tensor.statistics is None or not is_constant(tensor.statistics, numel(tensor))
            marks.append(mark)
    return tuple(marks) if telling else None
