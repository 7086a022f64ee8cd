"""The first test of a result, compiled by numba: distances, limits and their sums in one walk over the elements.

    load()(got, want, error, unit, least, largest, saturated, sums, places)

gives the largest ratio, its place, and the numbers of elements that are beyond the limit and that are finite.

`sums` are of the squares of distances, sizes and limits; `places` those of the elements beyond, as many as it has room for.
`scores._Parts.add` does the same in torch, and `tests/operations/test_scores.py` holds the two together. Importing this module
imports numba; nothing is compiled before `load`.

A block is walked by a short loop that LLVM vectorises, without a division: it says whether one of its elements is beyond the
largest ratio so far. Few blocks have one, and are walked again, element by element.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types

from ..engine.compiling import compiled

_BLOCK = 1024
_F64 = types.Array(types.float64, 1, "C")


@njit(fastmath={"reassoc", "contract", "nsz"})
def _walk(got, want, error, first, last, unit, least, ratio):
    """Sums of squares, and the number of elements beyond a ratio; NaN is beyond any."""
    apart = wanted = limits = 0.0
    beyond = 0
    bounded = error.size > 0
    for i in range(first, last):
        size = abs(want[i])
        limit = size * unit + least
        if bounded:
            limit += error[i]
        distance = abs(got[i] - want[i])
        beyond += not distance <= ratio * limit
        apart += distance * distance
        wanted += size * size
        limits += limit * limit
    return apart, wanted, limits, beyond


@njit(error_model="numpy")  # 0 / 0 is NaN
def _ratio(got, want, limit, unit, largest, saturated):
    """Distance of one element over its limit, and whether it has one: not where something is infinite or NaN."""
    ratio = abs(got - want) / limit
    if ratio <= 1.0:
        return ratio, True
    equal = got == want
    reach = abs(want) + limit
    alike = np.sign(got) == np.sign(want)
    overflow = np.isinf(got) and reach >= largest * (1 - unit) and alike
    full = abs(got) >= saturated and reach >= largest and alike
    excused = (np.isnan(got) and np.isnan(want)) or overflow or full
    if excused or equal:
        return 0.0, equal and not np.isinf(want)
    if not (np.isfinite(got) and np.isfinite(want)):
        return np.inf, False
    return (0.0 if np.isnan(ratio) else ratio), True


def _score(got, want, error, unit, least, largest, saturated, sums, places):
    count = got.size
    worst, place, beyond, finite = -1.0, 0, 0, 0
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        apart, wanted, limits, more = _walk(got, want, error, first, last, unit, least, min(max(worst, 0.0), 1.0))
        if more == 0 and worst >= 0:
            sums[0] += apart
            sums[1] += wanted
            sums[2] += limits
            finite += last - first
            continue
        for i in range(first, last):
            limit = abs(want[i]) * unit + least
            if error.size > 0:
                limit += error[i]
            ratio, regular = _ratio(got[i], want[i], limit, unit, largest, saturated)
            if ratio > 1:
                if beyond < places.size:
                    places[beyond] = i
                beyond += 1
            if ratio > worst:
                worst, place = ratio, i
            if regular:
                finite += 1
                sums[0] += abs(got[i] - want[i]) ** 2
                sums[1] += abs(want[i]) ** 2
                sums[2] += limit**2
    return worst, place, beyond, finite


@functools.cache
def load():
    """The compiled kernel."""
    number = types.float64
    return compiled((_F64, _F64, _F64, number, number, number, number, _F64, types.Array(types.int64, 1, "C")), _score)
