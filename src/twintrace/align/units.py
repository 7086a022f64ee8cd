"""Operations of calls, the units that are paired first, and the features that calls may share.

    module  encoder.fc1    Linear      a unit: one operation, whatever is recorded inside it
      api   F.linear                   inside a unit
    module  encoder        Encoder     no unit: it only holds others
    api     torch.relu                 a unit

Units are what is laid side by side first. Modules that hold others follow from what they hold, since two programs seldom
nest alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from ..model.pairs import Part
from ..model.records import Call
from ..model.sites import Kind
from ..operations.families import COMPOSITE, CONTAINERS, SHAPING, SOMETIMES_SHAPING, family_of, is_class, is_known
from ..operations.operands import operand_of
from .classes import Classes
from .features import Numbering
from .trees import IN, CallTree, Slot


def operation(call: Call) -> str:
    """Family of the operation that a call is, by its name or its module's class."""
    return family_of(call.site.type if call.site.kind is Kind.MODULE else call.site.name)


def is_operation(call: Call) -> bool:
    """Is it known what the call does? Of a module: is its class one operation, and no container?"""
    return is_class(call.site.type) if call.site.kind is Kind.MODULE else is_known(call.site.name)


def is_container(tree: CallTree, index: int) -> bool:
    """A module that only holds others: it says so, or nobody knows what it does as a whole and there are calls inside."""
    found = tree.containers.get(index)
    if found is None:
        found = tree.containers[index] = _only_holds(tree, index)
    return found


def _only_holds(tree: CallTree, index: int) -> bool:
    call = tree.calls[index]
    if call.site.kind is not Kind.MODULE:
        return False
    what = operation(call)
    inside = tree.children[index]
    if any(tree.calls[child].site.kind is Kind.MODULE for child in inside):
        return what not in COMPOSITE  # a user's `Stack` or `Attention` is not the operation of that name
    return what in CONTAINERS or (bool(inside) and not is_operation(call))


def units(tree: CallTree, below: Sequence[int], opened: Callable[[int], bool] = lambda index: False) -> list[int]:
    """The units among these calls and, where they only hold others or are to be opened, inside them; in order."""
    found: list[int] = []
    waiting = list(reversed(below))
    while waiting:
        index = waiting.pop()
        if is_container(tree, index) or (tree.children[index] and opened(index)):
            waiting.extend(reversed(tree.children[index]))
        else:
            found.append(index)
    return found


_RUNNING = frozenset(("running_mean", "running_var"))
_HELD = frozenset(("weight", "bias", "running_mean", "running_var"))


def operand(call: Call, slot: Slot, what: str | None = None) -> str:
    """Role of the tensor in a slot for the call's operation: `weight`, `input`."""
    return operand_of(what or operation(call), slot.part, slot.slot, function=call.site.name)


def is_parameter(tree: CallTree, index: int, slot: Slot, what: str | None = None) -> bool:
    """Does the network hold this tensor, rather than compute it or be given it?"""
    if slot.part is not Part.INPUT:
        return slot.part in IN
    tensor = tree.tensor(slot.tensor)
    if tensor.producer is not None or tree.calls[index].site.kind is Kind.MODULE:
        return False  # an argument of a module has no known producer where functions are not recorded
    return tensor.requires_grad or operand(tree.calls[index], slot, what) in _HELD


def main_parameter(tree: CallTree, index: int, what: str, into: Sequence[Slot] | None = None) -> Slot | None:
    """The largest of a call's parameters, by which it is known: whether its module holds it or it comes as an argument."""
    best: Slot | None = None
    most = (1, False)
    for slot in tree.inputs(index) if into is None else into:
        if slot.part is Part.BUFFER or not is_parameter(tree, index, slot, what):
            continue
        name = operand(tree.calls[index], slot, what)
        size = prod(tree.tensor(slot.tensor).spec.shape), name == "weight"
        if name not in _RUNNING and size > most:  # MindSpore calls running statistics parameters
            best, most = slot, size
    return best


