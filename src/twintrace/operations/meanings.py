"""Meaning of a recorded call: one operation, its arguments by name, defaults filled in, one convention for all frameworks.

    torch     F.gelu(x)                                  gelu(input=x, approximate="none")
    mindspore nn.GELU()(x)                               gelu(input=x, approximate="tanh")
    mindspore nn.MaxPool2d(3, 2, pad_mode="same")(x)     max_pool(input=x, kernel_size=(3, 3), padding=((0, 1), (0, 1)), …)

Two calls whose meanings are equal compute the same function; where they are not, `different_arguments` says in which argument.
Nothing here computes: `kernels/` has the float64 computation of each operation, under the same name and with the same
argument names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..model.records import Call
from ..model.tensors import Spec


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument: its number in the journal of its side."""

    tensor: int


Argument: TypeAlias = "Operand | bool | int | float | complex | str | slice | tuple[Argument, ...] | None"
"""Containers of every kind are tuples; a dtype is a string (`f32`); what has no value here is left out of a meaning."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One operation with all of its arguments, and where its results went.

    `operation` is a key of `kernels.KERNELS`, or a dotted PyTorch name that is called as it stands (`torch.cumsum`).
    `results` maps the number of a recorded tensor to the key of the result that it holds: the position among the flattened
    results (`0`, `1`), or the name of the argument that the call wrote to (`running_mean`).
    """

    operation: str
    arguments: Mapping[str, Argument]
    results: Mapping[int, int | str] = field(default_factory=dict)
    called: str = ""
    """The name under which the call was made, for messages."""
    _tensors: Mapping[str, tuple[tuple[str, Operand], ...]] = field(init=False, repr=False, compare=False)
    """Paths and operands by the argument that they are in: an optimizer's step has hundreds, and is asked for each parameter."""

    def __post_init__(self) -> None:
        held = {name: tuple(_operands(name, value)) for name, value in self.arguments.items()}
        object.__setattr__(self, "_tensors", {name: found for name, found in held.items() if found})

    def operands(self) -> Iterator[tuple[str, Operand]]:
        """`(path, operand)` of every tensor argument: `input`, `tensors.1`."""
        return itertools.chain.from_iterable(self._tensors.values())

    def settings(self) -> dict[str, Argument]:
        """The arguments that are not tensors; a container that holds a tensor is none."""
        return {name: value for name, value in self.arguments.items() if name not in self._tensors}


def _operands(path: str, value: Argument) -> Iterator[tuple[str, Operand]]:
    if isinstance(value, Operand):
        yield path, value
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _operands(f"{path}.{index}", item)


SpecOf: TypeAlias = Callable[[int], Spec]
"""Shape and element type of a recorded tensor, by its number: effective padding and axes depend on them."""

Reading: TypeAlias = Callable[[Call, SpecOf], "Meaning | None"]
"""Makes the meaning of one recorded call; None where it cannot be told (an attribute that was not recorded)."""


def equal_arguments(left: Argument, right: Argument) -> bool:
    """True if two arguments have the same value. Numbers are compared as both sides hold them: 1 equals 1.0, True does not."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(equal_arguments, left, right))
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right or math.isclose(left, right, rel_tol=1e-7) or (left != left and right != right)
    return bool(left == right)


def different_arguments(left: Meaning, right: Meaning) -> dict[str, tuple[Argument, Argument]]:
    """Settings that differ between two meanings of one operation, by the name of the argument. Tensors are not compared."""
    one, two = left.settings(), right.settings()
    return {
        name: (one[name], two[name]) for name in one.keys() & two.keys() if not equal_arguments(one[name], two[name])
    }


FRAMEWORKS_OWN = frozenset(("eps_added",))
"""Arguments that no user can set: where a framework's optimizer adds its epsilon."""


def told(value: Argument) -> str:
    """An argument as it would be written."""
    if isinstance(value, Operand):
        return "a tensor"
    if isinstance(value, tuple):
        return f"({', '.join(map(told, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        ends = ["" if end is None else told(end) for end in (value.start, value.stop)]
        return ":".join(ends if value.step in (None, 1) else [*ends, told(value.step)])
    if isinstance(value, float) and math.isfinite(value):
        short = f"{value:.7g}"  # a number that was held in float32 is 0.8, not 0.800000011920929
        return repr(float(short)) if math.isclose(float(short), value, rel_tol=1e-7) else repr(value)
    return repr(value)
