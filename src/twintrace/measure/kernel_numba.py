"""The pass over both arrays, compiled by numba: a thousand elements at a time, all of it in the first cache.

    load()(count, left…, right…, exact, rtol, atol, floor, counts, numbers, heat, blemish, width)

What goes into `counts`, `numbers`, `heat` and `blemish` is said in `totals.py`; `kernel_numpy.py` does the same in numpy, and the
two are held together by tests/measure/test_values.py. Importing this module imports numba; nothing is compiled before `load`.

Each block is walked by several short loops, because LLVM vectorises five simple loops and gives up on one rich one. Maxima are
taken of the bits: those of floats that are not negative order like integers, NaN last, and integer maxima vectorise without
promises about NaN.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types

from ..engine.intrinsics import as_float, at, bits
from ..model.measurements import HISTOGRAM_EDGES
from .blocks_numba import (
    BLOCK,
    INFINITY,
    LENGTHS,
    SIDE,
    SIGN,
    compiled,
    complex_errors,
    largest_bits,
    read,
    scratch,
)
from .formats import I64, U64
from .totals import (
    CLOSE,
    EQUAL,
    FIVE_THOUSANDTHS,
    FLIPS,
    HISTOGRAM,
    INF_BOTH,
    INF_LEFT,
    INF_RIGHT,
    LARGEST_ERROR,
    LARGEST_LEFT,
    LARGEST_RATIO,
    LARGEST_RIGHT,
    LARGEST_STEP,
    NAN_BOTH,
    NAN_LEFT,
    NAN_RIGHT,
    NOT_FINITE,
    ONE_THOUSANDTH,
    RATIOS,
    SUM_ERRORS,
    SUM_LEFT,
    SUM_PRODUCTS,
    SUM_RATIOS,
    SUM_RIGHT,
    SUM_SQUARES,
    WORST,
)

_EXPONENT = np.int64(0x7FF0000000000000)
_TURN = np.int64(2047 << 52)
_E = tuple(10.0**power for power in HISTOGRAM_EDGES)


# Errors ------------------------------------------------------------------------------------------------------------


@njit
def _errors(left, right, error, count):
    """All errors, and the bits of the largest."""
    most = np.int64(0)
    for i in range(count):
        distance = abs(right[i] - left[i])
        error[i] = distance
        most = max(most, bits(distance))
    return most


@njit
def _magnitude(code, address, i, value):
    if code == U64:
        return at(np.uint64, address, i)
    if code == I64:
        v = at(np.int64, address, i)
        return np.uint64(0) - np.uint64(v) if v < 0 else np.uint64(v)
    return np.uint64(abs(value))


@njit
def _integer_errors(left_code, left_address, left, right_code, right_address, right, error, count):
    """The exact distance of two integers, rounded once: 2^63 and 2^63 - 1 are not equal, though their float64 are."""
    for i in range(count):
        one = _magnitude(left_code, left_address, i, left[i])
        two = _magnitude(right_code, right_address, i, right[i])
        if (left[i] < 0) == (right[i] < 0):
            error[i] = np.float64(one - two if one > two else two - one)
        else:
            error[i] = np.float64(one) + np.float64(two)


# Walking a block ---------------------------------------------------------------------------------------------------


@njit
def _set_aside(
    left, right, error, complex_, left_parts, right_parts, count, counts, start, heat, blemish, width, height
):
    """Count the elements that are not finite on one side or on both, and put zeros in their place."""
    for i in range(count):
        one, two = left[i], right[i]
        if np.isfinite(one) and np.isfinite(two):
            continue
        counts[NOT_FINITE] += 1
        nan_left, nan_right = np.isnan(one), np.isnan(two)
        inf_left, inf_right = np.isinf(one), np.isinf(two)
        same = nan_left and nan_right
        if inf_left and inf_right:
            same = one == two
            if complex_:
                same = left_parts[2 * i] == right_parts[2 * i] and left_parts[2 * i + 1] == right_parts[2 * i + 1]
            counts[INF_BOTH] += same
        counts[NAN_LEFT] += nan_left
        counts[NAN_RIGHT] += nan_right
        counts[NAN_BOTH] += nan_left and nan_right
        counts[INF_LEFT] += inf_left
        counts[INF_RIGHT] += inf_right
        # The zeros put here will be counted as equal and in all that follows from it: undone here.
        counts[EQUAL] += same - 1
        counts[CLOSE] += same - 1
        counts[ONE_THOUSANDTH] += same - 1
        counts[FIVE_THOUSANDTHS] += same - 1
        counts[HISTOGRAM] -= 1
        if heat.size and not same:
            rows, columns = heat.shape
            row, column = (start + i) // width, (start + i) % width
            blemish[row * rows // height, column * columns // width] = True
        left[i] = 0.0
        right[i] = 0.0
        error[i] = 0.0
        if complex_:
            left_parts[2 * i] = 0.0
            left_parts[2 * i + 1] = 0.0
            right_parts[2 * i] = 0.0
            right_parts[2 * i + 1] = 0.0


# reassoc lets LLVM keep several partial sums; no flag here says that NaN or Inf cannot occur.
@njit(fastmath={"reassoc", "nsz", "contract"})
def _powers(left, right, count):
    ll = 0.0
    rr = 0.0
    lr = 0.0
    for i in range(count):
        one, two = left[i], right[i]
        ll += one * one
        rr += two * two
        lr += one * two
    return ll, rr, lr


@njit(fastmath={"reassoc", "nsz"}, error_model="numpy")
def _ratios(left, error, ratio, count):
    """Errors divided by the left side; where that is 0, the error itself. Sums of both while the dividing unit is busy."""
    errors = 0.0
    squares = 0.0
    relatives = 0.0
    most = np.int64(0)
    for i in range(count):
        size = abs(left[i])
        distance = error[i]
        quotient = distance / size
        relative = quotient if size > 0 else 0.0
        errors += distance
        squares += distance * distance
        relatives += relative
        most = max(most, bits(relative))
        ratio[i] = quotient if size > 0 else distance
    return errors, squares, relatives, most


@njit(fastmath={"reassoc", "nsz", "contract"})
def _sums(error, count):
    errors = 0.0
    squares = 0.0
    for i in range(count):
        errors += error[i]
        squares += error[i] * error[i]
    return errors, squares


@njit
def _compared(left, error, rtol, atol, count):
    equal = 0
    zero = 0
    close = 0
    for i in range(count):
        size = abs(left[i])
        equal += error[i] == 0
        zero += size == 0
        close += error[i] <= atol + rtol * size
    return equal, zero, close


@njit
def _flips(left, right, count):
    flips = 0
    for i in range(count):
        flips += ((left[i] < 0) & (right[i] > 0)) | ((left[i] > 0) & (right[i] < 0))
    return flips


@njit
def _below(left, error, ratio, bound, count):
    """Elements with a relative error below `bound`. Without a left side to divide by, only no error is below anything."""
    below = 0
    for i in range(count):
        below += (error[i] == 0) | ((left[i] != 0) & (ratio[i] < bound))
    return below


@njit
def _zeros(left, count):
    zeros = 0
    for i in range(count):
        zeros += left[i] == 0
    return zeros


@njit
def _steps(left, right, error, floor, count):
    """Bits of twice the largest error / 2^k, where 2^k is the power of two at or below the larger of both magnitudes."""
    most = np.int64(0)
    for i in range(count):
        larger = max(bits(left[i]) & SIGN, bits(right[i]) & SIGN)
        power = max(larger & _EXPONENT, floor)
        # 2^(1-k) by its bits: exact, in range for every k, and multiplying is cheaper than dividing.
        most = max(most, bits(error[i] * as_float(_TURN - power)))
    return most


@njit
def _at_least(ratio, count, first, second, third, fourth, fifth):
    """Number of elements at or above each of five edges."""
    a = 0
    b = 0
    c = 0
    d = 0
    e = 0
    for i in range(count):
        value = ratio[i]
        a += value >= first
        b += value >= second
        c += value >= third
        d += value >= fourth
        e += value >= fifth
    return a, b, c, d, e


@njit
def _bins(ratio, count, most, equal, counts):
    """Add a block to the histogram, from the largest ratio down: five edges at a time, until everything is in a bin.

    Between two tensors of one type that is one time as a rule: what differs at all differs by a unit in the last place.
    """
    some = count - equal
    above = 0
    edge = len(_E) - 1
    while edge >= 0 and most < _E[edge]:
        edge -= 1
    while edge >= 0 and above < some:
        placed = _at_least(
            ratio,
            count,
            _E[edge],
            _E[max(edge - 1, 0)],
            _E[max(edge - 2, 0)],
            _E[max(edge - 3, 0)],
            _E[max(edge - 4, 0)],
        )
        for step in range(min(5, edge + 1)):
            counts[HISTOGRAM + 2 + edge - step] += placed[step] - above
            above = placed[step]
        edge -= 5
    counts[HISTOGRAM + 1] += some - above
    counts[HISTOGRAM] += equal


@njit
def _warm(error, count, start, width, height, heat):
    """The largest error of each cell of the grid, run by run along a row of the tensor."""
    rows, columns = heat.shape
    done = 0
    while done < count:
        row, column = (start + done) // width, (start + done) % width
        cell = column * columns // width
        # The first column of the next cell: the least c with c * columns // width > cell.
        end = min(-(-((cell + 1) * width) // columns), width)
        run = min(end - column, count - done)
        most = as_float(largest_bits(error[done:], run))
        upper = row * rows // height
        heat[upper, cell] = max(heat[upper, cell], most)
        done += run


# The whole pass ----------------------------------------------------------------------------------------------------


def _accumulate(
    count,
    left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
    right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
    exact, rtol, atol, floor,
    counts, numbers, heat, blemish, width,
):  # fmt: skip
    complex_ = left_parts == 2 or right_parts == 2
    left, right, error, left_raw, right_raw, ones, twos = scratch(left_shape, right_shape, complex_)
    ratio = np.empty(BLOCK)
    height = (count + width - 1) // width
    largest_error = np.int64(0)
    largest_left = np.int64(0)
    largest_right = np.int64(0)
    largest_ratio = np.int64(0)
    largest_step = np.int64(0)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        here = read(
            left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
            start, size, left_raw, left, ones,
        )  # fmt: skip
        there = read(
            right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
            start, size, right_raw, right, twos,
        )  # fmt: skip
        if complex_:
            complex_errors(left_parts == 1, right_parts == 1, left, right, ones, twos, error, size)
        elif exact:
            _integer_errors(left_code, here, left, right_code, there, right, error, size)
        most_error = largest_bits(error, size) if exact or complex_ else _errors(left, right, error, size)
        most_left, most_right = largest_bits(left, size), largest_bits(right, size)
        if max(most_left, most_right) >= INFINITY or most_error >= INFINITY:
            _set_aside(left, right, error, complex_, ones, twos, size, counts, start, heat, blemish, width, height)
            most_left, most_right = largest_bits(left, size), largest_bits(right, size)
            most_error = largest_bits(error, size)
        largest_left = max(largest_left, most_left)
        largest_right = max(largest_right, most_right)
        ll, rr, lr = _powers(left, right, size)
        if complex_:
            _, _, lr = _powers(ones, twos, 2 * size)
        numbers[SUM_LEFT] += ll
        numbers[SUM_RIGHT] += rr
        numbers[SUM_PRODUCTS] += lr
        if most_error == 0:  # all equal, as most of what is compared: nothing below has anything to add
            counts[EQUAL] += size
            counts[CLOSE] += size
            counts[ONE_THOUSANDTH] += size
            counts[FIVE_THOUSANDTHS] += size
            counts[HISTOGRAM] += size
            counts[RATIOS] += size - _zeros(left, size)
            continue
        if most_error > largest_error:
            largest_error = most_error
            for i in range(size):
                if bits(error[i]) == most_error:
                    counts[WORST] = start + i
                    break
        if heat.size:
            _warm(error, size, start, width, height, heat)
        errors, squares, relatives, most_ratio = _ratios(left, error, ratio, size)
        numbers[SUM_ERRORS] += errors
        numbers[SUM_SQUARES] += squares
        numbers[SUM_RATIOS] += relatives
        largest_ratio = max(largest_ratio, most_ratio)
        equal, zero, close = _compared(left, error, rtol, atol, size)
        counts[EQUAL] += equal
        counts[RATIOS] += size - zero
        counts[CLOSE] += close
        most = as_float(largest_bits(ratio, size) if zero else most_ratio)
        # A sign that flips is an error of at least 100 %: most blocks need no look.
        if most >= 1 and not complex_:
            counts[FLIPS] += _flips(left, right, size)
        counts[ONE_THOUSANDTH] += _below(left, error, ratio, 0.001, size) if zero or most >= 0.001 else size
        counts[FIVE_THOUSANDTHS] += _below(left, error, ratio, 0.005, size) if zero or most >= 0.005 else size
        _bins(ratio, size, most, equal, counts)
        if floor:
            largest_step = max(largest_step, _steps(left, right, error, floor, size))
    numbers[LARGEST_ERROR] = as_float(largest_error)
    numbers[LARGEST_LEFT] = as_float(largest_left)
    numbers[LARGEST_RIGHT] = as_float(largest_right)
    numbers[LARGEST_RATIO] = as_float(largest_ratio)
    numbers[LARGEST_STEP] = as_float(largest_step) / 2


_SIGNATURE = (
    types.int64, *SIDE, *SIDE, types.boolean, types.float64, types.float64, types.int64,
    LENGTHS, types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C"), types.Array(types.boolean, 2, "C"),
    types.int64,
)  # fmt: skip


@functools.cache
def load():
    """The compiled kernel, from numba's cache on disk where it is there."""
    return compiled(_SIGNATURE, _accumulate)
