"""Element types: all that is known of each, in one table. A type that is added here is known everywhere.

    DTYPES["bf16"]                       2                   bytes of an element
    LONG_NAMES["bf16"]                   "bfloat16"          torch's name, and most tools'
    MINDSPORE_NAMES["bf16"]              "BFloat16"          in MindSpore's checkpoints and dumps; some types it has not
    LETTERS["bf16"]                      "<u2"               numpy's name for the memory: what numpy has not is held unsigned
    PRECISIONS["bf16"]                   (8, -126)           digits with the leading one, exponent of the smallest normal number
    short_name("torch.float8_e5m2")      "f8e5m2"            however a tool spells it
    code_values("f8e5m2")[0][0x3C]       1.0                 of the 256 codes of a type of one byte
    code_values("f4e2m1fn_x2")           two rows: the number in the low half of the byte, and the one in the high half

The names are those of torch.utils._dtype_abbrs, which readers of graphs already know.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType

from .errors import UsageError

# name: bytes, long name, MindSpore's, numpy's letters, digits, exponent of the smallest normal number, largest finite number
_TABLE: dict[str, tuple[int, str, str, str, int, int | None, float | None]] = {
    "f64": (8, "float64", "Float64", "<f8", 53, -1022, 1.7976931348623157e308),
    "f32": (4, "float32", "Float32", "<f4", 24, -126, 3.4028234663852886e38),
    "f16": (2, "float16", "Float16", "<f2", 11, -14, 65504.0),
    "bf16": (2, "bfloat16", "BFloat16", "<u2", 8, -126, 3.3895313892515355e38),
    "f8e4m3fn": (1, "float8_e4m3fn", "Float8E4M3FN", "|u1", 4, -6, 448.0),
    "f8e4m3fnuz": (1, "float8_e4m3fnuz", "", "|u1", 4, -7, 240.0),
    "f8e5m2": (1, "float8_e5m2", "Float8E5M2", "|u1", 3, -14, 57344.0),
    "f8e5m2fnuz": (1, "float8_e5m2fnuz", "", "|u1", 3, -15, 57344.0),
    "f8e8m0fnu": (1, "float8_e8m0fnu", "", "|u1", 1, -127, None),
    "f4e2m1fn_x2": (1, "float4_e2m1fn_x2", "", "|u1", 2, 0, None),
    "c32": (4, "complex32", "", "<u4", 11, None, 65504.0),
    "c64": (8, "complex64", "Complex64", "<c8", 24, None, 3.4028234663852886e38),
    "c128": (16, "complex128", "Complex128", "<c16", 53, None, 1.7976931348623157e308),
    "i8": (1, "int8", "Int8", "|i1", 0, None, None),
    "i16": (2, "int16", "Int16", "<i2", 0, None, None),
    "i32": (4, "int32", "Int32", "<i4", 0, None, None),
    "i64": (8, "int64", "Int64", "<i8", 0, None, None),
    "u8": (1, "uint8", "UInt8", "|u1", 0, None, None),
    "u16": (2, "uint16", "UInt16", "<u2", 0, None, None),
    "u32": (4, "uint32", "UInt32", "<u4", 0, None, None),
    "u64": (8, "uint64", "UInt64", "<u8", 0, None, None),
    "b8": (1, "bool", "Bool", "|b1", 0, None, None),
}

DTYPES: Mapping[str, int] = MappingProxyType({name: row[0] for name, row in _TABLE.items()})
"""Bytes of an element of each type that a trace can hold."""
LONG_NAMES: Mapping[str, str] = MappingProxyType({name: row[1] for name, row in _TABLE.items()})
MINDSPORE_NAMES: Mapping[str, str] = MappingProxyType({name: row[2] for name, row in _TABLE.items() if row[2]})
LETTERS: Mapping[str, str] = MappingProxyType({name: row[3] for name, row in _TABLE.items()})
"""Layout of the elements in memory, in numpy's letters."""
UNITS: Mapping[str, float] = MappingProxyType({name: 2.0 ** -row[4] for name, row in _TABLE.items() if row[4]})
"""Half a unit in the last place, relative. Integers are exact and are not here."""
PRECISIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {name: (row[4], row[5]) for name, row in _TABLE.items() if row[5] is not None}
)
"""Of the real floating-point types: digits, and exponent of the smallest normal number."""
LARGEST: Mapping[str, float] = MappingProxyType({name: row[6] for name, row in _TABLE.items() if row[6] is not None})
"""The largest finite number of each floating-point type (of complex ones: of a part)."""

_SHORT_NAMES = {long.replace("_", ""): name for name, long in LONG_NAMES.items()} | {
    "double": "f64", "float": "f32", "half": "f16", "long": "i64", "int": "i32", "short": "i16", "uint": "u32",
    "complexhalf": "c32", "float8e4m3": "f8e4m3fn",
}  # fmt: skip


def short_name(text: str) -> str | None:
    """`f32` for torch.float32, mindspore.float32, Float32 and float32; None for an unknown name."""
    return _SHORT_NAMES.get(text.rpartition(".")[2].lower().replace("_", "").strip())


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
