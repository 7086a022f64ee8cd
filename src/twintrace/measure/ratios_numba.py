"""Ratios with something to divide by, compiled by numba: a thousand elements at a time.

    load()(count, left…, right…, single, counts, largest)

`kernel_numpy.py: relate` does the same in numpy, and the two are held together by tests/measure/test_ratios.py. Importing this
module imports numba; nothing is compiled before `load`.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types

from ..engine.intrinsics import as_float, bits
from .blocks_numba import (
    BLOCK,
    INFINITY,
    LENGTHS,
    SIDE,
    compiled,
    complex_errors,
    largest_bits,
    read,
    scratch,
)

_EPS32, _EPS64 = np.float32(2.0**-23), 2.0**-52
_ONE_1000_32, _FIVE_1000_32 = np.float32(0.001), np.float32(0.005)


@njit
def _set_aside_odd(left, right, error, complex_, left_parts, right_parts, count, counts):
    """Zeros in place of what is not finite; where both sides are not alike, the counts that follow are undone here."""
    for i in range(count):
        one, two = left[i], right[i]
        if np.isfinite(one) and np.isfinite(two):
            continue
        same = np.isnan(one) and np.isnan(two)
        if np.isinf(one) and np.isinf(two):
            same = one == two
            if complex_:
                same = left_parts[2 * i] == right_parts[2 * i] and left_parts[2 * i + 1] == right_parts[2 * i + 1]
        counts[0] += same - 1
        counts[1] += same - 1
        left[i] = 0.0
        right[i] = 0.0
        error[i] = 0.0


@njit(error_model="numpy")
def _single_ratios(left, right, count):
    """All in float32, where the values came from: each operation is rounded."""
    most = np.int32(0)
    one = 0
    five = 0
    for i in range(count):
        beneath, above = np.float32(left[i]), np.float32(right[i])
        shift = _EPS32 if beneath == 0 else np.float32(0)
        beneath, above = np.float32(beneath + shift), np.float32(above + shift)
        ratio = abs(np.float32(np.float32(above - beneath) / beneath))
        most = max(most, bits(ratio))
        one += ratio < _ONE_1000_32
        five += ratio < _FIVE_1000_32
    return np.float64(as_float(most)), one, five


@njit(error_model="numpy")
def _double_ratios(left, right, count):
    most = np.int64(0)
    one = 0
    five = 0
    for i in range(count):
        shift = _EPS64 if left[i] == 0 else 0.0
        beneath, above = left[i] + shift, right[i] + shift
        ratio = abs((above - beneath) / beneath)
        most = max(most, bits(ratio))
        one += ratio < 0.001
        five += ratio < 0.005
    return as_float(most), one, five


@njit(error_model="numpy")
def _modulus_ratios(left, error, count):
    most = np.int64(0)
    one = 0
    five = 0
    for i in range(count):
        ratio = error[i] / (left[i] if left[i] != 0 else _EPS64)
        most = max(most, bits(ratio))
        one += ratio < 0.001
        five += ratio < 0.005
    return as_float(most), one, five


def _relate(
    count,
    left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
    right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
    single, counts, largest,
):  # fmt: skip
    complex_ = left_parts == 2 or right_parts == 2
    left, right, error, left_raw, right_raw, ones, twos = scratch(left_shape, right_shape, complex_)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        read(
            left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
            start, size, left_raw, left, ones,
        )  # fmt: skip
        read(
            right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
            start, size, right_raw, right, twos,
        )  # fmt: skip
        if complex_:
            complex_errors(left_parts == 1, right_parts == 1, left, right, ones, twos, error, size)
        if max(largest_bits(left, size), largest_bits(right, size)) >= INFINITY:
            _set_aside_odd(left, right, error, complex_, ones, twos, size, counts)
        if complex_:
            most, one, five = _modulus_ratios(left, error, size)
        elif single:
            most, one, five = _single_ratios(left, right, size)
        else:
            most, one, five = _double_ratios(left, right, size)
        counts[0] += one
        counts[1] += five
        largest[0] = max(largest[0], most)


_SIGNATURE = (
    types.int64, *SIDE, *SIDE, types.boolean, LENGTHS, types.Array(types.float64, 1, "C"),
)  # fmt: skip


@functools.cache
def load():
    """The compiled kernel, from numba's cache on disk where it is there."""
    return compiled(_SIGNATURE, _relate)
