"""Values of the 256 codes of a one-byte element type.

    code_values("f8e5m2")[0][0x3C]       1.0
    code_values("f4e2m1fn_x2")           two rows: the number in the low half of the byte, and the one in the high half

Exact, as every one of these numbers is a float64. Two rooms read bytes (the archive for statistics, the scales for errors),
and neither has a door to the other; so the tables are here, without numpy.
"""

from __future__ import annotations

import functools
import math

from .errors import UsageError


@functools.cache
def code_values(dtype: str) -> tuple[tuple[float, ...], ...]:
    """One row of 256 values, two where a byte holds two."""
    codes = range(256)
    match dtype:
        case "u8":
            return (tuple(float(code) for code in codes),)
        case "i8":
            return (tuple(float(code - 256 if code > 127 else code) for code in codes),)
        case "b8":
            return (tuple(float(code != 0) for code in codes),)
        case "f8e8m0fnu":
            return (tuple(math.nan if code == 255 else 2.0 ** (code - 127) for code in codes),)
        case "f4e2m1fn_x2":
            nibbles = [_small_float(code, exponent=2, mantissa=1, bias=1) for code in range(16)]
            return tuple(nibbles[code & 15] for code in codes), tuple(nibbles[code >> 4] for code in codes)
        case "f8e4m3fn":
            row = [_small_float(code, exponent=4, mantissa=3, bias=7) for code in codes]
            row[0x7F] = row[0xFF] = math.nan
        case "f8e5m2":
            row = [_small_float(code, exponent=5, mantissa=2, bias=15) for code in codes]
            row[0x7C], row[0xFC] = math.inf, -math.inf
            for code in (0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF):
                row[code] = math.nan
        case "f8e4m3fnuz" | "f8e5m2fnuz":  # no infinity, no negative zero: its code is the one NaN
            exponent = int(dtype[3])
            row = [_small_float(code, exponent, 7 - exponent, bias=2 ** (exponent - 1)) for code in codes]
            row[0x80] = math.nan
        case _:
            raise UsageError(f"{dtype} is not an element type of one byte.")
    return (tuple(row),)


def _small_float(code: int, exponent: int, mantissa: int, bias: int) -> float:
    sign = -1.0 if code >> (exponent + mantissa) else 1.0
    power = (code >> mantissa) & ((1 << exponent) - 1)
    fraction = (code & ((1 << mantissa) - 1)) / (1 << mantissa)
    return sign * (math.ldexp(1 + fraction, power - bias) if power else math.ldexp(fraction, 1 - bias))
