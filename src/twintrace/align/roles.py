"""The parts that the tensors of a call play in it, whatever their slots are called.

roles.meanings(slots, "linear", "Dense")     input, weight, bias: what `operations` calls these operands; `0`, `1` for results
roles.roles(slots, "region", "")             the same for several calls, by the call that each slot bears the name of
roles.stray(slot, others, "linear", "")      a slot without a partner, with what it is and why it has none
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.pairs import Part, Stray
from ..operations import family_of
from ..operations.operands import operand_of, ranks
from .trees import IN, OUT, Slot


def meanings(slots: Sequence[Slot], operation: str, function: str) -> list[str]:
    if len(slots) == 1:
        part, slot, *_ = slots[0]
        if part in OUT:
            return [slot.rpartition(":")[2] or "0"]  # of a region the slot bears the name of its call: `matmul#3:0`
        return [operand_of(operation, part, slot, 0 if part is Part.INPUT and slot.isdigit() else -1, function)]
    places = ranks([slot.slot if slot.part is Part.INPUT else "" for slot in slots])
    return [
        (slot.slot or "0")  # a single result, and the first of several
        if slot.part in OUT
        else operand_of(operation, slot.part, slot.slot, place, function)
        for slot, place in zip(slots, places, strict=True)
    ]


def roles(slots: Sequence[Slot], operation: str, function: str) -> list[str]:
    """The same, for regions as well: there a slot bears the name of its call (`Conv2D#1:0`), and means what it means to that."""
    means = meanings(slots, operation, function)
    for number, slot in enumerate(slots):
        name, colon, place = slot.slot.rpartition(":")
        if colon:
            of = family_of(name.rpartition("#")[0])
            means[number] = (place or "0") if slot.part in OUT else operand_of(of, slot.part, place)
    return means


def stray(slot: Slot, others: Sequence[Slot], operation: str, function: str) -> Stray:
    if slot.part.backward:
        rivals = [other for other in others if other.part is slot.part]
        loose = rivals and (is_loose(slot.slot) or any(is_loose(other.slot) for other in rivals))
        why = f"the other side has no gradient {'with these values' if loose else 'here'}"
    elif not any((other.part in IN) == (slot.part in IN) for other in others if not other.part.backward):
        why = "the other side has no tensor there"
    else:
        why = "no tensor of the other side fits"
    role = ""
    if slot.part in IN:
        name = operand_of(operation, slot.part, slot.slot.rpartition(":")[2], -1, function)
        role = name.replace("_", " ") if name.isidentifier() else ""
    return Stray(slot.part, slot.slot, slot.tensor, why, role)


def is_loose(slot: str) -> bool:
    """Is it the place of a gradient in a list, and not the argument that it is the gradient of?"""
    return slot.rpartition(":")[2].startswith("node.")
