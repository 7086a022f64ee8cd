"""Memory walked by numba, in blocks that stay in the first cache: the fingerprint, a sample, elements brought together.

    sum_blocks(address, nbytes, first)        the terms of some blocks in the two sums of a fingerprint
    fingerprint(address, nbytes)              (H, L)
    sample(address, nbytes)                   a word
    gather(address, runs, size, target)       elements along the runs, brought together

Kernels of `digest_numba.py`, which has the table of all of them, and parts that its statistics share.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import numpy as np
from numba import njit

from ..engine.intrinsics import at, fetch, move, put
from .digest import BLOCK, KEYS

# Bytes.
_AHEAD = 4096  # memory this far ahead of what is read is asked for
_PAGE = 4096
# Here one line of each page is asked for: finding out where a page lies takes as long as reading it.
_FAR_AHEAD = 8 * _PAGE
_LINE = 64  # what a processor fetches at a time; where it is more, some prefetches do nothing

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ADDED, _CROSSED = KEYS[:128], KEYS[128:]
_S27, _S29, _S30, _S31, _S32 = (np.uint64(bits) for bits in (27, 29, 30, 31, 32))


@njit
def _stir(z):
    z ^= z >> _S29
    z *= _FIRST
    z ^= z >> _S32
    z *= _SECOND
    return z ^ (z >> _S32)


@njit
def _product(z):
    return (z & _LOW_HALF) * (z >> _S32)


@njit
def mix(address, start, length, a, b):
    """Add the block of `length` bytes at `address`, which begins with byte `start`, to the two sums."""
    p = np.uint64(0)
    q = np.uint64(0)
    s = np.uint64(0)
    words = length >> 3
    for i in range(words):
        word = at(np.uint64, address, i)
        p += _product(word + _ADDED[i])
        q += _product(word ^ _CROSSED[i])
        s += word
    if length & 7:  # the last word, filled up with zeros
        word = np.uint64(0)
        for i in range(length & 7):
            word |= np.uint64(at(np.uint8, address, words * 8 + i)) << np.uint64(8 * i)
        p += _product(word + _ADDED[words])
        q += _product(word ^ _CROSSED[words])
        s += word
    return _add(p, q, s, start, a, b)


@njit
def _add(p, q, s, start, a, b):
    key = np.uint64(2 * (start // BLOCK)) * _STEP
    a += _stir(p + s * _FIRST + (key + _STEP))
    b += _stir(q + s * _SECOND + (key + _STEP + _STEP))
    return a, b


@njit
def group_weights(group):
    """The weights of a group of elements in the two order sums: the halves of a stirred number, in [-1, 1)."""
    z = _stir((np.uint64(group) + np.uint64(1)) * _STEP)
    return np.float64(np.int32(z & _LOW_HALF)) * 2.0**-31, np.float64(np.int32(z >> _S32)) * 2.0**-31


@njit
def _avalanche(z):
    z ^= z >> _S30
    z *= _FIRST
    z ^= z >> _S27
    z *= _SECOND
    return z ^ (z >> _S31)


@njit
def seal(nbytes, a, b):
    """Close both sums."""
    high = _avalanche(a + np.uint64(nbytes) * _STEP)
    return high, _avalanche(b ^ ((high << _S32) | (high >> _S32)))


@njit
def reach(address, start, nbytes):
    """Place and length of the block at `start`; one that comes later is asked for."""
    if start % _PAGE == 0 and start + _FAR_AHEAD < nbytes:
        fetch(address + start + _FAR_AHEAD)
    for line in range(start + _AHEAD, min(start + _AHEAD + BLOCK, nbytes), _LINE):
        fetch(address + line)
    return address + start, min(BLOCK, nbytes - start)


def sum_blocks(address, nbytes, first):
    """Terms that blocks add to the two sums, the first of which begins with byte `first` of the whole."""
    a = np.uint64(0)
    b = np.uint64(0)
    for start in range(0, nbytes, BLOCK):
        block, length = reach(address, start, nbytes)
        a, b = mix(block, first + start, length, a, b)
    return a, b


_summed = njit(sum_blocks)


def fingerprint(address, nbytes):
    a, b = _summed(address, nbytes, 0)
    return seal(nbytes, a, b)


# A few words, for noticing that memory was written to --------------------------------------------------------------


def sample(address, nbytes):
    """A word that depends on 16 words of the memory, the first and the last among them."""
    if nbytes < 8:
        return mix(address, 0, nbytes, np.uint64(0), np.uint64(0))[0]
    word = np.uint64(nbytes)
    for i in range(16):
        word = _stir(word + at(np.uint64, address + (nbytes - 8) * i // 15, 0))
    return word


# Elements that do not lie side by side ------------------------------------------------------------------------------


@njit
def _pick(like, size, source, rows, between, count, step, target):
    """A table of elements, as many rows at a time as share a line: one that is turned round is read once only."""
    together = _LINE // size if between == size else 1
    for first in range(0, rows, together):
        many = min(together, rows - first)
        for i in range(count):
            place = source + first * between + i * step
            goal = target + (first * count + i) * size
            for row in range(many):
                put(like, goal + row * count * size, 0, at(like, place + row * between, 0))
                if size == 16:  # two words
                    put(like, goal + row * count * size, 1, at(like, place + row * between, 1))


def gather(address, runs, size, target):
    axes = runs.shape[0]
    count, step = runs[axes - 1]
    rows, between = runs[axes - 2]
    outer = 1
    for axis in range(axes - 2):
        outer *= runs[axis, 0]
    for number in range(outer):
        rest = number
        table = address
        for axis in range(axes - 3, -1, -1):
            table += rest % runs[axis, 0] * runs[axis, 1]
            rest //= runs[axis, 0]
        if step == size:
            for row in range(rows):
                move(target + row * count * size, table + row * between, count * size)
        elif size == 4:
            _pick(np.uint32, 4, table, rows, between, count, step, target)
        elif size == 2:
            _pick(np.uint16, 2, table, rows, between, count, step, target)
        elif size == 1:
            _pick(np.uint8, 1, table, rows, between, count, step, target)
        else:
            _pick(np.uint64, size, table, rows, between, count, step, target)
        target += rows * count * size
