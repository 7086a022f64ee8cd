"""Bytes of every element type, and what they mean: read with `struct` and fractions, knowing nothing of the code under test.

READ["bf16"](raw)          the values as Python numbers; complex ones as pairs
ordinary("bf16", 100)      the bytes of values as training has them
SPECIAL["bf16"]            those of the odd ones: subnormals, zeros of both signs, infinities, NaN
root(Fraction(2))          a square root with fifty digits, rounded once
"""

import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from twintrace.store.arrays import STORAGE

INF, NAN = math.inf, math.nan


def small(exponent: int, mantissa: int, bias: int, special: dict[int, float]) -> Callable[[bytes], list[float]]:
    values = []
    for code in range(256):
        power, digits = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
        significand = digits + (1 << mantissa if power else 0)
        value = float(significand * Fraction(2) ** (max(power, 1) - bias - mantissa))
        values.append(special.get(code, -value if code >> 7 else value))
    return lambda raw: [values[code] for code in raw]


def packed(code: str) -> Callable[[bytes], list]:
    return lambda raw: [value for (value,) in struct.iter_unpack("<" + code, raw)]


def pairs(code: str) -> Callable[[bytes], list[tuple[float, float]]]:
    return lambda raw: list(struct.iter_unpack("<2" + code, raw))


def brain(raw: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + raw[i : i + 2])[0] for i in range(0, len(raw), 2)]


def nibbles(raw: bytes) -> list[float]:
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    values += [-value for value in values]
    return [values[nibble] for code in raw for nibble in (code & 15, code >> 4)]


READ: dict[str, Callable[[bytes], list]] = {
    "f64": packed("d"), "f32": packed("f"), "f16": packed("e"), "bf16": brain,
    "f8e4m3fn": small(4, 3, 7, {0x7F: NAN, 0xFF: NAN}),
    "f8e4m3fnuz": small(4, 3, 8, {0x80: NAN}),
    "f8e5m2": small(5, 2, 15, {0x7C: INF, 0xFC: -INF} | dict.fromkeys([0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF], NAN)),
    "f8e5m2fnuz": small(5, 2, 16, {0x80: NAN}),
    "f8e8m0fnu": lambda raw: [NAN if code == 255 else float(Fraction(2) ** (code - 127)) for code in raw],
    "f4e2m1fn_x2": nibbles,
    "c32": pairs("e"), "c64": pairs("f"), "c128": pairs("d"),
    "i8": packed("b"), "i16": packed("h"), "i32": packed("i"), "i64": packed("q"),
    "u8": packed("B"), "u16": packed("H"), "u32": packed("I"), "u64": packed("Q"),
    "b8": lambda raw: [int(code != 0) for code in raw],
}  # fmt: skip


def root(square: Fraction) -> float:
    with localcontext(Context(prec=50, Emin=-9999, Emax=9999)):
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


rng = np.random.default_rng(20240229)


def held(raw: bytes, dtype: str) -> np.ndarray:
    return np.frombuffer(raw, STORAGE[dtype])


def ordinary(dtype: str, count: int) -> bytes:
    """Values as training has them: finite, of both signs, some zero."""
    values = rng.standard_normal(2 * count) * (rng.random(2 * count) < 0.9)
    match dtype:
        case "f64" | "f32" | "f16":
            return values[:count].astype(STORAGE[dtype]).tobytes()
        case "bf16":
            return (values[:count].astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        case "c32" | "c64" | "c128":
            return values.astype({"c32": "f2", "c64": "f4", "c128": "f8"}[dtype]).tobytes()
        case "b8":
            return (values[:count] > 0).tobytes()
        case _ if dtype[0] in "iu":
            return np.abs(values[:count] * 50).astype(STORAGE[dtype]).tobytes()
        case _:
            return rng.integers(0, 0x70, count).astype(np.uint8).tobytes()


def bits(code: str, *values: int) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *values)


SPECIAL = {
    # subnormals, ±0, largest, ±Inf, a quiet and a signalling NaN
    "f64": bits("Q", 1, 1 << 63 | 1, 0, 1 << 63, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 0x7FF0000000000001),
    "f32": bits("I", 1, 0x80000001, 0, 0x80000000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001),
    "f16": bits("H", 1, 0x8001, 0x3FF, 0x83FF, 0x400, 0, 0x8000, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFC01),
    "bf16": bits("H", 1, 0x8001, 0, 0x8000, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFF81),
    # NaN beside Inf is NaN; -Inf is as far away as Inf; one zero part is not zero
    "c32": struct.pack("<12e", NAN, INF, -INF, 1, 0, -INF, 0, -0.0, 0, 2, 6e-8, 6e-8),
    "c64": struct.pack("<12f", NAN, INF, -INF, 1, 0, -INF, 0, -0.0, 0, 2, 1e-45, 1e-45),
    "c128": struct.pack("<12d", NAN, INF, -INF, 1, 0, -INF, 0, -0.0, 0, 1e300, 5e-324, 5e-324),
    # no float64 holds the largest of these
    "i64": bits("q", -(2**63), 2**63 - 1, -(2**63) + 1, 2**53 + 1, 0),
    "u64": bits("Q", 2**64 - 1, 2**64 - 2, 2**63, 1),
    "i32": bits("i", -(2**31), 2**31 - 1),
    "u32": bits("I", 2**32 - 1, 2**31),
    "b8": bytes([0, 1, 2, 255]),
}  # fmt: skip