def hands_on(tree: CallTree, index: int, classes: Classes, which: int) -> bool:
    """Does what comes out hold just what went in: a cast, a reshape, a dropout that is off?"""
    what = operation(tree.calls[index])
    if what in SHAPING:
        return True
    if what not in SOMETIMES_SHAPING:
        return False
    into = tree.inputs(index)
    return bool(into) and all(_same(out, into, classes, which, tree) for out in tree.outputs(index))


def _same(out: Slot, into: Sequence[Slot], classes: Classes, which: int, tree: CallTree) -> bool:
    number = classes.of(which, out.tensor)
    mark = tree.tensor(out.tensor).fingerprint
    return any(
        slot.tensor == out.tensor
        or (number >= 0 and number == classes.of(which, slot.tensor))
        or (mark is not None and mark == tree.tensor(slot.tensor).fingerprint)
        for slot in into
    )


# The columns of `describe`, and what each is worth in a sum: for agreement, against disagreement.
WORTH = {
    "operation": (3.0, 6.0),
    "handing": (0.0, 20.0),
    "out": (6.0, 0.3),
    "out there": (0.0, 30.0),
    "weight": (6.0, 0.0),
    "in": (3.0, 0.2),
    "out shape": (1.5, 4.0),
    "exact shape": (0.75, 0.0),
    "in shape": (0.5, 0.5),
    "weight shape": (1.0, 4.0),
    "name": (0.5, 0.0),
    "type": (2.0, 0.0),
}
COLUMNS = tuple(WORTH)
SHARED_WEIGHTS = 6.0
"""Against units with other parameters, where most parameters of the two sides are equal."""


def describe(
    tree: CallTree, index: int, handing: bool, classes: Classes, which: int, numberings: Sequence[Numbering]
) -> tuple[int, ...]:
    """A number for each of COLUMNS: equal for calls of both sides that agree in it, -1 where nothing is known.

    `handing` is whether the call only hands on what it is given.
    """
    call = tree.calls[index]
    what = operation(call)
    known = is_operation(call)
    into, out = tree.inputs(index), tree.outputs(index)
    weight = main_parameter(tree, index, what, into)
    flowing = [slot for slot in into if slot.part is Part.INPUT and slot != weight]
    given = _values(out, classes, which)
    shape = tree.tensor(out[0].tensor).spec.shape if out else ()
    things = (
        what if known else None,
        handing,
        given,
        # The values that come out, if the other side has them at all. A call that puts out other values than one whose results
        # are found elsewhere is not its partner; where both are found nowhere else, the two runs have parted before.
        given and tuple([number for number in given if classes.shared(number)]),
        _values([weight], classes, which) if weight else None,
        _values(flowing, classes, which),
        _size(shape) if out else None,
        shape if out else None,
        tuple(sorted([_size(tree.tensor(slot.tensor).spec.shape) for slot in flowing])) if flowing else None,
        _size(tree.tensor(weight.tensor).spec.shape) if weight else None,
        call.site.name.rpartition(".")[2].lower() if call.site.kind is Kind.MODULE else None,
        None if known else what,
    )
    return tuple([numbering.of(thing) for numbering, thing in zip(numberings, things, strict=True)])


def _values(slots: Sequence[Slot], classes: Classes, which: int) -> tuple[int, ...] | None:
    """The set of values in these slots; constants, which tell nothing, take no part."""
    if len(slots) == 1:
        number = classes.of(which, slots[0].tensor)
        return (number,) if number >= 0 else None
    return tuple(sorted({number for slot in slots if (number := classes.of(which, slot.tensor)) >= 0})) or None


@lru_cache(maxsize=65536)
def _size(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whatever the order of its axes."""
    return tuple(sorted(size for size in shape if size != 1))


def worth(shared_weights: bool) -> list[tuple[float, float]]:
    """The amounts that each of COLUMNS adds to a sum, and takes off it."""
    return [
        (weight, SHARED_WEIGHTS if name == "weight" and shared_weights else against)
        for name, (weight, against) in WORTH.items()
    ]
