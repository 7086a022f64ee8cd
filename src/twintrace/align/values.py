"""Evidence that two tensors hold the same values, without opening either.

    alike(left, right)    2   the same bits in the same order, of which few tensors have the like; without bits, the same statistics
                          1   statistics that agree to rounding, in whatever order the elements lie
                          0   nothing can be said: no statistics, or a constant, which every second bias is
                         -1   statistics that do not agree

A permuted weight has another fingerprint and the same minimum, maximum, mean and norm. So the statistics of two tensors are
compared whenever their fingerprints differ, and shapes play no part here.
"""

from __future__ import annotations

import enum
import math

from ..model.tensors import Statistics, Tensor

_HALF = frozenset(("f16", "c32"))
_COARSE = frozenset(("bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn_x2"))
ROUNDING = 2e-4
"""Error that another order of additions leaves in a deep network in f32, relative to the largest element."""
HALF_ROUNDING = 4e-3
"""The same in 16 bits of which 11 are significant."""
COARSE_ROUNDING = 3e-2
"""The same in 16 bits of which 8 are significant, or in fewer."""


def numel(tensor: Tensor) -> int:
    """Number of elements."""
    return math.prod(tensor.spec.shape)


def alike(left: Tensor, right: Tensor) -> int:
    """2 the same bits, 1 close, 0 unknown, -1 different (see above)."""
    one, two = left.statistics, right.statistics
    if left.fingerprint is not None and left.fingerprint == right.fingerprint and left.spec.dtype == right.spec.dtype:
        return 0 if one is not None and is_constant(one, numel(left)) else 2
    if one is None or two is None:
        return 0
    size = numel(left)
    unknown = left.fingerprint is None or right.fingerprint is None
    if unknown and one.order is not None and one.order == two.order and one == two and left.spec == right.spec:
        return 0 if is_constant(one, size) else 2  # the sums that mind the order stand for the bits
    if left.spec.shape != right.spec.shape and size != numel(right):
        return -1
    if not close(one, two, size, tolerance(left, right), counted=not (left.is_rough or right.is_rough)):
        return -1
    filled = (fill_of(one, size), fill_of(two, size)) if _may_be_filled(one) else (Fill.NONE, Fill.NONE)
    if Fill.NONE not in filled:
        return -1 if filled[0] is not filled[1] else 0 if filled[0] is Fill.MIXED else 1
    return 0 if is_constant(one, size) else 1


def tolerance(left: Tensor, right: Tensor) -> float:
    """Largest difference of two statistics that is allowed, relative to the largest element."""
    return max(rounding(left), rounding(right))


def rounding(tensor: Tensor) -> float:
    """Tolerance of the statistics of a tensor for rounding, relative to its largest element."""
    dtype = tensor.spec.dtype
    return COARSE_ROUNDING if dtype in _COARSE else HALF_ROUNDING if dtype in _HALF else ROUNDING


def in_other_places(left: Tensor, right: Tensor) -> bool:
    """True if the sums that depend on the order of the elements are further apart than rounding makes them."""
    one, two = left.statistics, right.statistics
    if one is None or two is None or one.order is None or two.order is None or not one.norm or not two.norm:
        return False
    gap = max(abs(mine - other) for mine, other in zip(one.order, two.order, strict=True))
    # The weights of these sums have a mean square of 1/9.
    return gap > tolerance(left, right) / 3 * max(one.norm, two.norm)


class Fill(enum.Enum):
    """True if a fill value decides all statistics of a tensor: scores of which half are -1e4 have the norm of their mask."""

    NONE = 0
    PURE = 1  # nothing but zeros and the fill value: a mask
    MIXED = 2  # other numbers between them, of which the statistics say nothing


_FILL = 1e3
"""The least magnitude of a fill value. Activations are smaller; masks are -1e4 (16 bits), -65504, -1e9 or -3.4e38."""
_NEXT_TO_NOTHING = 1e-2
"""Largest size of the other extreme, and of the rest of the sum of squares, beside the fill value."""


def _may_be_filled(statistics: Statistics) -> bool:
    return statistics.min is not None and (statistics.min <= -_FILL or (statistics.max or 0) >= _FILL)


def fill_of(statistics: Statistics, size: int) -> Fill:
    """Is one extreme a fill value beside which nothing else counts?

    If all elements are 0 or m, the sum of squares is the sum times m. Other elements change that by as much as they count.
    """
    if not _may_be_filled(statistics):
        return Fill.NONE
    scale = scale_of(statistics)
    if statistics.mean is None or statistics.norm is None or not size:
        return Fill.NONE
    assert statistics.min is not None
    assert statistics.max is not None
    small = min(abs(float(statistics.min)), abs(float(statistics.max)))
    finite = size - statistics.nan - statistics.posinf - statistics.neginf
    total = abs(statistics.mean) / scale * finite
    squares = (statistics.norm / scale) ** 2
    if small > _NEXT_TO_NOTHING * scale or abs(squares - total) > _NEXT_TO_NOTHING * squares:
        return Fill.NONE
    filled = finite - statistics.zero  # if it is a mask: as many times the fill value's square is the sum of squares
    return Fill.PURE if small == 0.0 and abs(squares - filled) < 0.5 else Fill.MIXED


def is_constant(statistics: Statistics, size: int) -> bool:
    """All elements are the same, or none is finite: equality with another tensor means little.

    A single number tells something (a loss) unless it is one that is written down in programs: 0, 1, -1e9, 0.5.
    """
    if statistics.min is None or statistics.max is None:
        return True
    if size != 1:
        return statistics.min == statistics.max
    return isinstance(statistics.min, int) or float(f"{statistics.min:.3g}") == statistics.min


def scale_of(statistics: Statistics) -> float:
    """The largest magnitude among the finite elements."""
    if statistics.min is None or statistics.max is None:
        return 0.0
    return max(abs(float(statistics.min)), abs(float(statistics.max)))


def close(one: Statistics, two: Statistics, size: int, tolerance: float, *, counted: bool) -> bool:
    """Do two statistics of as many elements agree to rounding? `counted`: were those that are not finite counted, on both sides?"""
    if counted and (one.nan, one.posinf, one.neginf) != (two.nan, two.posinf, two.neginf):
        return False
    if one.min is None or two.min is None:
        return one.min is two.min
    bound = tolerance * max(scale_of(one), scale_of(two))
    for first, second in ((one.min, two.min), (one.max, two.max), (one.mean, two.mean)):
        if first is None or second is None:  # some tools leave out the mean of integers
            continue
        if not abs(float(first) - float(second)) <= bound:
            return False
    if one.norm is None or two.norm is None:
        return True
    return abs(one.norm - two.norm) <= tolerance * max(one.norm, two.norm, 1e-30)
