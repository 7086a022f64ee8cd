"""The pass over both arrays in numpy, block by block: for machines without numba, and to check the kernel by.

accumulate(count, left, right, …)   fills `counts`, `numbers`, `heat` and `blemish` as `totals.py` says
blocks(count, left, right)     both sides and their errors as float64, a block at a time
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.measurements import HISTOGRAM_EDGES
from . import totals
from .formats import BF16, I64, PAIRS, TABLE, U64, Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BLOCK = 1 << 15  # elements, even: temporaries of 256 KiB
_EDGES = np.array([10.0**power for power in HISTOGRAM_EDGES])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some elements from `start` on. Of complex numbers `left`, `right` are moduli, and the parts are beside them."""

    start: int
    left: Floats
    right: Floats
    error: Floats
    left_parts: Floats | None
    right_parts: Floats | None


def blocks(
    count: int, left: NDArray[Any], left_form: Form, right: NDArray[Any], right_form: Form, exact: bool
) -> Iterator[Block]:
    """Both sides in the order of their own row-major elements, which need not be side by side."""
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        ones, twos = _raw(left, left_form, start, stop), _raw(right, right_form, start, stop)
        one, two = _decoded(ones, left_form), _decoded(twos, right_form)
        if left_form.parts == 2 or right_form.parts == 2:
            one = one if left_form.parts == 2 else _spread(one)
            two = two if right_form.parts == 2 else _spread(two)
            yield Block(start, _moduli(one), _moduli(two), _moduli(two - one), one, two)
        elif exact:
            yield Block(start, one, two, _distances(ones, one, left_form, twos, two, right_form), None, None)
        else:
            yield Block(start, one, two, np.abs(two - one), None, None)


def accumulate(
    count: int,
    left: NDArray[Any],
    left_form: Form,
    right: NDArray[Any],
    right_form: Form,
    exact: bool,
    rtol: float,
    atol: float,
    least: int | None,
    counts: NDArray[np.int64],
    numbers: Floats,
    heat: Floats,
    blemish: NDArray[np.bool_],
    width: int,
) -> None:
    """One pass. `least` is the exponent of the smallest normal number, None where there is no last place."""
    with np.errstate(all="ignore"):
        for block in blocks(count, left, left_form, right, right_form, exact):
            one, two, error = block.left, block.right, block.error
            regular = np.isfinite(one) & np.isfinite(two)
            place = np.arange(block.start, block.start + one.size)
            cell = _cells(place, count, width, heat.shape) if heat.size else None
            if not regular.all():
                same = _set_aside(block, ~regular, counts)
                if cell is not None:
                    blemish.reshape(-1)[cell[~regular][~same]] = True
                one, two, error, place = one[regular], two[regular], error[regular], place[regular]
                cell = None if cell is None else cell[regular]
            if not one.size:
                continue
            if block.left_parts is None or block.right_parts is None:
                products = one * two
                counts[totals.FLIPS] += np.count_nonzero(((one < 0) & (two > 0)) | ((one > 0) & (two < 0)))
            else:
                kept = np.repeat(regular, 2)
                products = block.left_parts[kept] * block.right_parts[kept]
            size = np.abs(one)
            defined = size > 0
            ratio = np.where(defined, error / np.where(defined, size, 1.0), error)
            equal = error == 0
            counts[totals.EQUAL] += np.count_nonzero(equal)
            counts[totals.CLOSE] += np.count_nonzero(error <= atol + rtol * size)
            counts[totals.ONE_THOUSANDTH] += np.count_nonzero(equal | (defined & (ratio < 0.001)))
            counts[totals.FIVE_THOUSANDTHS] += np.count_nonzero(equal | (defined & (ratio < 0.005)))
            counts[totals.RATIOS] += np.count_nonzero(defined)
            bins = np.where(equal, 0, 1 + np.searchsorted(_EDGES, ratio, side="right"))
            counts[totals.HISTOGRAM :] += np.bincount(bins, minlength=totals.BINS)

            numbers[totals.SUM_ERRORS] += error.sum()
            numbers[totals.SUM_SQUARES] += np.square(error).sum()
            numbers[totals.SUM_LEFT] += np.square(one).sum()
            numbers[totals.SUM_RIGHT] += np.square(two).sum()
            numbers[totals.SUM_PRODUCTS] += products.sum()
            numbers[totals.SUM_RATIOS] += ratio[defined].sum()
            worst = int(error.argmax())
            if error[worst] > numbers[totals.LARGEST_ERROR]:
                counts[totals.WORST] = place[worst]
                numbers[totals.LARGEST_ERROR] = error[worst]
            _raise(numbers, totals.LARGEST_LEFT, size)
            _raise(numbers, totals.LARGEST_RIGHT, np.abs(two))
            _raise(numbers, totals.LARGEST_RATIO, ratio[defined])
            if least is not None:
                power = np.maximum(np.frexp(np.maximum(size, np.abs(two)))[1] - 1, least)
                _raise(numbers, totals.LARGEST_STEP, error / np.ldexp(1.0, power))
            if cell is not None:
                np.maximum.at(heat.reshape(-1), cell, error)


