"""The pass over both arrays, compiled by numba: a thousand elements at a time, all of it in the first cache.

    load()(count, left…, right…, exact, brief, rtol, atol, floor, counts, numbers, heat, blemish, width)
    load_ratios()(count, left…, right…, single, counts, largest)

What goes into `counts`, `numbers`, `heat` and `blemish` is said in `totals.py`; `kernel_numpy.py` does the same in numpy, and the
two are held together by tests/measure/test_values.py. Importing this module imports numba; nothing is compiled before `load`.

One kernel serves all pairs of element types: each side of a block is decoded to float64 (exactly, but for integers beyond 2^53),
the errors are taken, and everything else is the same for all. So there are twelve short decoding loops instead of a kernel for
each of 484 pairs. Each block is walked by several short loops, because LLVM vectorises five simple loops and gives up on one rich
one. Maxima are taken of the bits: those of floats that are not negative order like integers, NaN last, and integer maxima
vectorise without promises about NaN.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from ..model.measurements import HISTOGRAM_EDGES
from .formats import BF16, F16, F32, F64, I16, I32, I64, PAIRS, TABLE, U16, U32, U64
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

_BLOCK = 1024  # elements: six scratch arrays of 8 KiB. Even, so that a byte with two numbers lies in one block
_INFINITY = np.int64(0x7FF0000000000000)  # the bits of an infinity; those of a NaN are above
_EXPONENT = np.int64(0x7FF0000000000000)
_TURN = np.int64(2047 << 52)
_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
_E = tuple(10.0**power for power in HISTOGRAM_EDGES)
_TWO63 = np.uint64(1 << 63)
_SMALLEST_F16 = np.float32(2.0**-14)
_EPS32, _EPS64 = np.float32(2.0**-23), 2.0**-52
_ONE_1000_32, _FIVE_1000_32 = np.float32(0.001), np.float32(0.005)


@intrinsic
def _at(typing, like, address, index):
    """Element `index` of type `like` from `address`, at any alignment; numba's own arrays promise LLVM alignment."""
    result = like.instance_type

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[1], context.get_value_type(result).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[2]]), align=1)

    return result(like, types.intp, types.intp), emit


@intrinsic
def _put(typing, address, index, value):
    """Write element `index` of the type of `value` from `address` on, at any alignment."""

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], context.get_value_type(value).as_pointer())
        builder.store(arguments[2], builder.gep(pointer, [arguments[1]]), align=1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, value), emit


@intrinsic
def _as_float(typing, bits):
    """The float of the same width with these bits."""
    result = {32: types.float32, 64: types.float64}[bits.bitwidth]

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(result))

    return result(bits), emit


@intrinsic
def _bits(typing, value):
    """The bits of a float64 as int64."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), emit


@intrinsic
def _bits32(typing, value):
    """The bits of a float32 as int32."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), emit


# Decoding ----------------------------------------------------------------------------------------------------------


@njit
def _half(bits):
    """An f16 as float64, by hand: the same on every processor."""
    magnitude = np.int32(bits & 0x7FFF)
    normal = _as_float(np.int32((magnitude << 13) + (112 << 23)))
    special = _as_float(np.int32((magnitude << 13) | (255 << 23)))
    subnormal = np.float32(_as_float(np.int32((magnitude << 13) + (113 << 23))) - _SMALLEST_F16)
    v = subnormal if magnitude < 0x400 else (special if magnitude >= 0x7C00 else normal)
    return np.float64(-v if bits < 0 else v)


@njit
def _plain(like, address, count, out):
    # An unsigned index: with a signed one numba looks for negative indices, and the loop is not vectorised.
    for i in range(np.uint64(count)):
        out[i] = np.float64(_at(like, address, np.intp(i)))


