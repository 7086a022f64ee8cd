"""The kernels behind `digest`, compiled by numba: one pass over memory, in blocks that stay in the first cache.

    load("f32")(address, nbytes, True)              (low, high, mean, norm, finite, nan, posinf, neginf, zero, H, L, one, two)
    load("bytes")(tables, address, nbytes, True)    the same of one-byte types; `tables` are the values of the 256 codes
    load("fingerprint")(address, nbytes)            (H, L)
    load("blocks")(address, nbytes, first)          the sums of some of its blocks
    load("sample")(address, nbytes)                 a word
    load("gather")(address, runs, size, target)     elements along the runs, brought together

What the numbers mean is said in `digest.py`, which holds the same thing in numpy; the two are held together by
tests/store/test_digest.py. Importing this module imports numba; nothing is compiled before `load`.

Each block is walked by several short loops, because LLVM vectorises three simple loops and gives up on one rich one.
Memory that is in no cache is asked for some blocks ahead: otherwise the first loop over a block waits for it, and the
others have nothing to wait for, which together takes half as long again. Casts such as `like(min(...))` look idle and
are not: numba widens every integer to 64 bits, and without the cast back a loop over int32 runs at half the speed.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types

from ..engine.compiling import compiled
from ..engine.intrinsics import as_float, at, bits, half, modulus
from ..model.fingerprints import GROUP, WEIGHTS
from .digest import BLOCK
from .fingerprint_numba import fingerprint, gather, group_weights, mix, reach, sample, seal, sum_blocks

_WEIGHTS = np.array(WEIGHTS)


# Real floats: order and classes from the bits, sums from the values ------------------------------------------------
#
# The bits of a float, read as a signed integer and with the lower bits inverted below zero, order like its value. So
# minimum and maximum are integer ones, which vectorise without promises about NaN, and their two ends tell whether a
# block has anything that is not finite.


@njit
def _extent(like, top, address, count):
    low = like(top)
    high = like(-top - 1)
    zero = like(0)
    for i in range(count):
        bits = at(like, address, i)
        key = like(bits ^ top) if bits < 0 else bits
        low = like(min(low, key))
        high = like(max(high, key))
        zero = like(zero + ((bits & top) == 0))
    return low, high, zero


@njit
def _extent_finite(like, top, infinity, address, count):
    low = like(top)
    high = like(-top - 1)
    nan = like(0)
    posinf = like(0)
    neginf = like(0)
    for i in range(count):
        bits = at(like, address, i)
        key = like(bits ^ top) if bits < 0 else bits
        magnitude = like(bits & top)
        finite = magnitude < infinity
        low = like(min(low, key if finite else like(top)))
        high = like(max(high, key if finite else like(-top - 1)))
        nan = like(nan + (magnitude > infinity))
        posinf = like(posinf + (key == infinity))
        neginf = like(neginf + (key == -infinity - 1))
    return low, high, nan, posinf, neginf


# Which number the bits are. Numbers and not functions, because numba cannot cache a kernel that is handed a function;
# they are constants once inlined, so no comparison is left in a loop.
_F64, _F32, _F16, _BF16, _WHOLE = range(5)


@njit
def _value(kind, bits):
    if kind == _WHOLE:
        return np.float64(bits)
    if kind == _F64:
        return as_float(np.int64(bits))
    if kind == _F32:
        return np.float64(as_float(np.int32(bits)))
    if kind == _BF16:
        return np.float64(as_float(np.int32(np.int32(bits) << 16)))
    return half(bits)


# reassoc lets LLVM keep several partial sums; no flag here says that NaN or Inf cannot occur.
@njit(fastmath={"reassoc", "nsz", "contract"})
def _sums(like, kind, address, count, weights):
    total = 0.0
    squares = 0.0
    order = 0.0
    for i in range(count):
        v = _value(kind, at(like, address, i))
        total += v
        squares += v * v
        order += v * at(np.float64, weights, i)
    return total, squares, order


@njit(fastmath={"reassoc", "nsz", "contract"})
def _sums_finite(like, kind, top, infinity, address, count, weights):
    total = 0.0
    squares = 0.0
    order = 0.0
    for i in range(count):
        bits = at(like, address, i)
        v = _value(kind, bits) if like(bits & top) < infinity else 0.0
        total += v
        squares += v * v
        order += v * at(np.float64, weights, i)
    return total, squares, order


@njit
def _mean_and_norm(total, squares, finite):
    return (total / finite + 0.0 if finite else 0.0), np.sqrt(squares)


@njit
def _reals(like, kind, size, top, infinity, address, nbytes, wanted):
    a = np.uint64(0)
    b = np.uint64(0)
    low = like(top)
    high = like(-top - 1)
    total = 0.0
    squares = 0.0
    nan = 0
    posinf = 0
    neginf = 0
    zero = 0
    one = 0.0
    two = 0.0
    weights = _WEIGHTS.ctypes.data
    for start in range(0, nbytes, BLOCK):
        block, length = reach(address, start, nbytes)
        if wanted:
            a, b = mix(block, start, length, a, b)
        count = length // size
        block_low, block_high, zeros = _extent(like, top, block, count)
        place = weights + 8 * (start // size % GROUP)
        if block_low < -infinity or block_high >= infinity:
            block_low, block_high, nans, posinfs, neginfs = _extent_finite(like, top, infinity, block, count)
            sums = _sums_finite(like, kind, top, infinity, block, count, place)
            nan += nans
            posinf += posinfs
            neginf += neginfs
        else:
            sums = _sums(like, kind, block, count, place)
        first, second = group_weights(start // size // GROUP)
        low = like(min(low, block_low))
        high = like(max(high, block_high))
        zero += zeros
        total += sums[0]
        squares += sums[1]
        one += first * sums[2]
        two += second * sums[2]
    finite = nbytes // size - nan - posinf - neginf
    mean, norm = _mean_and_norm(total, squares, finite)
    upper, lower = seal(nbytes, a, b)
    # -1 is the key of negative zero, whose sign is dropped.
    least = _value(kind, like(0 if low == -1 else low ^ top) if low < 0 else low)
    most = _value(kind, like(0 if high == -1 else high ^ top) if high < 0 else high)
    return least, most, mean, norm, finite, nan, posinf, neginf, zero, upper, lower, one, two


# Complex: the modulus is never negative, so its bits order like integers as they are -------------------------------


@njit
def _modulus(kind, real, imaginary):
    if kind != _F64:
        return np.sqrt(real * real + imaginary * imaginary)
    return modulus(real, imaginary)


@njit(fastmath={"reassoc", "nsz"})
def _complex_block(like, kind, top, infinity, address, count, weights):
    low = np.int64(0x7FFFFFFFFFFFFFFF)
    high = np.int64(-1)
    total = 0.0
    order = 0.0
    squares = 0.0
    nan = 0
    inf = 0
    zero = 0
    for i in range(count):
        real = at(like, address, 2 * i)
        imaginary = at(like, address, 2 * i + 1)
        larger = max(like(real & top), like(imaginary & top))
        m = _modulus(kind, _value(kind, real), _value(kind, imaginary)) if larger < infinity else 0.0
        key = bits(m)
        beyond = key == 0x7FF0000000000000  # c128 only: finite parts, and yet too far out for a float64
        finite = larger < infinity and not beyond
        m = m if finite else 0.0
        low = min(low, key if finite else np.int64(0x7FFFFFFFFFFFFFFF))
        high = max(high, key if finite else np.int64(-1))
        total += m
        squares += m * m
        order += m * at(np.float64, weights, i)
        nan += larger > infinity
        inf += larger == infinity or beyond
        zero += larger == 0
    return low, high, total, squares, nan, inf, zero, order


@njit
def _complexes(like, kind, size, top, infinity, address, nbytes, wanted):
    a = np.uint64(0)
    b = np.uint64(0)
    low = np.int64(0x7FFFFFFFFFFFFFFF)
    high = np.int64(-1)
    total = 0.0
    squares = 0.0
    nan = 0
    posinf = 0
    zero = 0
    one = 0.0
    two = 0.0
    weights = _WEIGHTS.ctypes.data
    for start in range(0, nbytes, BLOCK):
        block, length = reach(address, start, nbytes)
        if wanted:
            a, b = mix(block, start, length, a, b)
        least, most, block_total, block_squares, nans, infs, zeros, order = _complex_block(
            like, kind, top, infinity, block, length // size, weights + 8 * (start // size % GROUP)
        )
        first, second = group_weights(start // size // GROUP)
        one += first * order
        two += second * order
        low = min(low, least)
        high = max(high, most)
        total += block_total
        squares += block_squares
        nan += nans
        posinf += infs
        zero += zeros
    finite = nbytes // size - nan - posinf
    mean, norm = _mean_and_norm(total, squares, finite)
    upper, lower = seal(nbytes, a, b)
    return as_float(low), as_float(high), mean, norm, finite, nan, posinf, 0, zero, upper, lower, one, two


# Integers of two bytes and more ------------------------------------------------------------------------------------


@njit
def _integer_extent(like, least, most, address, count):
    low = like(most)
    high = like(least)
    zero = like(0)
    for i in range(count):
        v = at(like, address, i)
        low = like(min(low, v))
        high = like(max(high, v))
        zero = like(zero + like(v == 0))
    return low, high, zero


@njit
def _integers(like, size, least, most, address, nbytes, wanted):
    a = np.uint64(0)
    b = np.uint64(0)
    low = like(most)
    high = like(least)
    total = 0.0
    squares = 0.0
    zero = 0
    one = 0.0
    two = 0.0
    weights = _WEIGHTS.ctypes.data
    for start in range(0, nbytes, BLOCK):
        block, length = reach(address, start, nbytes)
        if wanted:
            a, b = mix(block, start, length, a, b)
        count = length // size
        block_low, block_high, zeros = _integer_extent(like, least, most, block, count)
        place = weights + 8 * (start // size % GROUP)
        block_total, block_squares, order = _sums(like, _WHOLE, block, count, place)
        first, second = group_weights(start // size // GROUP)
        one += first * order
        two += second * order
        low = like(min(low, block_low))
        high = like(max(high, block_high))
        zero += np.int64(zeros)
        total += block_total
        squares += block_squares
    finite = nbytes // size
    mean, norm = _mean_and_norm(total, squares, finite)
    upper, lower = seal(nbytes, a, b)
    return low, high, mean, norm, finite, 0, 0, 0, zero, upper, lower, one, two


# Single bytes: count the 256 codes, then look up what each means ---------------------------------------------------


@njit
def _count_codes(address, size, counts):
    # Four rows: equal neighbours, as in masks, would otherwise wait for each other's store.
    for i in range(size >> 3):
        word = at(np.uint64, address, i)
        for lane in range(8):
            code = (word >> np.uint64(8 * lane)) & np.uint64(0xFF)  # unsigned: no look at negative indices
            counts[np.uint64(lane & 3), code] += 1
    for i in range(size & ~7, size):
        counts[0, at(np.uint8, address, i)] += 1


@njit(fastmath={"reassoc", "nsz", "contract"})
def _code_order(address, count, weights, per, row):
    """The values of the codes, zeros for those that are not finite, times the weights of their places: every `per`-th."""
    order = 0.0
    for i in range(count):
        order += row[np.uint64(at(np.uint8, address, i))] * at(np.float64, weights, per * i)
    return order


def _bytes(tables, address, nbytes, wanted):
    a = np.uint64(0)
    b = np.uint64(0)
    counts = np.zeros((4, 256), np.int64)
    one = 0.0
    two = 0.0
    weights = _WEIGHTS.ctypes.data
    per = tables.shape[0]
    finite_tables = np.where(np.isfinite(tables), tables, 0.0)
    for start in range(0, nbytes, BLOCK):
        block, length = reach(address, start, nbytes)
        if wanted:
            a, b = mix(block, start, length, a, b)
        _count_codes(block, length, counts)
        first, second = group_weights(start * per // GROUP)
        for table in range(per):
            place = weights + 8 * (start * per % GROUP + table)
            order = _code_order(block, length, place, per, finite_tables[table])
            one += first * order
            two += second * order
    low = np.inf
    high = -np.inf
    total = 0.0
    squares = 0.0
    finite = 0
    nan = 0
    posinf = 0
    neginf = 0
    zero = 0
    for code in range(256):
        count = counts[0, code] + counts[1, code] + counts[2, code] + counts[3, code]
        if count == 0:
            continue
        for table in range(tables.shape[0]):
            v = tables[table, code]
            if np.isnan(v):
                nan += count
            elif v == np.inf:
                posinf += count
            elif v == -np.inf:
                neginf += count
            else:
                finite += count
                zero += count * (v == 0.0)
                low = min(low, v)
                high = max(high, v)
                total += count * v
                squares += count * (v * v)
    if finite == 0:
        low = high = 0.0
    mean, norm = _mean_and_norm(total, squares, finite)
    upper, lower = seal(nbytes, a, b)
    return low, high, mean, norm, finite, nan, posinf, neginf, zero, upper, lower, one, two


# Compiling ---------------------------------------------------------------------------------------------------------

# Read-only on purpose: numba lends a writable array to it as well, so one specialisation serves both.
_TABLES = types.Array(types.float64, 2, "C", readonly=True)
_RUNS = types.Array(types.int64, 2, "C", readonly=True)
_ARGUMENTS = (types.intp, types.intp, types.boolean)


# A function for each family and not one for all, because numba cannot cache a kernel that is handed a function.


def _real(*facts):
    like, kind, size, top, infinity = facts

    def kernel(address, nbytes, wanted):
        return _reals(like, kind, size, top, infinity, address, nbytes, wanted)

    return _ARGUMENTS, kernel


def _complex(*facts):
    like, kind, size, top, infinity = facts

    def kernel(address, nbytes, wanted):
        return _complexes(like, kind, size, top, infinity, address, nbytes, wanted)

    return _ARGUMENTS, kernel


def _integer(like):
    size, least, most = np.dtype(like).itemsize, int(np.iinfo(like).min), int(np.iinfo(like).max)

    def kernel(address, nbytes, wanted):
        return _integers(like, size, least, most, address, nbytes, wanted)

    return _ARGUMENTS, kernel


_KERNELS = {
    "f64": _real(np.int64, _F64, 8, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
    "f32": _real(np.int32, _F32, 4, 0x7FFFFFFF, 0x7F800000),
    "f16": _real(np.int16, _F16, 2, 0x7FFF, 0x7C00),
    "bf16": _real(np.int16, _BF16, 2, 0x7FFF, 0x7F80),
    "c32": _complex(np.int16, _F16, 4, 0x7FFF, 0x7C00),
    "c64": _complex(np.int32, _F32, 8, 0x7FFFFFFF, 0x7F800000),
    "c128": _complex(np.int64, _F64, 16, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
    "i16": _integer(np.int16), "u16": _integer(np.uint16), "i32": _integer(np.int32), "u32": _integer(np.uint32),
    "i64": _integer(np.int64), "u64": _integer(np.uint64),
    "bytes": ((_TABLES, *_ARGUMENTS), _bytes),
    "fingerprint": ((types.intp, types.intp), fingerprint),
    "blocks": ((types.intp, types.intp, types.intp), sum_blocks),
    "gather": ((types.intp, _RUNS, types.intp, types.intp), gather),
    "sample": ((types.intp, types.intp), sample),
}  # fmt: skip


@functools.cache
def load(name):
    """A compiled kernel: that of an element type of at least two bytes, or of one of the five names at the end of the table."""
    return compiled(*_KERNELS[name])
