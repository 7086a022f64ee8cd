"""The values of two items, measured: the six numbers that a tensor's row has.

    measure_pair(npu, bench, pair)      Measured(cells=(0.999999, 0.363, 0.0045, 92.36, 0.4998, 0.8736))

The numbers are the project's own (docs/reference/metrics.md); the embassy's are which of them, and how they are written:
twelve decimals, six for a cosine above 0.9999. The bench is what is divided by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .... import api
from ....model.errors import TwintraceError
from ....model.measurements import Measurement
from ....model.pairs import Layout
from ....store.arrays import as_float
from ..dumps import Dump, Item
from .pairing import ItemPair

Cell: TypeAlias = "str | float"
Array: TypeAlias = "np.ndarray[Any, Any]"
NOTHING, _UNSUPPORTED, _UNMATCHED, _NAN = "N/A", "unsupported", "shape unmatched", "Nan"
_SMALLEST = float(np.finfo(float).eps)  # a norm up to this counts as that of a zero vector
_ROUNDED_ABOVE = 0.9999
_SINGLE = {"f32", "bf16"}
_AT_MOST_24_DIGITS = ("f32", "f16", "bf16", "f8", "f4")
_BLOCK = 1 << 17  # elements; smaller ones cost more in calls of numpy than they save in cache
_EMPTY = "There are no elements."


@dataclass(frozen=True, slots=True)
class Measured:
    """Cosine, EucDist, MaxAbsErr, MaxRelativeErr and the two shares, or words in their place."""

    cells: tuple[Cell, ...]
    unread: str = ""
    """Why values that should have been compared were not."""
    remark: str = ""


def measure_pair(npu: Dump, bench: Dump, pair: ItemPair) -> Measured:
    """Read both sides and compare them. Whatever cannot be read is said, not raised."""
    one, two = pair.npu, pair.bench
    if one is None or two is None:
        return _words(_UNSUPPORTED)
    if one.problem or two.problem or one.shape is None or two.shape is None:  # what is no tensor is in the JSON
        return _words(_UNSUPPORTED)
    missing = [which for item, which in ((one, "NPU"), (two, "bench")) if item.data_name is None]
    if missing and (_holds_values(one) or _holds_values(two)):
        return _words(
            _UNSUPPORTED, unread=f"No values were kept of it on the side of the {' and of the '.join(missing)}."
        )
    if missing:
        return _words(_UNSUPPORTED, remark=_EMPTY)
    try:
        (left, left_dtype), (right, right_dtype) = bench.stored(two), npu.stored(one)
    except TwintraceError as error:
        return _words(_UNSUPPORTED, unread=str(error))
    odd = [*_misshapen(npu, one, right), *_misshapen(bench, two, left)]
    if odd:
        return _words(_UNSUPPORTED, unread=" ".join(odd))
    left, right = np.squeeze(_laid(left, pair.layout, right)), np.squeeze(right)
    if left.shape != right.shape:
        shapes = f"{[*one.shape]} | {[*two.shape]}"
        return _words(_UNMATCHED, remark=f"The shapes do not fit on each other: {shapes}. Nothing was compared.")
    if not left.size:
        return _words(_UNSUPPORTED, remark=_EMPTY)
    return _measured(left, left_dtype, right, right_dtype)


def _misshapen(dump: Dump, item: Item, array: Array) -> Iterator[str]:
    """Says so if a file is another one than the dump speaks of; axes of one element do not matter."""
    if item.shape is not None and [n for n in item.shape if n != 1] != [n for n in array.shape if n != 1]:
        yield (
            f"{dump.file(item)}: expected shape {[*item.shape]}, which {dump.path.name} says, got {[*array.shape]}. "
            f"The file is damaged, or another one."
        )


def _measured(left: Array, left_dtype: str, right: Array, right_dtype: str) -> Measured:
    measured = api.measure(left, right, left_dtype, right_dtype, rtol=0.0, atol=0.0)
    if measured.count - measured.finite != measured.nan_both + measured.inf_both:
        return _words(NOTHING, remark="NaN or infinities stand in other places on the two sides.")
    relative, one, five = 0.0, 1.0, 1.0
    if measured.equal < measured.count:
        relative, one, five = relative_errors(left, right, left_dtype, right_dtype)
    error = measured.max_abs or 0.0
    remark = "" if left_dtype == right_dtype else f"The element types differ: {right_dtype} and {left_dtype}."
    cells: tuple[Cell, ...]
    if not left.ndim:
        largest = _written(_rounded(error, left_dtype, right_dtype)), _written(relative)
        note = "One element: no direction, no shares."
        cells = (_UNSUPPORTED, _UNSUPPORTED, *largest, _UNSUPPORTED, _UNSUPPORTED)
        return Measured(cells, remark=f"{note} {remark}".strip())
    cosine, why = _cosine(measured)
    cells = (cosine, measured.euclidean or 0.0, *map(_written, (error, relative, one, five)))
    return Measured(cells, remark=f"{why} {remark}".strip())


def relative_errors(left: Array, right: Array, left_dtype: str, right_dtype: str) -> tuple[float, float, float]:
    """The largest relative error, and the shares of elements below 1/1000 and 5/1000, as the tool defines them.

    The arithmetic is that of the elements: float32 where neither type has more digits, float64 otherwise. Where the left element
    is 0, the smallest step at 1 is added to both sides first. What is not finite has an error of 0 where both sides are alike;
    otherwise it is in no share, and not in the maximum.
    """
    kind: Any = (
        np.float32 if all(dtype.startswith(_AT_MOST_24_DIGITS) for dtype in (left_dtype, right_dtype)) else np.float64
    )
    step = np.finfo(kind).eps
    most, below, count, sides = 0.0, [0, 0], 0, ((left.reshape(-1), left_dtype), (right.reshape(-1), right_dtype))
    with np.errstate(all="ignore"):
        for start in range(0, left.size, _BLOCK):
            ones, twos = (as_float(array[start : start + _BLOCK], dtype).reshape(-1) for array, dtype in sides)
            if np.iscomplexobj(ones) or np.iscomplexobj(twos):
                wide = ones.astype(np.complex128), twos.astype(np.complex128)
                size = np.abs(wide[0])
                ratio = np.abs(wide[1] - wide[0]) / np.where(size == 0, step, size)
            else:
                beneath, above = ones.astype(kind, copy=False), twos.astype(kind, copy=False)
                if not beneath.all():
                    shift = np.where(beneath == 0, step, kind(0))
                    beneath, above = beneath + shift, above + shift
                ratio = above - beneath
                ratio /= beneath
                np.abs(ratio, out=ratio)
            unlike, largest = 0, float(ratio.max())
            if not math.isfinite(largest):  # of something that is not finite; or too large, which changes nothing
                odd = ~(np.isfinite(np.abs(ones)) & np.isfinite(np.abs(twos)))
                unlike = np.count_nonzero(odd & (ones != twos) & ~(np.isnan(ones) & np.isnan(twos)))
                ratio[odd] = 0
                largest = float(ratio.max())
            most, count = max(most, largest), count + ratio.size  # of packed types two elements are one of the array's
            for number, bound in enumerate((0.001, 0.005)):  # where the largest is below a bound, so are all
                below[number] += (
                    ratio.size if largest < kind(bound) else np.count_nonzero(ratio < kind(bound))
                ) - unlike
    return most, below[0] / count, below[1] / count


def _cosine(measured: Measurement) -> tuple[Cell, str]:
    size = math.sqrt(measured.finite)
    bench, npu = ((rms or 0.0) * size for rms in (measured.rms_left, measured.rms_right))
    if bench <= _SMALLEST and npu <= _SMALLEST:
        return 1.0, ""
    if bench <= _SMALLEST or npu <= _SMALLEST:
        return _NAN, f"All values of the {'bench' if bench <= _SMALLEST else 'NPU'} are zero: there is no cosine."
    cosine = _written(measured.cosine if measured.cosine is not None else math.nan)
    return round(cosine, 6) if cosine > _ROUNDED_ABOVE else cosine, ""


def _rounded(error: float, left_dtype: str, right_dtype: str) -> float:
    """The error of a single element is taken in its own type, not in float64."""
    if {left_dtype, right_dtype} <= _SINGLE:
        return float(np.float32(error))
    return float(np.float16(error)) if {left_dtype, right_dtype} == {"f16"} else error


def _written(value: float) -> float:
    return float(f"{value:.12f}")


def _laid(array: Array, layout: Layout, other: Array) -> Array:
    """The bench as it lies on the npu, without a copy where that is possible."""
    if layout.axes is not None and sorted(layout.axes) == [*range(array.ndim)]:
        array = array.transpose(layout.axes)
    return array.reshape(other.shape) if layout.reshaped and array.size == other.size else array


def _holds_values(item: Item) -> bool:
    return item.shape is not None and math.prod(item.shape) > 0


def _words(word: str, *, unread: str = "", remark: str = "") -> Measured:
    return Measured((word,) * 6, unread, remark)