@njit
def _decode(code, table, address, count, out):
    """`count` numbers from `address` on, as float64."""
    if code == F32:
        _plain(np.float32, address, count, out)
    elif code == F64:
        _plain(np.float64, address, count, out)
    elif code == BF16:
        for i in range(np.uint64(count)):
            out[i] = np.float64(_as_float(np.int32(np.int32(_at(np.int16, address, np.intp(i))) << 16)))
    elif code == F16:
        for i in range(np.uint64(count)):
            out[i] = _half(_at(np.int16, address, np.intp(i)))
    elif code == TABLE:
        for i in range(np.uint64(count)):
            out[i] = table[0, _at(np.uint8, address, np.intp(i))]
    elif code == PAIRS:
        for i in range(np.uint64(count >> 1)):
            byte = _at(np.uint8, address, np.intp(i))
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
        _put(target, offset + i, _at(like, address + i * stride, 0))


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
                _put(target, 2 * (done + i), _at(np.uint64, base + i * strides[last], 0))
                _put(target, 2 * (done + i) + 1, _at(np.uint64, base + i * strides[last], 1))
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


# Errors ------------------------------------------------------------------------------------------------------------


@njit
def _errors(left, right, error, count):
    """All errors, and the bits of the largest."""
    most = np.int64(0)
    for i in range(count):
        distance = abs(right[i] - left[i])
        error[i] = distance
        most = max(most, _bits(distance))
    return most


@njit
def _magnitude(code, address, i, value):
    if code == U64:
        return _at(np.uint64, address, i)
    if code == I64:
        v = _at(np.int64, address, i)
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


@njit
def _modulus(real, imaginary):
    # Powers of two keep the squares in range and change no bit of the result where they were in range anyway.
    largest = max(abs(real), abs(imaginary))
    scale = 2.0**-600 if largest > 2.0**500 else (2.0**600 if largest < 2.0**-500 else 1.0)
    back = 2.0**600 if largest > 2.0**500 else (2.0**-600 if largest < 2.0**-500 else 1.0)
    real *= scale
    imaginary *= scale
    return np.sqrt(real * real + imaginary * imaginary) * back


@njit
def _complex_errors(left, right, left_parts, right_parts, error, count):
    """Moduli of both sides and of their difference."""
    for i in range(count):
        left[i] = _modulus(left_parts[2 * i], left_parts[2 * i + 1])
        right[i] = _modulus(right_parts[2 * i], right_parts[2 * i + 1])
        error[i] = _modulus(right_parts[2 * i] - left_parts[2 * i], right_parts[2 * i + 1] - left_parts[2 * i + 1])


@njit
def _spread(values, count, parts):
    """Real numbers as complex ones."""
    for i in range(count):
        parts[2 * i] = values[i]
        parts[2 * i + 1] = 0.0


# Walking a block ---------------------------------------------------------------------------------------------------


@njit
def _largest(values, count):
    """Bits of the largest magnitude."""
    most = np.int64(0)
    for i in range(count):
        most = max(most, _bits(values[i]) & _SIGN)
    return most


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
        most = max(most, _bits(relative))
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
    found = 0
    for i in range(count):
        found += (error[i] == 0) | ((left[i] != 0) & (ratio[i] < bound))
    return found


@njit
def _zeros(left, count):
    found = 0
    for i in range(count):
        found += left[i] == 0
    return found


@njit
def _steps(left, right, error, floor, count):
    """Bits of twice the largest error / 2^k, where 2^k is the power of two at or below the larger of both magnitudes."""
    most = np.int64(0)
    for i in range(count):
        larger = max(_bits(left[i]) & _SIGN, _bits(right[i]) & _SIGN)
        power = max(larger & _EXPONENT, floor)
        # 2^(1-k) by its bits: exact, in range for every k, and multiplying is cheaper than dividing.
        most = max(most, _bits(error[i] * _as_float(_TURN - power)))
    return most


@njit
def _at_least(ratio, count, first, second, third, fourth, fifth):
    """How many are at or above each of five edges."""
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
        found = _at_least(
            ratio,
            count,
            _E[edge],
            _E[max(edge - 1, 0)],
            _E[max(edge - 2, 0)],
            _E[max(edge - 3, 0)],
            _E[max(edge - 4, 0)],
        )
        for step in range(min(5, edge + 1)):
            counts[HISTOGRAM + 2 + edge - step] += found[step] - above
            above = found[step]
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
        most = _as_float(_largest(error[done:], run))
        upper = row * rows // height
        heat[upper, cell] = max(heat[upper, cell], most)
        done += run


