"""Rounding that is allowed between two results computed in float64, beside that of float64 itself.

coarsening(sides, left, right, bound)                  factor for results of different precisions: 2**16 of bf16 beside f32
rounding_of_casts(sides, left, right, bound)           unit of the types that a value was cast between, where that is all
takes_saved(sides, left, right)                        True for kernels that begin with what a forward pass has saved
effect_of_constants(recomputation, which, part, …)     effect of constants in float32 and of leaves that were not compared
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..model.pairs import Layout
from ..model.sites import Kind, Phase
from ..model.tensors import UNITS
from .beginnings import Sides, is_constant, moved_from
from .differences import laid_out, spread
from .evaluation import SINGLE
from .meanings import Argument, Meaning
from .sides import Bound, Slice
from .traits import traits_of

if TYPE_CHECKING:
    from .recomputation import Recomputation

Tensor = torch.Tensor

_LEAF_UNITS = 4.0
"""Units by which leaves may differ before they count as different; see `judge.values`."""
_WOBBLE = 4.0
"""Multiple of the effect of rounded constants that is no difference in meaning: their roundings add up differently."""


def coarsening(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> float:
    """Factor by which rounding is coarser than float32 where the two results have different precisions, and what they are made
    of has, too: each side has rounded its constants to its own. A norm that is written out in float32 in a bfloat16 run
    is made of the same values.
    """
    taken = [
        (sides[0].dtype_before_casts(bound[number].left), sides[1].dtype_before_casts(number))
        for number in right.edge
        if number in bound
    ]
    # Complex numbers of two f32 have the precision of f32.
    if taken and all(one == two or (one in UNITS and UNITS[one] == UNITS.get(two)) for one, two in taken):
        return 1.0
    one, two = (
        UNITS.get(side.tensor(part.tensor).spec.dtype, 0.0) for side, part in zip(sides, (left, right), strict=True)
    )
    return max(1.0, max(one, two) / SINGLE) if one != two else 1.0


def rounding_of_casts(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> float:
    """Rounding of values of different element types that both sides do nothing with but cast and move them: the left's value
    need not be one that the right's type can hold. Zero where they compute something.
    """
    for side, part in zip(sides, (left, right), strict=True):
        kinds = [traits_of(meaning) for call in part.calls if (meaning := side.meaning(call)) is not None]
        if not kinds or not all(kind.casts or kind.moves for kind in kinds):
            return 0.0
    types = [
        {sides[1].tensor(number).spec.dtype, sides[0].tensor(bound[number].left).spec.dtype}
        for number in right.edge
        if number in bound
    ]
    return max((UNITS.get(dtype, 0.0) for pair in types if len(pair) > 1 for dtype in pair), default=0.0)


def takes_saved(sides: Sides, left: Slice, right: Slice) -> bool:
    """True if kernels of a backward pass, other ones on each side, begin with values that the forward pass has saved.

    A mean, a deviation and a result are functions of each other but for their rounding, and each side begins with others of them:
    that rounding lies between two ways to the same gradient.
    """
    if len(left.calls) == len(right.calls) == 1 and left.calls[0].site.name == right.calls[0].site.name:
        return False
    return any(
        call.site.kind is Kind.OP and call.site.phase is Phase.BACKWARD for part in (left, right) for call in part.calls
    ) and any(
        (maker := side.maker(number)) is not None and maker.site.phase is Phase.FORWARD
        for side, part in zip(sides, (left, right), strict=True)
        for number in part.edge
    )


def effect_of_constants(
    recomputation: Recomputation,
    which: int,
    part: Slice,
    values: Callable[[int], Tensor],
    result: Tensor,
    changed: Sequence[Meaning] | None,
    compared: Collection[int],
    layout: Layout,
    converted: bool,
) -> Tensor:
    """Effect of holding constants in float32, and of leaves that were not compared being a few units off.

    Two ways to write one function hold different constants: a table of sines here, its formula there; √(2/π) or 0.7978845608.
    """
    side = recomputation.sides[which]
    own = recomputation.meanings(which, part) if changed is None else changed
    meanings = [_held_in_single(item) for item in own]
    generator = torch.Generator().manual_seed(0)

    def moved(number: int) -> Tensor:
        value = values(number)
        if number < 0 or number in compared or not (value.is_floating_point() or value.is_complex()):
            return value
        if is_constant(side, number) or moved_from(side, number, compared):
            return value
        unit = UNITS.get(side.tensor(number).spec.dtype, 0.0)
        units = 1.0 if converted and unit > SINGLE else _LEAF_UNITS  # computed in float32, and rounded once
        noise = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1
        if value.is_complex():
            noise = torch.complex(noise, 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1)
        return value * (1 + units * unit * noise)

    other = recomputation.result(which, part, moved, meanings)
    if other.shape != result.shape and laid_out(other, layout, result.shape).shape != result.shape:
        # A number that decides on the shape: the factor of an interpolation.
        other = recomputation.result(which, part, moved, own)
    apart = (laid_out(other.to(result.dtype), layout, result.shape) - result).abs().nan_to_num(0.0, 0.0, 0.0)
    return _WOBBLE * (apart + spread(apart, result))


def _held_in_single(meaning: Meaning) -> Meaning:
    """The same with its numbers rounded to float32."""
    return replace(meaning, arguments={name: _single(value) for name, value in meaning.arguments.items()})


def _single(value: Argument) -> Argument:
    if isinstance(value, float) and math.isfinite(value):
        return float(torch.tensor(value, dtype=torch.float32)) if abs(value) < 3e38 else value
    if isinstance(value, tuple):
        return tuple(map(_single, value))
    return value
