"""What a device's sums say of tensors: the same numbers as `digest.numbers_at`, from sums that were made where the tensors lie.

    finish(int64[tensors, 16], ["f32", …], [4096, …], wanted=True)  ->  [(low, high, mean, norm, …, fingerprint, one, two), …]

Columns of a row: A and B of the fingerprint; the lowest and the highest key (integers that order like the finite values);
how many are NaN,
+Inf, -Inf, zero; then, as the bits of float64, the sum, the sum of squares, the two order sums. Squares of f64 and c128 may leave
the range of float64: those beyond 2^450 and below 2^-450 are in two columns of their own, times 2^-1200 and 2^1200, and a
last one has
the sum times 2^-600.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..model.fingerprints import FIRST, SECOND, STEP
from ..model.tensors import DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .digest import Found

COLUMNS = 16
_WHOLE = frozenset(("i8", "u8", "b8"))  # of one byte, and looked up: their keys are those of f32


def finish(rows: NDArray[np.int64], dtypes: Sequence[str], sizes: Sequence[int], wanted: bool) -> list[Found]:
    """The numbers of each tensor: rows of sums, element types, bytes. `wanted`: a fingerprint as well."""
    prints = _seal(rows[:, :2].view(np.uint64), np.array(sizes, np.uint64)) if wanted else ""
    reals = np.ascontiguousarray(rows[:, 8:]).view(np.float64).tolist()
    found: list[Found] = []
    for i, (whole, real) in enumerate(zip(rows[:, :8].tolist(), reals, strict=True)):
        dtype = dtypes[i]
        _, _, low, high, nan, posinf, neginf, zero = whole
        count = sizes[i] * (2 if dtype == "f4e2m1fn_x2" else 1) // DTYPES[dtype]
        finite = count - nan - posinf - neginf
        text = prints[32 * i : 32 * i + 32] if wanted else None
        if not finite:
            found.append((None, None, None, None, nan, posinf, neginf, zero, text, None, None))
            continue
        total, squares, one, two, large, small, scaled, _ = real
        mean, norm = total / finite + 0.0, math.sqrt(squares)
        if large or small or not math.isfinite(total):
            mean, norm = _rescaled(mean, squares, large, small, scaled / finite)
        ends = _value(dtype, low), _value(dtype, high)
        order = (one + 0.0, two + 0.0) if math.isfinite(one) and math.isfinite(two) else (None, None)
        found.append((*ends, mean, norm, nan, posinf, neginf, zero, text, *order))
    return found


def _rescaled(mean: float, squares: float, large: float, small: float, scaled: float) -> tuple[float, float]:
    """Mean and norm where some squares are out of range."""
    if not math.isfinite(mean):
        mean = math.ldexp(scaled, 600) if abs(scaled) < 2.0**424 else math.copysign(math.inf, scaled)
    if large:
        root = math.sqrt(large + squares * 2.0**-600 * 2.0**-600)
        return mean, root * 2.0**600 if root < 2.0**424 else math.inf
    if squares > 2.0**-800:  # then the small ones are below the last digit
        return mean, math.sqrt(squares)
    return mean, math.sqrt(small + squares * 2.0**600 * 2.0**600) * 2.0**-600


def _value(dtype: str, key: int) -> float | int:
    """The value of a key; zeros have no sign."""
    match dtype:
        case "i16" | "u16" | "i32" | "u32" | "i64":
            return key
        case "u64":
            return key + (1 << 63)
        case "f64":
            return float(_DOUBLE(_QUAD((key ^ 0x7FFFFFFFFFFFFFFF) if key < 0 else key))[0]) + 0.0
        case "c32" | "c64" | "c128":
            return float(_DOUBLE(_QUAD(key))[0]) + 0.0
        case "f16":
            return float(_HALF(_SHORT((key ^ 0x7FFF) if key < 0 else key))[0]) + 0.0
    value = float(_SINGLE(_INT((key ^ 0x7FFFFFFF) if key < 0 else key))[0]) + 0.0
    return int(value) if dtype in _WHOLE else value


_QUAD, _DOUBLE = struct.Struct("<q").pack, struct.Struct("<d").unpack
_INT, _SINGLE = struct.Struct("<i").pack, struct.Struct("<f").unpack
_SHORT, _HALF = struct.Struct("<h").pack, struct.Struct("<e").unpack


def _seal(sums: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> str:
    """The fingerprints, one after the other."""
    upper = _avalanche(sums[:, 0] + sizes * np.uint64(STEP))
    lower = _avalanche(sums[:, 1] ^ (upper << np.uint64(32) | upper >> np.uint64(32)))
    return np.stack([upper, lower], 1).astype(">u8").tobytes().hex()


def _avalanche(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ z >> np.uint64(30)) * np.uint64(FIRST)
    z = (z ^ z >> np.uint64(27)) * np.uint64(SECOND)
    return z ^ z >> np.uint64(31)