# The whole pass ----------------------------------------------------------------------------------------------------


def _weigh(
    count,
    left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
    right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
    exact, brief, rtol, atol, floor,
    counts, numbers, heat, blemish, width,
):  # fmt: skip
    complex_ = left_parts == 2 or right_parts == 2
    left = np.empty(_BLOCK)
    right = np.empty(_BLOCK)
    error = np.empty(_BLOCK)
    ratio = np.empty(_BLOCK)
    left_raw = np.empty(2 * _BLOCK if left_shape.size else 0, np.uint64)
    right_raw = np.empty(2 * _BLOCK if right_shape.size else 0, np.uint64)
    ones = np.empty(2 * _BLOCK if complex_ else 0)
    twos = np.empty(2 * _BLOCK if complex_ else 0)
    height = (count + width - 1) // width
    largest_error = np.int64(0)
    largest_left = np.int64(0)
    largest_right = np.int64(0)
    largest_ratio = np.int64(0)
    largest_step = np.int64(0)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        here = _locate(left_address, left_code, left_size, left_shape, left_strides, start, size, left_raw)
        there = _locate(right_address, right_code, right_size, right_shape, right_strides, start, size, right_raw)
        # Where a side is complex, both are taken as pairs of numbers; a real one has no imaginary part.
        _decode(left_code, left_table, here, left_parts * size, ones if left_parts == 2 else left)
        _decode(right_code, right_table, there, right_parts * size, twos if right_parts == 2 else right)
        if complex_:
            if left_parts == 1:
                _spread(left, size, ones)
            if right_parts == 1:
                _spread(right, size, twos)
            _complex_errors(left, right, ones, twos, error, size)
        elif exact:
            _integer_errors(left_code, here, left, right_code, there, right, error, size)
        most_error = _largest(error, size) if exact or complex_ else _errors(left, right, error, size)
        most_left, most_right = _largest(left, size), _largest(right, size)
        if max(most_left, most_right) >= _INFINITY or most_error >= _INFINITY:
            _set_aside(left, right, error, complex_, ones, twos, size, counts, start, heat, blemish, width, height)
            most_left, most_right, most_error = _largest(left, size), _largest(right, size), _largest(error, size)
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
            if not brief:
                counts[RATIOS] += size - _zeros(left, size)
            continue
        if most_error > largest_error:
            largest_error = most_error
            for i in range(size):
                if _bits(error[i]) == most_error:
                    counts[WORST] = start + i
                    break
        if heat.size:
            _warm(error, size, start, width, height, heat)
        if brief:  # dividing and sorting into bins is most of the work
            errors, squares = _sums(error, size)
            numbers[SUM_ERRORS] += errors
            numbers[SUM_SQUARES] += squares
            equal, _, close = _compared(left, error, rtol, atol, size)
            counts[EQUAL] += equal
            counts[CLOSE] += close
            continue
        errors, squares, relatives, most_ratio = _ratios(left, error, ratio, size)
        numbers[SUM_ERRORS] += errors
        numbers[SUM_SQUARES] += squares
        numbers[SUM_RATIOS] += relatives
        largest_ratio = max(largest_ratio, most_ratio)
        equal, zero, close = _compared(left, error, rtol, atol, size)
        counts[EQUAL] += equal
        counts[RATIOS] += size - zero
        counts[CLOSE] += close
        most = _as_float(_largest(ratio, size) if zero else most_ratio)
        # A sign that flips is an error of at least 100 %: most blocks need no look.
        if most >= 1 and not complex_:
            counts[FLIPS] += _flips(left, right, size)
        counts[ONE_THOUSANDTH] += _below(left, error, ratio, 0.001, size) if zero or most >= 0.001 else size
        counts[FIVE_THOUSANDTHS] += _below(left, error, ratio, 0.005, size) if zero or most >= 0.005 else size
        _bins(ratio, size, most, equal, counts)
        if floor:
            largest_step = max(largest_step, _steps(left, right, error, floor, size))
    numbers[LARGEST_ERROR] = _as_float(largest_error)
    numbers[LARGEST_LEFT] = _as_float(largest_left)
    numbers[LARGEST_RIGHT] = _as_float(largest_right)
    numbers[LARGEST_RATIO] = _as_float(largest_ratio)
    numbers[LARGEST_STEP] = _as_float(largest_step) / 2


