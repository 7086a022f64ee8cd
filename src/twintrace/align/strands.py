"""One side of a comparison, made ready: the tree of its calls, their tensors by slot, and each tensor read once.

strand.calls[i]           the calls, in the order in which they began
strand.parent[i]          the position of the module around it, -1 for none
strand.children[i]        positions of what was called inside it
strand.slots(i)           (part, slot, tensor, turn) of everything that goes in and comes out
strand.tensor(7)          what is known of tensor 7
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..model.pairs import Part, Side
from ..model.records import Call, Role
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves, tensor_slots


class Slot(NamedTuple):
    """One tensor of a call. `turn` numbers the backward passes of a gradient."""

    part: Part
    slot: str
    tensor: int
    turn: int = 0


class Strand:
    """One side, indexed."""

    def __init__(self, side: Side) -> None:
        self.framework = side.framework
        self.calls: list[Call] = list(side.calls)
        self._read = side.tensor
        self._tensors: dict[int, Tensor] = {}
        self._slots: list[tuple[Slot, ...] | None] = [None] * len(self.calls)
        self.position = {call.id: index for index, call in enumerate(self.calls)}
        self.parent: list[int] = []
        self.children: list[list[int]] = [[] for _ in self.calls]
        self.roots: list[int] = []
        for index, call in enumerate(self.calls):
            up = -1 if call.parent is None else self.position.get(call.parent, -1)
            up = up if up < index else -1  # a parent began before its child: anything else is damage
            self.parent.append(up)
            (self.roots if up < 0 else self.children[up]).append(index)

    def __len__(self) -> int:
        return len(self.calls)

    def tensor(self, identity: int) -> Tensor:
        """What is known of a tensor; each is read once."""
        found = self._tensors.get(identity)
        if found is None:
            found = self._tensors[identity] = self._read(identity)
        return found

    def slots(self, index: int) -> tuple[Slot, ...]:
        """Every tensor of a call: inputs, parameters, buffers, outputs, gradients."""
        found = self._slots[index]
        if found is None:
            found = self._slots[index] = tuple(_slots(self.calls[index]))
        return found


def _slots(call: Call) -> Iterator[Slot]:
    for slot, tensor in tensor_slots(call.args, call.kwargs):
        yield Slot(Part.INPUT, slot, tensor)
    for slot, tensor in call.parameters.items():
        yield Slot(Part.PARAMETER, slot, tensor)
    for slot, tensor in call.buffers.items():
        yield Slot(Part.BUFFER, slot, tensor)
    for slot, leaf in leaves(call.output):
        if isinstance(leaf, TensorRef):
            yield Slot(Part.OUTPUT, slot, leaf.id)
    for slot, tensor in call.after.items():
        yield Slot(Part.AFTER, slot, tensor)
    for gradient in call.gradients:
        part = Part.INPUT_GRADIENT if gradient.role is Role.INPUT else Part.OUTPUT_GRADIENT
        yield Slot(part, gradient.slot, gradient.tensor, gradient.count)
