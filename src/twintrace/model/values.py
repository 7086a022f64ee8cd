"""Arguments and results as they were written in the call: nested, typed, with the tensors taken out.

    F.conv2d(x, w, padding=(1, 1))      args   (TensorRef(3), TensorRef(1))
                                        kwargs {"padding": Nest("tuple", (("0", 1), ("1", 1)))}

None, bool, int, float, complex and str stand for themselves. A `slot` is the way to one leaf: `0`, `kw.padding.1`,
`hidden_states.3`; the same notation is used for the gradient that belongs to that leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor in an argument's place: the id of its line in the same journal."""

    id: int


@dataclass(frozen=True, slots=True)
class Nest:
    """A container: `kind` is list, tuple, dict, set or the class name of a namedtuple, dataclass or ModelOutput."""

    kind: str
    items: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """A value that has a meaning and no Python equal here: a dtype, a device, a slice, an enum, a generator.

    `kind` says which; `opaque` means that only its text could be kept.
    """

    kind: str
    text: str


Value: TypeAlias = "bool | int | float | complex | str | TensorRef | Nest | Token | None"


def leaves(value: Value, slot: str = "") -> Iterator[tuple[str, Value]]:
    """`(slot, leaf)` for every leaf below `value`, in order. A bare leaf has the slot it was called with."""
    if isinstance(value, Nest):
        for key, item in value.items:
            yield from leaves(item, f"{slot}.{key}" if slot else key)
    else:
        yield slot, value


def mapped(value: Value, change: Callable[[Value, str], Value], slot: str = "") -> Value:
    """The same with every leaf changed: `change` is given the leaf and its slot, as `leaves` has it."""
    if isinstance(value, Nest):
        items = ((key, mapped(item, change, f"{slot}.{key}" if slot else key)) for key, item in value.items)
        return Nest(value.kind, tuple(items))
    return change(value, slot)


def tensor_slots(args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> Iterator[tuple[str, int]]:
    """`(slot, tensor id)` of every tensor among a call's arguments: `0`, `1.2`, `kw.mask`."""
    for position, value in enumerate(args):
        if isinstance(value, TensorRef):  # as most are
            yield str(position), value.id
            continue
        for slot, leaf in leaves(value, str(position)):
            if isinstance(leaf, TensorRef):
                yield slot, leaf.id
    for name, value in kwargs.items():
        for slot, leaf in leaves(value, f"kw.{name}"):
            if isinstance(leaf, TensorRef):
                yield slot, leaf.id
