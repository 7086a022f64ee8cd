"""One side of a comparison, made ready: the tree of its calls, their tensors by slot, and each tensor read once.

tree.calls[i]           the calls, in the order in which they began
tree.parent[i]          the position of the module around it, -1 for none
tree.children[i]        positions of what was called inside it
tree.slots(i)           (part, slot, tensor, turn) of everything that goes in and comes out
tree.tensor(7)          what is known of tensor 7
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ..model.pairs import Part, Side
from ..model.records import Call, Role
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves, tensor_slots

IN = frozenset((Part.INPUT, Part.PARAMETER, Part.BUFFER))
OUT = frozenset((Part.OUTPUT, Part.AFTER))


class Slot(NamedTuple):
    """One tensor of a call. `turn` numbers the backward passes of a gradient."""

    part: Part
    slot: str
    tensor: int
    turn: int = 0


class _Facts(dict[int, Tensor]):
    """Facts about tensors; each is read once, when it is first asked for."""

    def __init__(self, read: Callable[[int], Tensor]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, identity: int) -> Tensor:
        facts = self[identity] = self._read(identity)
        return facts


class CallTree:
    """One side, indexed."""

    def __init__(self, side: Side) -> None:
        self.framework = side.framework
        self.calls: list[Call] = _in_order(side.calls)
        self.tensor: Callable[[int], Tensor] = _Facts(side.tensor).__getitem__
        """Facts about a tensor, by its number."""
        self._slots: list[tuple[Slot, ...] | None] = [None] * len(self.calls)
        self._inputs: list[tuple[Slot, ...] | None] = [None] * len(self.calls)
        self._outputs: list[tuple[Slot, ...] | None] = [None] * len(self.calls)
        self.position = {call.id: index for index, call in enumerate(self.calls)}
        self.parent: list[int] = []
        self.children: list[list[int]] = [[] for _ in self.calls]
        self.roots: list[int] = []
        self.containers: dict[int, bool] = {}  # what units.is_container has found
        # Numbers of values that came in anew, and those with which they came out (pairing.py).
        self.same: dict[int, int] = {}
        for index, call in enumerate(self.calls):
            up = -1 if call.parent is None else self.position.get(call.parent, -1)
            up = up if up < index else -1  # a parent began before its child: anything else is damage
            self.parent.append(up)
            (self.roots if up < 0 else self.children[up]).append(index)

    def __len__(self) -> int:
        return len(self.calls)

    def slots(self, index: int) -> tuple[Slot, ...]:
        """Every tensor of a call: inputs, parameters, buffers, outputs, gradients."""
        found = self._slots[index]
        if found is None:
            found = self._slots[index] = tuple(_slots(self.calls[index]))
        return found

    def inputs(self, index: int) -> tuple[Slot, ...]:
        """Inputs: arguments, parameters, buffers."""
        found = self._inputs[index]
        if found is None:
            found = self._inputs[index] = tuple([slot for slot in self.slots(index) if slot.part in IN])
        return found

    def outputs(self, index: int) -> tuple[Slot, ...]:
        """Outputs."""
        found = self._outputs[index]
        if found is None:
            found = self._outputs[index] = tuple([slot for slot in self.slots(index) if slot.part in OUT])
        return found

    @cached_property
    def operand_bits(self) -> frozenset[str]:
        """Fingerprints of all inputs."""
        tensors = dict.fromkeys(slot.tensor for index in range(len(self)) for slot in self.inputs(index))
        return frozenset(bits for tensor in tensors if (bits := self.tensor(tensor).fingerprint) is not None)

    def edge(self, members: Sequence[int], also: Callable[[int], bool] = lambda tensor: False) -> tuple[Slot, ...]:
        """The tensors at the edge of a region of calls: what comes into it, what leaves it, and their gradients.

        Of several calls each slot carries the name of its call: `matmul#3:0`. `also` may ask for results that stay inside.
        """
        if len(members) == 1:
            return self.slots(members[0])
        made, used = set(), set()
        for index in members:
            for slot in self.slots(index):
                if slot.part in OUT:
                    made.add(slot.tensor)
                elif slot.part in IN:
                    used.add(self.same.get(slot.tensor, slot.tensor))
        found: dict[tuple[bool, int], Slot] = {}
        gradients: list[Slot] = []
        for index in members:
            site = self.calls[index].site
            kernel = site.name.split(".")[1:2] if site.name.startswith("aten.") else site.name.split(".")[-1:]
            prefix = f"{kernel[0]}#{site.call}:"
            kept = set()
            for slot in self.slots(index):
                tensor = self.same.get(slot.tensor, slot.tensor)
                inner = tensor in (made if slot.part in IN else used) and not (slot.part in OUT and also(slot.tensor))
                key = slot.part in IN, tensor
                if not slot.part.backward and not inner and key not in found:
                    found[key] = slot._replace(slot=prefix + slot.slot)
                    kept.add((slot.part in IN, slot.slot))
            gradients += [
                slot._replace(slot=prefix + slot.slot)
                for slot in self.slots(index)
                if slot.part.backward and (slot.part is Part.INPUT_GRADIENT, slot.slot) in kept
            ]
        return (*found.values(), *gradients)


def _in_order(calls: Sequence[Call]) -> list[Call]:
    """Calls in the order in which they began. A journal has them in the order in which they ended: a child before its parent."""
    seen: set[int] = set()
    parents = {call.id for call in calls}
    for call in calls:
        if call.parent is not None and call.parent in parents and call.parent not in seen:
            return sorted(calls, key=lambda call: call.id)
        seen.add(call.id)
    return list(calls)


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
