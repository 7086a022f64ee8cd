"""Statistics of tensors from sums that a device made: the same numbers as `digest.numbers_at`.

    finish(int64[tensors, 16], ["f32", …], [4096, …], wanted=True)  ->  [(low, high, mean, norm, …, fingerprint, one, two), …]

Columns of a row: A and B of the fingerprint; the lowest and the highest key (integers that order like the finite values); how
many are NaN, +Inf, -Inf, zero; then, as the bits of float64, the sum, the sum of squares, the two order sums. Squares of f64 and
c128 may leave the range of float64: those beyond 2^450 and below 2^-450 are in two columns of their own, times 2^-1200 and
2^1200, and a last one has the sum times 2^-600.
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
    nbytes = np.array(sizes, np.int64)
    prints = _seal(rows[:, :2].view(np.uint64), nbytes.view(np.uint64)) if wanted else ""
    # All at once what can be: a step has a thousand of them, and the training waits.
    finite = nbytes * 2 // np.array([_HALF_BYTES[dtype] for dtype in dtypes]) - rows[:, 4:7].sum(1)
    reals = np.ascontiguousarray(rows[:, 8:]).view(np.float64) + 0.0
    with np.errstate(all="ignore"):
        means = (reals[:, 0] / np.maximum(finite, 1) + 0.0).tolist()
        norms = np.sqrt(reals[:, 1]).tolist()
    singles = _single_values(rows[:, 2:4]).tolist()
    special = ((reals[:, 4:6] != 0).any(1) | ~np.isfinite(reals[:, :4]).all(1)).tolist()
    digests: list[Found] = []
    for i, (whole, real) in enumerate(zip(rows[:, 2:8].tolist(), reals.tolist(), strict=True)):
        low, high, nan, posinf, neginf, zero = whole
        text = prints[32 * i : 32 * i + 32] if wanted else None
        count = int(finite[i])
        if not count:
            digests.append((None, None, None, None, nan, posinf, neginf, zero, text, None, None))
            continue
        mean, norm, one, two = means[i], norms[i], real[2], real[3]
        if special[i]:
            mean, norm = _rescaled(mean, real[1], real[4], real[5], real[6] / count)
            one, two = (one, two) if math.isfinite(one) and math.isfinite(two) else (None, None)
        dtype = dtypes[i]
        if dtype in _SINGLE_KEYS:
            low, high = singles[i]
        else:
            low, high = _value(dtype, low), _value(dtype, high)
        digests.append((low, high, mean, norm, nan, posinf, neginf, zero, text, one, two))
    return digests


class Kinds:
    """Element types and sizes of tensors whose sums come again and again, one step after the other."""

    def __init__(self, dtypes: Sequence[str], sizes: Sequence[int]) -> None:
        self.sizes = np.array(sizes, np.int64)
        self.elements = self.sizes * 2 // np.array([_HALF_BYTES[dtype] for dtype in dtypes], np.int64)
        named = np.array(dtypes, object)
        self.singles = np.flatnonzero(np.isin(named, list(_SINGLE_KEYS)))
        self.others = [
            (dtype, np.flatnonzero(named == dtype)) for dtype in sorted(set(dtypes)) if dtype not in _SINGLE_KEYS
        ]


def columns(
    rows: NDArray[np.int64], kinds: Kinds, wanted: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """The same as `finish` in columns, for those tensors of which all numbers are ordinary.

    Returns:
        fingerprints u1[n, 16]; low, high, mean, norm and the two order sums, f8[6, n]; nan, posinf, neginf and zero, i8[4, n];
        True for each tensor of which these are what `finish` says, exactly.
    """
    prints = np.zeros((len(rows), 16), np.uint8)
    if wanted and len(rows):
        prints = _sealed(rows[:, :2].view(np.uint64), kinds.sizes.view(np.uint64))
    finite = kinds.elements - rows[:, 4:7].sum(1)
    reals = np.ascontiguousarray(rows[:, 8:].T).view(np.float64) + 0.0
    table = np.zeros((6, len(rows)))
    with np.errstate(all="ignore"):
        table[2] = reals[0] / np.maximum(finite, 1) + 0.0
        table[3] = np.sqrt(reals[1])
    table[4:] = reals[2:4]
    usual = (finite > 0) & (reals[4] == 0) & (reals[5] == 0) & np.isfinite(reals[:4]).all(0)
    if len(kinds.singles):
        table[:2, kinds.singles] = _single_values(rows[kinds.singles, 2:4]).T
    for dtype, chosen in kinds.others:
        told = [
            [_value(dtype, key) for key in pair] if usual[i] else [0, 0]
            for i, pair in zip(chosen.tolist(), rows[chosen, 2:4].tolist(), strict=True)
        ]
        table[:2, chosen] = np.array(told, np.float64).reshape(-1, 2).T
        if dtype in ("i64", "u64"):  # beyond 2^53 float64 has not all of them
            usual[chosen] &= [max(map(abs, pair)) <= 2**53 for pair in told]
    return prints, table, np.ascontiguousarray(rows[:, 4:8].T), usual


_HALF_BYTES = {dtype: 1 if dtype == "f4e2m1fn_x2" else 2 * size for dtype, size in DTYPES.items()}
_SINGLE_KEYS = frozenset(("f32", "bf16"))


def _single_values(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values of keys, taken for those of f32; zeros have no sign."""
    bits = np.where(keys < 0, keys ^ 0x7FFFFFFF, keys).astype(np.int32)
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(np.float64) + 0.0


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
    return _sealed(sums, sizes).tobytes().hex()


def _sealed(sums: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The bytes of the fingerprints, u1[n, 16]."""
    upper = _avalanche(sums[:, 0] + sizes * np.uint64(STEP))
    lower = _avalanche(sums[:, 1] ^ (upper << np.uint64(32) | upper >> np.uint64(32)))
    return np.stack([upper, lower], 1).astype(">u8").view(np.uint8)


def _avalanche(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ z >> np.uint64(30)) * np.uint64(FIRST)
    z = (z ^ z >> np.uint64(27)) * np.uint64(SECOND)
    return z ^ z >> np.uint64(31)