def scaled_sums(block: Block, left: int, right: int, error: int) -> tuple[float, float, float, float, float]:
    """Squares of left and right, products, errors and their squares, with each side divided by its power of two."""
    regular = np.isfinite(block.left) & np.isfinite(block.right)
    one, two = np.ldexp(block.left, -left)[regular], np.ldexp(block.right, -right)[regular]
    small = np.ldexp(block.error, -error)[regular]
    ones, twos = block.left, block.right
    if block.left_parts is not None and block.right_parts is not None:
        ones, twos, regular = block.left_parts, block.right_parts, np.repeat(regular, 2)
    ones, twos = ones[regular], twos[regular]
    if np.isinf(small).any():  # two values that are finite, and their distance is not
        small = np.ldexp(twos, -error) - np.ldexp(ones, -error)
        small = np.abs(small) if block.left_parts is None else _moduli(small)
    products = float((np.ldexp(ones, -left) * np.ldexp(twos, -right)).sum())
    return (
        float(np.square(one).sum()),
        float(np.square(two).sum()),
        products,
        float(small.sum()),
        float(np.square(small).sum()),
    )


def element(array: NDArray[Any], form: Form, place: int) -> float | int:
    """One element: an integer exactly, of a complex number the modulus."""
    if form.packed:
        return float(form.table[place % 2, array.item(place // 2)])
    value = array.item(place)
    if form.dtype == "c32":
        value = complex(*np.array([value], "<u4").view("<f2").tolist())
    if isinstance(value, complex):
        return math.hypot(value.real, value.imag)
    if form.dtype == "bf16":
        return float(np.array([value << 16], np.uint32).view(np.float32)[0])
    if form.code == TABLE and form.precision:
        return float(form.table[0, value])
    return value if isinstance(value, float) else int(value)


def _raise(numbers: Floats, place: int, values: Floats) -> None:
    numbers[place] = max(numbers[place], values.max(initial=0.0))


def _set_aside(block: Block, odd: NDArray[np.bool_], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Count what is not finite; which of it is the same on both sides."""
    one, two = block.left[odd], block.right[odd]
    nan_left, nan_right, inf_left, inf_right = np.isnan(one), np.isnan(two), np.isinf(one), np.isinf(two)
    same = _alike(block, odd)
    nan_both = nan_left & nan_right
    inf_both = same & ~nan_both
    for place, count in (
        (totals.NOT_FINITE, odd),
        (totals.NAN_LEFT, nan_left),
        (totals.NAN_RIGHT, nan_right),
        (totals.NAN_BOTH, nan_both),
        (totals.INF_LEFT, inf_left),
        (totals.INF_RIGHT, inf_right),
        (totals.INF_BOTH, inf_both),
    ):
        counts[place] += np.count_nonzero(count)
    for place in (totals.EQUAL, totals.CLOSE, totals.ONE_THOUSANDTH, totals.FIVE_THOUSANDTHS):
        counts[place] += np.count_nonzero(same)
    return same


def _alike(block: Block, odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the elements that are not finite are the same on both sides: NaN beside NaN, an infinity beside itself."""
    one, two = block.left[odd], block.right[odd]
    equal = one == two
    if block.left_parts is not None and block.right_parts is not None:
        equal = (block.left_parts == block.right_parts).reshape(-1, 2).all(axis=1)[odd]
    same: NDArray[np.bool_] = (np.isnan(one) & np.isnan(two)) | (np.isinf(one) & np.isinf(two) & equal)
    return same


def _cells(place: NDArray[np.int64], count: int, width: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    rows, columns = shape
    height = -(-count // width)
    return (place // width) * rows // height * columns + (place % width) * columns // width


# Decoding ----------------------------------------------------------------------------------------------------------


def _raw(array: NDArray[Any], form: Form, start: int, stop: int) -> NDArray[Any]:
    """Elements in the storage type, in row-major order whatever the strides are. `flat` copies only what is asked for."""
    if form.packed:
        start, stop = start // 2, (stop + 1) // 2
    return np.asarray(array.flat[start:stop])


def _decoded(raw: NDArray[Any], form: Form) -> Floats:
    values: Floats
    if form.code in (TABLE, PAIRS):
        values = form.table[:, raw.view(np.uint8)].T.reshape(-1)
    elif form.code == BF16:
        values = (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    elif form.parts == 2:
        values = raw.view(np.dtype(f"<f{form.size // 2}")).astype(np.float64)
    else:
        values = raw.astype(np.float64)
    return values


def _spread(values: Floats) -> Floats:
    parts = np.zeros(2 * values.size)
    parts[0::2] = values
    return parts


def _moduli(parts: Floats) -> Floats:
    # Scaled by powers of two, so that squares stay in range: numpy.hypot would do, but differs from machine to machine.
    real, imaginary = parts[0::2], parts[1::2]
    largest = np.maximum(np.abs(real), np.abs(imaginary))
    scale = np.where(largest > 2.0**500, 2.0**-600, np.where(largest < 2.0**-500, 2.0**600, 1.0))
    real, imaginary = real * scale, imaginary * scale
    # NaN in one part makes the sum NaN even beside an infinity.
    modulus: Floats = np.sqrt(real * real + imaginary * imaginary) / scale
    return modulus


def _distances(ones: NDArray[Any], one: Floats, left: Form, twos: NDArray[Any], two: Floats, right: Form) -> Floats:
    """The exact distance of two integers, rounded once: 2^63 and 2^63 - 1 are not equal, though their float64 are."""
    big, small = _magnitudes(ones, one, left), _magnitudes(twos, two, right)
    near = np.where(big > small, big - small, small - big).astype(np.float64)
    return np.where((one < 0) == (two < 0), near, big.astype(np.float64) + small.astype(np.float64))


def _magnitudes(raw: NDArray[Any], values: Floats, form: Form) -> NDArray[np.uint64]:
    if form.code == U64:
        return raw.astype(np.uint64)
    if form.code == I64:
        bits = raw.astype(np.int64).view(np.uint64)
        return np.where(raw < 0, np.uint64(0) - bits, bits)
    return np.abs(values).astype(np.uint64)
