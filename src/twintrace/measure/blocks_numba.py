"""A block of two arrays as the compiled kernels want it: a thousand elements of both sides, as float64, in the first cache.

    left, right, error, … = scratch(…)      arrays for as long as a kernel runs
    here = read(*side, start, count, …)     elements of a side go there as float64; where their bytes lie
    compiled(signature, kernel)             from the cache on disk where it is there

A side is `(address, code, parts, size, table, shape, strides)`, as `values.py: side` makes it. One kernel serves all pairs of
element types: each side of a block is decoded to float64 (exactly, but for integers beyond 2^53), and everything else is the same
for all. So there are twelve short decoding loops instead of a kernel for each of 484 pairs.

Importing this module imports numba; nothing is compiled before `compiled`.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import numpy as np
from numba import njit, types

from ..engine import compiling
from ..engine.intrinsics import as_float, at, bits, half, modulus, put
from .formats import BF16, F16, F32, F64, I16, I32, I64, PAIRS, TABLE, U16, U32, U64

BLOCK = 1024  # elements: six scratch arrays of 8 KiB. Even, so that a byte with two numbers lies in one block
INFINITY = np.int64(0x7FF0000000000000)  # the bits of an infinity; those of a NaN are above
SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


@njit
def largest_bits(values, count):
    """Bits of the largest magnitude; above those of an infinity where there is a NaN."""
    most = np.int64(0)
    for i in range(count):
        most = max(most, bits(values[i]) & SIGN)
    return most


# Decoding ----------------------------------------------------------------------------------------------------------


@njit
def _plain(like, address, count, out):
    # An unsigned index: with a signed one numba looks for negative indices, and the loop is not vectorised.
    for i in range(np.uint64(count)):
        out[i] = np.float64(at(like, address, np.intp(i)))


@njit
def _decode(code, table, address, count, out):
    """`count` numbers from `address` on, as float64."""
    if code == F32:
        _plain(np.float32, address, count, out)
    elif code == F64:
        _plain(np.float64, address, count, out)
    elif code == BF16:
        for i in range(np.uint64(count)):
            out[i] = np.float64(as_float(np.int32(np.int32(at(np.int16, address, np.intp(i))) << 16)))
    elif code == F16:
        for i in range(np.uint64(count)):
            out[i] = half(at(np.int16, address, np.intp(i)))
    elif code == TABLE:
        for i in range(np.uint64(count)):
            out[i] = table[0, at(np.uint8, address, np.intp(i))]
    elif code == PAIRS:
        for i in range(np.uint64(count >> 1)):
            byte = at(np.uint8, address, np.intp(i))
            out[np.uint64(2) * i] = table[0, byte]
            out[np.uint64(2) * i + np.uint64(1)] = table[1, byte]
    elif code == I64:
        _plain(np.int64, address, count, out)
    elif code == U64:
        _plain(np.uint64, address, count, out)
    elif code == I32:
        _plain(np.int32, address, count, out)
    elif code == U32:
        _plain(np.uint32, address, count, out)
    elif code == I16:
        _plain(np.int16, address, count, out)
    elif code == U16:
        _plain(np.uint16, address, count, out)


@njit
def _copy_run(like, address, stride, count, target, offset):
    for i in range(count):
        put(like, target, offset + i, at(like, address + i * stride, 0))


@njit
def _gather(address, size, shape, strides, first, count, target):
    """Elements `first`, `first + 1`, … of an array with these strides, in row-major order, side by side at `target`."""
    last = shape.size - 1
    done = 0
    while done < count:
        place = first + done
        inner = place % shape[last]
        base = address + inner * strides[last]
        outer = place // shape[last]
        for axis in range(last - 1, -1, -1):
            base += (outer % shape[axis]) * strides[axis]
            outer //= shape[axis]
        run = min(shape[last] - inner, count - done)
        if size == 4:
            _copy_run(np.uint32, base, strides[last], run, target, done)
        elif size == 2:
            _copy_run(np.uint16, base, strides[last], run, target, done)
        elif size == 1:
            _copy_run(np.uint8, base, strides[last], run, target, done)
        elif size == 8:
            _copy_run(np.uint64, base, strides[last], run, target, done)
        else:
            for i in range(run):
                put(np.uint64, target, 2 * (done + i), at(np.uint64, base + i * strides[last], 0))
                put(np.uint64, target, 2 * (done + i) + 1, at(np.uint64, base + i * strides[last], 1))
        done += run


@njit
def _locate(address, code, size, shape, strides, first, count, scratch):
    """Where the elements from `first` on lie side by side: in the array itself, or gathered in `scratch`."""
    if code == PAIRS:
        first >>= 1
        count >>= 1
    if shape.size == 0:  # side by side already
        return address + first * size
    target = np.intp(scratch.ctypes.data)
    _gather(address, size, shape, strides, first, count, target)
    return target


# Complex numbers ---------------------------------------------------------------------------------------------------


@njit
def _spread(values, count, parts):
    """Real numbers as complex ones."""
    for i in range(count):
        parts[2 * i] = values[i]
        parts[2 * i + 1] = 0.0


@njit
def complex_errors(real_left, real_right, left, right, left_parts, right_parts, error, count):
    """Moduli of both sides and of their difference. A side that is real has no imaginary part."""
    if real_left:
        _spread(left, count, left_parts)
    if real_right:
        _spread(right, count, right_parts)
    for i in range(count):
        left[i] = modulus(left_parts[2 * i], left_parts[2 * i + 1])
        right[i] = modulus(right_parts[2 * i], right_parts[2 * i + 1])
        error[i] = modulus(right_parts[2 * i] - left_parts[2 * i], right_parts[2 * i + 1] - left_parts[2 * i + 1])


# A block -----------------------------------------------------------------------------------------------------------


# These two are inlined: called, they cost a kernel 5 % of its time, which goes into counting references to arrays.
@njit(forceinline=True)
def scratch(left_shape, right_shape, complex_):
    """(left, right, error, bytes of the left, of the right, parts of the left, of the right); the last four where there is need."""
    return (
        np.empty(BLOCK),
        np.empty(BLOCK),
        np.empty(BLOCK),
        np.empty(2 * BLOCK if left_shape.size else 0, np.uint64),
        np.empty(2 * BLOCK if right_shape.size else 0, np.uint64),
        np.empty(2 * BLOCK if complex_ else 0),
        np.empty(2 * BLOCK if complex_ else 0),
    )


@njit(forceinline=True)
def read(address, code, parts, size, table, shape, strides, start, count, raw, values, pairs):
    """Decode `count` elements of a side from `start` on into `values`, complex ones into `pairs`, and say where their bytes lie."""
    here = _locate(address, code, size, shape, strides, start, count, raw)
    _decode(code, table, here, parts * count, pairs if parts == 2 else values)
    return here


# Compiling ---------------------------------------------------------------------------------------------------------

# Read-only on purpose: numba lends a writable array to it as well, so one specialisation serves both.
_TABLES = types.Array(types.float64, 2, "C", readonly=True)
LENGTHS = types.Array(types.int64, 1, "C")
SIDE = (types.intp, types.int64, types.int64, types.int64, _TABLES, LENGTHS, LENGTHS)


def compiled(signature, function):
    """The compiled kernel, from the cache on disk where it is there."""
    return compiling.compiled(signature, function, error_model="numpy")
