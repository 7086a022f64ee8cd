"""The values of two items, weighed: the six numbers that a tensor's row has.

    weigh(npu, bench, pair)      Weighed(cells=(0.999999, 0.363, 0.0045, 92.36, 0.4998, 0.8736))

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
from ..dumps import Dump, Item
from .pairing import ItemPair

__all__ = ["Weighed", "weigh"]

Cell: TypeAlias = "str | float"
Array: TypeAlias = "np.ndarray[Any, Any]"
NOTHING, _UNSUPPORTED, _UNMATCHED, _NAN = "N/A", "unsupported", "shape unmatched", "Nan"
_SMALLEST = float(np.finfo(float).eps)  # a norm up to this counts as that of a zero vector
_ROUNDED_ABOVE = 0.9999
_SINGLE = {"f32", "bf16"}
_EMPTY = "There are no elements."


@dataclass(frozen=True, slots=True)
class Weighed:
    """Cosine, EucDist, MaxAbsErr, MaxRelativeErr and the two shares, or words in their place."""

    cells: tuple[Cell, ...]
    unread: str = ""
    """Why values that should have been compared were not."""
    remark: str = ""


def weigh(npu: Dump, bench: Dump, pair: ItemPair) -> Weighed:
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
    return _weighed(left, left_dtype, right, right_dtype)


def _misshapen(dump: Dump, item: Item, array: Array) -> Iterator[str]:
    """Says so if a file is another one than the dump speaks of; axes of one element do not matter."""
    if item.shape is not None and [n for n in item.shape if n != 1] != [n for n in array.shape if n != 1]:
        yield (
            f"{dump.file(item)}: expected shape {[*item.shape]}, which {dump.path.name} says, got {[*array.shape]}. "
            f"The file is damaged, or another one."
        )


def _weighed(left: Array, left_dtype: str, right: Array, right_dtype: str) -> Weighed:
    found = api.measure(left, right, left_dtype, right_dtype, rtol=0.0, atol=0.0, brief=True)
    if found.count - found.finite != found.nan_both + found.inf_both:
        return _words(NOTHING, remark="NaN or infinities stand in other places on the two sides.")
    ratios = api.ratios(left, right, left_dtype, right_dtype)
    error, relative = found.max_abs or 0.0, ratios.max or 0.0
    remark = "" if left_dtype == right_dtype else f"The element types differ: {right_dtype} and {left_dtype}."
    cells: tuple[Cell, ...]
    if not left.ndim:
        largest = _written(_rounded(error, left_dtype, right_dtype)), _written(relative)
        note = "One element: no direction, no shares."
        cells = (_UNSUPPORTED, _UNSUPPORTED, *largest, _UNSUPPORTED, _UNSUPPORTED)
        return Weighed(cells, remark=f"{note} {remark}".strip())
    cosine, why = _cosine(found)
    shares = _written(ratios.within_1_1000 or 0.0), _written(ratios.within_5_1000 or 0.0)
    cells = (cosine, found.euclidean or 0.0, _written(error), _written(relative), *shares)
    return Weighed(cells, remark=f"{why} {remark}".strip())


def _cosine(found: Measurement) -> tuple[Cell, str]:
    size = math.sqrt(found.finite)
    bench, npu = ((rms or 0.0) * size for rms in (found.rms_left, found.rms_right))
    if bench <= _SMALLEST and npu <= _SMALLEST:
        return 1.0, ""
    if bench <= _SMALLEST or npu <= _SMALLEST:
        return _NAN, f"All values of the {'bench' if bench <= _SMALLEST else 'NPU'} are zero: there is no cosine."
    cosine = _written(found.cosine if found.cosine is not None else math.nan)
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


def _words(word: str, *, unread: str = "", remark: str = "") -> Weighed:
    return Weighed((word,) * 6, unread, remark)
