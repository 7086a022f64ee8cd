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

from .digest import address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_HARD = 1 << 12
"""Numbers that Python reads. A list with more of them is not what this is for."""


def parse(text: bytes | memoryview, count: int, *, wide: bool = False) -> NDArray[Any] | None:
    """`count` numbers out of a text that holds them and the commas between; None if it does not."""
    kernel = _kernel(wide)
    data = np.frombuffer(text, np.uint8)
    if kernel is None or 2 * count - 1 > data.size:
        return None
    numbers = np.empty(count, np.float64 if wide else np.float32)
    hard = np.empty((_MOST_HARD, 3), np.int64)
    numbers_read, doubtful = kernel(address_of(data), data.size, numbers, hard, _powers())
    if numbers_read != count:
        return None
    for place, begin, stop in hard[:doubtful].tolist():
        numbers[place] = float(bytes(data[begin:stop]))
    return numbers


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
