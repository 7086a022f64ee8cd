"""Pairs of calls and tensors in two records.

    left                                  right
    forward/module:encoder.norm#0         forward/module:enc.ln#0              a Match: same parameters, same place
        input 0       f32[8, 16]              input 0        f32[8, 16]            a TensorPair
        weight        f32[16]                 gamma          f32[16]               a TensorPair: weight is called gamma
    forward/api:torch.relu#3              –                                    Alone: no partner, and why

A Match may hold several calls on a side: a fused operation beside the calls that it replaces. Then its tensors are those at
the edge of the region, where both sides have a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .words import Word

if TYPE_CHECKING:
    from .records import Call, Gradient
    from .tensors import Tensor


class Part(Word):
    """Which tensor of a call. `after` are arguments that it wrote to and did not return."""

    INPUT = "input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    OUTPUT = "output"
    AFTER = "after"
    OUTPUT_GRADIENT = "gradient of the output"
    INPUT_GRADIENT = "gradient of the input"
    PARAMETER_GRADIENT = "gradient of the parameter"

    @property
    def backward(self) -> bool:
        """Is it a gradient?"""
        return self in _BACKWARD

    @property
    def incoming(self) -> bool:
        """Does it come into the call, or into its backward, from elsewhere?"""
        return self in _INCOMING


_BACKWARD = frozenset({Part.OUTPUT_GRADIENT, Part.INPUT_GRADIENT, Part.PARAMETER_GRADIENT})
_INCOMING = frozenset({Part.INPUT, Part.PARAMETER, Part.BUFFER, Part.OUTPUT_GRADIENT})


def _no_values(tensor: int) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class Side:
    """One journal, as the loom sees it: calls in the order in which they began, and facts about their tensors."""

    framework: str
    calls: Sequence[Call]
    tensor: Callable[[int], Tensor]
    parameter_gradients: Sequence[Gradient] = ()
    values: Callable[[int], Any] = _no_values
    """The array of a tensor, None where it was not kept. It is asked for only where shapes leave a choice of layouts."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout in which the right tensor lies on the left one: its axes in this order, then the left one's shape.

    `Layout()` is as it is; `Layout((1, 0))` transposed; `Layout(None, True)` the same elements in another shape.
    """

    axes: tuple[int, ...] | None = None
    reshaped: bool = False

    def __str__(self) -> str:
        steps = [f"axes {', '.join(map(str, self.axes))}"] if self.axes else []
        return " and ".join([*steps, *(["reshaped"] if self.reshaped else [])]) or "as it is"


@dataclass(frozen=True, slots=True)
class Declared:
    """Placements of the tensors of a run on several ranks, as the user says them; what is not said is inferred.

    `tensors`: by a pattern of full names of parameters, paths of modules or addresses of calls (their results), one placement for
    each axis of the mesh: `shard(0)`, `shard(0) in 3 blocks`, `replicate`, `sum`, `mean`. The last pattern that fits counts.
    """

    mesh: tuple[int, ...] = ()
    """Shape of the mesh, the last axis running fastest; empty: as the process groups tell."""
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.mesh or self.tensors)


@dataclass(frozen=True, slots=True)
class TensorPair:
    """Two tensors that belong together: their numbers in their journals, and their slots (`0`, `kw.mask`, `weight`)."""

    part: Part
    left_slot: str
    right_slot: str
    left: int
    right: int
    layout: Layout = field(default_factory=Layout)
    because: str = ""
    """Empty where nothing needs to be said: the same slot of both."""
    count: int = 0
    """Of a gradient: which backward pass."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A tensor of a matched call, on one side only."""

    part: Part
    slot: str
    tensor: int
    because: str
    role: str = ""
    """Of an operand: its role in the operation (`bias`, `mask`, `weight`), where that is known."""


@dataclass(frozen=True, slots=True)
class Match:
    """Calls that belong together. One each as a rule; several where one side fuses calls that the other makes one by one."""

    left: tuple[Call, ...]
    right: tuple[Call, ...]
    because: str
    confidence: float = 1.0
    """1 if certain (same address, equal values), lower if inferred."""
    tensors: tuple[TensorPair, ...] = ()
    only_left: tuple[Stray, ...] = ()
    only_right: tuple[Stray, ...] = ()


class Bearing(Word):
    """Bearing of a call without a partner on the results of a run."""

    NONE = "no result depends on it"
    COMPARED = "all that comes of it is compared"
    THROUGH = "it goes into calls that are compared, as an operand that is not"
    OPEN = "a result that is not compared depends on it"


@dataclass(frozen=True, slots=True)
class Alone:
    """A call that has no partner, and why. `skipped`: it does not count as a difference.

    A cast or a reshape carries no meaning of its own; on a question to Python no result depends; what comes of a value that is
    computed twice is compared. A call whose bearing is `through` counts only if the results of the calls that take it differ.
    """

    call: Call
    because: str
    skipped: bool = False
    bearing: Bearing = Bearing.OPEN
    takers: tuple[int, ...] = ()
    """The calls with a partner that come first behind it, by their ids: its effect is seen in their results."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """All calls of two journals, each exactly once: in a match, or alone."""

    matches: tuple[Match, ...]
    only_left: tuple[Alone, ...]
    only_right: tuple[Alone, ...]
    parameter_gradients: tuple[TensorPair, ...] = ()
    stray_left: tuple[Stray, ...] = ()
    """Gradients of parameters that only one side has."""
    stray_right: tuple[Stray, ...] = ()
