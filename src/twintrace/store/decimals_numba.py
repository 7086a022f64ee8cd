"""Numbers as text into floats, compiled by numba: what `decimals.py` describes.

    load(wide)(address, nbytes, out, hard, powers)    how many numbers, and how many of them are hard; -1 where the text is no list

A number of at most 19 digits is w·10^e with a whole w below 2^64. Both factors are taken as the sum of two float64, their product
with all of its error, and the sum of the two is rounded once: off only where the exact product lies within 2^-100 of the middle
between two floats. Such a number, one with more digits and one near the ends of the range is hard: its bounds are noted, and
Python reads it. Digits are taken eight at a time where there are eight.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import functools

import numpy as np
from numba import njit, types

from ..engine.compiling import compiled
from ..engine.intrinsics import at

LARGEST_POWER = 280
"""Of ten, either way: with 19 digits in front all products, and what splitting them takes, stay within float64."""
_SPLITTER = 134217729.0  # 2^27 + 1
_ALMOST = 2.0**-100
_LESS, _MORE = 1 - 2.0**-50, 1 + 2.0**-50


@njit
def _split(a):
    t = _SPLITTER * a
    high = t - (t - a)
    return high, a - high


@njit
def _scaled(w, e, powers, single):
    """(w·10^e rounded to float64, is it certain); `single`: as far as float32 can tell."""
    high = np.float64(w)
    if single:
        rough = high * powers[e + LARGEST_POWER, 0]
        if np.float32(rough * _LESS) == np.float32(rough * _MORE):
            return rough, True
    low = np.float64(np.int64(w - np.uint64(high)))
    power, rest = powers[e + LARGEST_POWER, 0], powers[e + LARGEST_POWER, 1]
    product = high * power
    a, b = _split(high)
    c, d = _split(power)
    error = ((a * c - product) + a * d + b * c) + b * d
    error += high * rest + low * power
    doubt = product * _ALMOST
    rounded = product + error
    return rounded, product + (error - doubt) == product + (error + doubt)


_ZERO, _NINE, _MINUS, _PLUS, _POINT, _COMMA, _SPACE = (np.uint8(ord(c)) for c in "09-+., ")
_LOWER_E, _UPPER_E, _N, _I = (np.uint8(ord(c)) for c in "eENI")
_INFINITY = np.uint64(int.from_bytes(b"Infinity", "little"))
# Eight digits in one word: the upper half of each byte is 3, and stays 3 when 6 is added.
_UPPER, _SIXES, _THREES = np.uint64(0xF0F0F0F0F0F0F0F0), np.uint64(0x0606060606060606), np.uint64(0x3333333333333333)
_ZEROS, _OTHERS = np.uint64(0x3030303030303030), np.uint64(0x000000FF000000FF)
_FIRST, _SECOND = np.uint64(0x000F424000000064), np.uint64(0x0000271000000001)  # 10^6 and 100, 10^4 and 1
_FOUR, _EIGHT, _SIXTEEN, _HALF = (np.uint64(bits) for bits in (4, 8, 16, 32))
_TEN, _HUNDRED_MILLION = np.uint64(10), np.uint64(10**8)
_ROOM_FOR_EIGHT, _ROOM_FOR_ONE = np.uint64(10**11), np.uint64(10**18)  # w·10^8 + 10^8 and w·10 + 10 are at most 10^19


@njit
def _are_digits(word):
    return ((word & _UPPER) | (((word + _SIXES) & _UPPER) >> _FOUR)) == _THREES


@njit
def _eight(word):
    """The number that these eight digits are, the first in the lowest byte."""
    word -= _ZEROS
    word = word * _TEN + (word >> _EIGHT)
    return ((word & _OTHERS) * _FIRST + ((word >> _SIXTEEN) & _OTHERS) * _SECOND) >> _HALF


@njit
def _digits(address, i, size, w):
    """(place behind the digits, w with them, are some left out)."""
    while i + 8 <= size and w < _ROOM_FOR_EIGHT:
        word = at(np.uint64, address + i, 0)
        if not _are_digits(word):
            break
        w = w * _HUNDRED_MILLION + _eight(word)
        i += 8
    dropped = False
    while i < size:
        c = at(np.uint8, address, i)
        if c < _ZERO or c > _NINE:
            break
        if w < _ROOM_FOR_ONE:
            w = w * _TEN + np.uint64(c - _ZERO)
        else:
            dropped = True
        i += 1
    return i, w, dropped


@njit
def _behind_space(address, i, size):
    while i < size:
        c = at(np.uint8, address, i)
        if c != _SPACE and c != 10 and c != 13 and c != 9:
            break
        i += 1
    return i


@njit
def _number(address, i, size, powers, single):
    """(place behind the number, or -1; the number; is it certain). What stands there is a digit, or a minus before one."""
    negative = at(np.uint8, address, i) == _MINUS
    i += negative
    first = i
    i, w, dropped = _digits(address, i, size, np.uint64(0))
    if i == first or (at(np.uint8, address, first) == _ZERO and i - first > 1):
        return -1, 0.0, True
    e = 0
    whole = True
    if i < size and at(np.uint8, address, i) == _POINT:
        whole = False
        point = i + 1
        i, w, left_out = _digits(address, point, size, w)
        dropped |= left_out
        e = point - i
        if i == point:
            return -1, 0.0, True
    if i < size and (at(np.uint8, address, i) == _LOWER_E or at(np.uint8, address, i) == _UPPER_E):
        whole = False
        i += 1
        down = i < size and at(np.uint8, address, i) == _MINUS
        i += down or (i < size and at(np.uint8, address, i) == _PLUS)
        begun = i
        power = 0
        while i < size:
            c = at(np.uint8, address, i)
            if c < _ZERO or c > _NINE:
                break
            power = min(power * 10 + np.int64(c - _ZERO), 100000)
            i += 1
        if i == begun:
            return -1, 0.0, True
        e += -power if down else power
    if dropped:
        return i, 0.0, False
    if w == 0:
        return i, (-0.0 if negative and not whole else 0.0), True
    if e < -LARGEST_POWER or e > LARGEST_POWER - 20:
        return i, 0.0, False
    value, sure = _scaled(w, e, powers, single)
    return i, (-value if negative else value), sure


def _parse(address, size, out, hard, powers):
    single = out.itemsize == 4
    count = 0
    doubtful = 0
    i = _behind_space(address, 0, size)
    while i < size:
        if count >= out.size:
            return -1, i
        start = i
        c = at(np.uint8, address, i)
        after = at(np.uint8, address, i + 1) if c == _MINUS and i + 1 < size else c
        if _ZERO <= after <= _NINE:
            i, value, sure = _number(address, i, size, powers, single)
            if i < 0 or (not sure and doubtful >= hard.shape[0]):
                return -1, start
            if not sure:
                hard[doubtful, 0] = count
                hard[doubtful, 1] = start
                hard[doubtful, 2] = i
                doubtful += 1
            out[count] = value
        elif c == _N and i + 3 <= size and _is_nan(address, i, size):
            out[count] = np.nan
            i += 3
        elif (
            after == _I and i + (c == _MINUS) + 8 <= size and at(np.uint64, address + i + (c == _MINUS), 0) == _INFINITY
        ):
            out[count] = -np.inf if c == _MINUS else np.inf
            i += 8 + (c == _MINUS)
        else:
            return -1, i
        count += 1
        if i < size and at(np.uint8, address, i) != _COMMA:
            i = _behind_space(address, i, size)
            if i < size and at(np.uint8, address, i) != _COMMA:
                return -1, i
        if i < size:
            i = _behind_space(address, i + 1, size)
            if i >= size:
                return -1, i
    return count, doubtful


@njit
def _is_nan(address, i, size):
    return at(np.uint8, address, i + 1) == 97 and at(np.uint8, address, i + 2) == 78


@functools.cache
def load(wide):
    """The kernel, compiled or out of numba's cache; `wide`: into float64 and not float32."""
    signature = (
        types.intp,
        types.intp,
        types.Array(types.float64 if wide else types.float32, 1, "C"),
        types.Array(types.int64, 2, "C"),
        types.Array(types.float64, 2, "C", readonly=True),
    )
    return compiled(signature, _parse)