# Ratios with something to divide by --------------------------------------------------------------------------------


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
        most = max(most, _bits32(ratio))
        one += ratio < _ONE_1000_32
        five += ratio < _FIVE_1000_32
    return np.float64(_as_float(most)), one, five


@njit(error_model="numpy")
def _double_ratios(left, right, count):
    most = np.int64(0)
    one = 0
    five = 0
    for i in range(count):
        shift = _EPS64 if left[i] == 0 else 0.0
        beneath, above = left[i] + shift, right[i] + shift
        ratio = abs((above - beneath) / beneath)
        most = max(most, _bits(ratio))
        one += ratio < 0.001
        five += ratio < 0.005
    return _as_float(most), one, five


@njit(error_model="numpy")
def _modulus_ratios(left, error, count):
    most = np.int64(0)
    one = 0
    five = 0
    for i in range(count):
        ratio = error[i] / (left[i] if left[i] != 0 else _EPS64)
        most = max(most, _bits(ratio))
        one += ratio < 0.001
        five += ratio < 0.005
    return _as_float(most), one, five


def _relate(
    count,
    left_address, left_code, left_parts, left_size, left_table, left_shape, left_strides,
    right_address, right_code, right_parts, right_size, right_table, right_shape, right_strides,
    single, counts, largest,
):  # fmt: skip
    complex_ = left_parts == 2 or right_parts == 2
    left = np.empty(_BLOCK)
    right = np.empty(_BLOCK)
    error = np.empty(_BLOCK)
    left_raw = np.empty(2 * _BLOCK if left_shape.size else 0, np.uint64)
    right_raw = np.empty(2 * _BLOCK if right_shape.size else 0, np.uint64)
    ones = np.empty(2 * _BLOCK if complex_ else 0)
    twos = np.empty(2 * _BLOCK if complex_ else 0)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        here = _locate(left_address, left_code, left_size, left_shape, left_strides, start, size, left_raw)
        there = _locate(right_address, right_code, right_size, right_shape, right_strides, start, size, right_raw)
        _decode(left_code, left_table, here, left_parts * size, ones if left_parts == 2 else left)
        _decode(right_code, right_table, there, right_parts * size, twos if right_parts == 2 else right)
        if complex_:
            if left_parts == 1:
                _spread(left, size, ones)
            if right_parts == 1:
                _spread(right, size, twos)
            _complex_errors(left, right, ones, twos, error, size)
        if max(_largest(left, size), _largest(right, size)) >= _INFINITY:
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


# Compiling ---------------------------------------------------------------------------------------------------------

# Read-only on purpose: numba lends a writable array to it as well, so one specialisation serves both.
_TABLES = types.Array(types.float64, 2, "C", readonly=True)
_LENGTHS = types.Array(types.int64, 1, "C")
_SIDE = (types.intp, types.int64, types.int64, types.int64, _TABLES, _LENGTHS, _LENGTHS)
_SIGNATURE = (
    types.int64, *_SIDE, *_SIDE, types.boolean, types.boolean, types.float64, types.float64, types.int64,
    _LENGTHS, types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C"), types.Array(types.boolean, 2, "C"),
    types.int64,
)  # fmt: skip


_RATIOS_SIGNATURE = (
    types.int64, *_SIDE, *_SIDE, types.boolean, _LENGTHS, types.Array(types.float64, 1, "C"),
)  # fmt: skip


@functools.cache
def load():
    """The compiled kernel of a Measurement, from numba's cache on disk where it is there."""
    return _compiled(_SIGNATURE, _weigh)


@functools.cache
def load_ratios():
    """That of Ratios."""
    return _compiled(_RATIOS_SIGNATURE, _relate)


def _compiled(signature, function):
    try:
        return njit(signature, nogil=True, cache=True, error_model="numpy")(function)
    except (RuntimeError, OSError, EOFError):
        # No writable place for the cache ("no locator available"), a full disk, or a damaged cache file. A fault of
        # the kernel itself shows again below.
        return njit(signature, nogil=True, error_model="numpy")(function)
