"""Lists of numbers in JSON text, read as fast as memory allows.

    parse(b"0.25, -1e-3, NaN", 3)                  float32[3]
    parse(b"0.25, -1e-3, NaN", 3, wide=True)       float64[3], each the float64 that is nearest to the text, as Python reads it
    parse(b"0.25, [1]", 2)                         None: no flat list of so many numbers; whoever asks reads it another way

Python's own reader makes an object of every number, which is fifty megabytes of text a second; dumps of this kind have
gigabytes. Where numba is not installed the answer is always None.
"""

from __future__ import annotations

import functools
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.local import Local
from ..engine.protocol import cores
from .digest import address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_HARD = 1 << 12
"""Numbers that Python reads. A list, or a part of one, with more of them is not what this is for."""
_PART = 1 << 20
"""Bytes of a text for each core: two milliseconds of work, twenty times what a thread costs."""
_LONGEST = 1 << 10
_COMMA = ord(",")


def parse(text: bytes | memoryview, count: int, *, wide: bool = False) -> NDArray[Any] | None:
    """`count` numbers out of a text that holds them and the commas between; None if it does not."""
    kernel = _kernel(wide)
    if kernel is None:
        return None
    data = np.frombuffer(text, np.uint8)
    if 2 * count - 1 > data.size:
        return None
    out = np.empty(count, np.float64 if wide else np.float32)

    def read(part: tuple[int, int, int, int]) -> bool:
        start, end, first, behind = part
        if behind > count:
            return False
        here, numbers = data[start:end], out[first:behind]
        hard = np.empty((_MOST_HARD, 3), np.int64)
        numbers_read, doubtful = kernel(address_of(here), here.size, numbers, hard, _powers())
        if numbers_read != numbers.size:
            return False
        for place, begin, stop in hard[:doubtful].tolist():
            numbers[place] = float(bytes(here[begin:stop]))
        return True

    parts = _parts(data, count)
    return out if all(done.result() for done in Local(len(parts)).run(read, parts)) else None


def _parts(data: NDArray[np.uint8], count: int) -> list[tuple[int, int, int, int]]:
    """Pieces of the text, one for each core where it is long: from where to where, and the numbers from which to which."""
    most = min(cores(), data.size // _PART)
    if most < 2:
        return [(0, data.size, 0, count)]
    parts = []
    start = first = 0
    for number in range(1, most):
        middle = number * data.size // most
        comma = np.flatnonzero(data[middle : middle + _LONGEST] == _COMMA)
        if not comma.size:  # no number is so long: the whole will be refused
            return [(0, data.size, 0, count)]
        end = middle + int(comma[0])
        behind = first + int(np.count_nonzero(data[start:end] == _COMMA)) + 1
        parts.append((start, end, first, behind))
        start, first = end + 1, behind
    return [*parts, (start, data.size, first, count)]


@functools.cache
def _kernel(wide: bool) -> Any:
    if sys.byteorder != "little":
        return None
    try:
        from . import decimals_numba

        return decimals_numba.load(wide)
    except Exception:  # noqa: BLE001 - not installed, at odds with this numpy or LLVM, switched off by NUMBA_DISABLE_JIT
        return None


@functools.cache
def _powers() -> NDArray[np.float64]:
    """Powers of ten as sums of two float64, from 10^-280 on."""
    from .decimals_numba import LARGEST_POWER

    table = np.empty((2 * LARGEST_POWER + 1, 2))
    for row in range(len(table)):
        exact = Fraction(10) ** (row - LARGEST_POWER)
        table[row, 0] = float(exact)
        table[row, 1] = float(exact - Fraction(table[row, 0]))
    table.flags.writeable = False
    return table
