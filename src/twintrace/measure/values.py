"""Two arrays, element by element.

    measure(left, right, "f32", "bf16", rtol=1e-5, atol=1e-8)            Measurement(max_abs=0.0039, cosine=0.99998, …)
    measure(left, right, "f32", "f32", Layout((1, 0)), …)                the right side transposed, without a copy of it
    measure(…, heat=True)                                                and where in the tensor the error is
    misfit(Spec("f32", (2, 3)), Spec("f32", (3, 2)), Layout())           "f32[2, 3] and f32[3, 2] …": no such measurement
    backend()                                                            "numba" or "numpy"

One pass, both sides decoded to float64 block by block, sums in float64. The arrays may be read-only, unaligned and strided. It is
safe in threads, and releases the interpreter lock where numba is installed. docs/reference/metrics.md has every formula.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.errors import UsageError
from ..model.measurements import Heat, Measurement, Worst
from ..model.pairs import Layout
from ..model.tensors import UNITS, Spec
from . import fills, kernel_numpy, totals
from .formats import Form, coarser, form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kernel = Callable[..., None]

HEAT_ROWS = HEAT_COLUMNS = 32
"""The finest grid; a tensor with fewer rows or columns has a cell for each."""

_AS_IT_IS = Layout()


def measure(
    left: NDArray[Any],
    right: NDArray[Any],
    left_dtype: str,
    right_dtype: str,
    layout: Layout = _AS_IT_IS,
    *,
    rtol: float,
    atol: float,
    heat: bool = False,
) -> Measurement:
    """All numbers about two arrays in their storage types. UsageError, with the text of `misfit`, where none exist."""
    return _measure(_kernel(), left, right, form(left_dtype), form(right_dtype), layout, rtol, atol, heat)


def misfit(left: Spec, right: Spec, layout: Layout = _AS_IT_IS) -> str | None:
    """Why these two cannot be measured: their shapes, after the layout, are not the same. None if they can."""
    one, two = form(left.dtype), form(right.dtype)
    axes = layout.axes
    shape = two.shape(right.shape)
    if axes is not None:
        if sorted(axes) != [*range(len(right.shape))]:
            return f"{layout} is no order of the {len(right.shape)} axes of {right}"
        if two.packed and axes[-1:] != (len(axes) - 1,)[: len(axes)]:
            return f"{right} holds two numbers in a byte, so its last axis cannot be moved ({layout})"
        shape = tuple(shape[axis] for axis in axes) if right.shape else shape
    wanted = one.shape(left.shape)
    if shape == wanted or (layout.reshaped and math.prod(shape) == math.prod(wanted)):
        return None
    how = "" if layout == _AS_IT_IS else f" ({layout})"
    return f"{left} on the left and {right}{how} on the right do not have the same shape"


def backend() -> str:
    """Name of the kernels that `measure` uses here."""
    return "numpy" if _kernel() is _numpy_kernel else "numba"


# Which implementation ----------------------------------------------------------------------------------------------


@functools.cache
def _kernel() -> Kernel:
    return _numba_kernel() or _numpy_kernel


def _numba_kernel() -> Kernel | None:
    """The compiled kernel, or None where it cannot be had."""
    if sys.byteorder != "little":
        return None
    try:
        from . import kernel_numba

        kernel = _calling(kernel_numba.load())
        _measure(kernel, np.ones(1), np.ones(1), form("f64"), form("f64"), _AS_IT_IS, 0.0, 0.0, False)
    except Exception:  # noqa: BLE001 - not installed, at odds with this numpy or LLVM, switched off by NUMBA_DISABLE_JIT
        return None
    return kernel


def _calling(accumulate: Callable[..., None]) -> Kernel:
    """The compiled function, called as the one of `kernel_numpy` is."""

    def kernel(count: int, left: Any, left_form: Form, right: Any, right_form: Form, *rest: Any) -> None:
        exact, rtol, atol, least, *results = rest
        floor = 0 if least is None else (least + 1023) << 52  # the bits of that power of two
        accumulate(count, *side(left, left_form), *side(right, right_form), exact, rtol, atol, floor, *results)

    return kernel


_numpy_kernel = kernel_numpy.accumulate
_NONE = np.empty(0, np.int64)


def side(array: NDArray[Any], what: Form) -> tuple[Any, ...]:
    """An array as the compiled kernel takes it: no shape where the elements lie side by side."""
    shape, strides = (_NONE, _NONE) if array.flags.c_contiguous else _folded(array)
    return array.__array_interface__["data"][0], what.code, what.parts, what.size, what.table, shape, strides


def _folded(array: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shape and strides with as few axes as will do: what lies side by side is one axis."""
    lengths: list[int] = []
    steps: list[int] = []
    for length, step in zip(array.shape, array.strides, strict=True):
        if length == 1:
            continue
        if steps and steps[-1] == length * step:
            lengths[-1] *= length
            steps[-1] = step
        else:
            lengths.append(length)
            steps.append(step)
    return np.array(lengths or [1], np.int64), np.array(steps or [0], np.int64)


def check(left: NDArray[Any], right: NDArray[Any], left_form: Form, right_form: Form, layout: Layout) -> None:
    """UsageError unless both arrays hold what they are said to, and fit on each other."""
    for array, each, where in ((left, left_form, "left"), (right, right_form, "right")):
        if array.dtype.itemsize != each.size or array.dtype.kind != each.kind:
            raise UsageError(
                f"measure: {each.dtype} on the {where} is held in {each.size} bytes of kind {each.kind!r}, got an array of "
                f"{array.dtype}. Arrays are taken as the store hands them out (store/FORMAT.md, Element types)."
            )
    if left_form is right_form and left.shape == right.shape and layout == _AS_IT_IS:
        return
    reason = misfit(Spec(left_form.dtype, left.shape), Spec(right_form.dtype, right.shape), layout)
    if reason:
        raise UsageError(f"measure: {reason}. Align them, or give the layout that makes them fit.")


# From two arrays to a Measurement ----------------------------------------------------------------------------------


def _measure(
    kernel: Kernel,
    left: NDArray[Any],
    right: NDArray[Any],
    left_form: Form,
    right_form: Form,
    layout: Layout,
    rtol: float,
    atol: float,
    heat: bool,
) -> Measurement:
    check(left, right, left_form, right_form, layout)
    if layout.axes:
        right = right.transpose(layout.axes)
    shape = left_form.shape(left.shape)
    count = math.prod(shape)
    width = max(shape[-1], 1) if shape else 1
    grid = (min(HEAT_ROWS, count // width), min(HEAT_COLUMNS, width)) if heat and count else (0, 0)
    counts, numbers = np.zeros(totals.COUNTS, np.int64), np.zeros(totals.NUMBERS)
    counts[totals.WORST] = -1
    cells, blemish = np.zeros(grid), np.zeros(grid, np.bool_)
    precision = coarser(left_form, right_form)
    # Integers of 64 bits do not fit into a float64: their distance is taken as integers, if both sides are such.
    exact = left_form.dtype not in UNITS and right_form.dtype not in UNITS and max(left_form.size, right_form.size) == 8
    scales = (0, 0, 0)
    if count:
        least = precision[1] if precision else None
        results = (counts, numbers, cells, blemish, width)
        kernel(count, left, left_form, right, right_form, exact, float(rtol), float(atol), least, *results)
        if _out_of_range(numbers):
            scales = _rescale(kernel_numpy.blocks(count, left, left_form, right, right_form, exact), numbers)
    worst = counts.item(totals.WORST)
    far = _worst(worst, shape, (left, left_form), (right, right_form)) if worst >= 0 else None
    filled, rest = 0, None
    if far is not None and precision and fills.may_be_filled(far, numbers):
        blocks = kernel_numpy.blocks(count, left, left_form, right, right_form, exact)
        filled, rest = fills.filled(blocks, numbers.item(totals.LARGEST_LEFT))
    return _reading(
        count,
        counts,
        numbers,
        scales,
        rtol,
        atol,
        None if precision is None else precision[0],
        far,
        filled,
        rest,
        _heat(cells, blemish) if heat and count else None,
    )


def _reading(
    count: int,
    counts: NDArray[np.int64],
    numbers: NDArray[np.float64],
    scales: tuple[int, int, int],
    rtol: float,
    atol: float,
    bits: int | None,
    worst: Worst | None,
    filled: int,
    rms_rest: float | None,
    heat: Heat | None,
) -> Measurement:
    (equal, close, one, five, flips, ratios, odd, nan_left, nan_right, nan_both, inf_left, inf_right, inf_both, _,
     *histogram) = counts.tolist()  # fmt: skip
    (errors, squares, left_squares, right_squares, products, ratio_sum,
     max_error, max_left, max_right, max_ratio, max_step) = numbers.tolist()  # fmt: skip
    finite = count - odd
    some = finite > 0
    left_scale, right_scale, error_scale = scales
    return Measurement(
        count=count,
        finite=finite,
        equal=equal,
        max_abs=max_error if some else None,
        mean_abs=_grown(errors / finite, error_scale) if some else None,
        max_rel=max_ratio if ratios else None,
        mean_rel=ratio_sum / ratios if ratios else None,
        rmse=_grown(math.sqrt(squares / finite), error_scale) if some else None,
        mape=100 * (ratio_sum / ratios) if ratios else None,
        cosine=_cosine(left_squares, right_squares, products),
        euclidean=_grown(math.sqrt(squares), error_scale) if some else None,
        within_1_1000=one / count if count else None,
        within_5_1000=five / count if count else None,
        close=close / count if count else None,
        rtol=rtol,
        atol=atol,
        max_ulp=math.ldexp(max_step, bits - 1) if bits and some else None,
        nan_left=nan_left,
        nan_right=nan_right,
        nan_both=nan_both,
        inf_left=inf_left,
        inf_right=inf_right,
        inf_both=inf_both,
        sign_flips=flips,
        worst=worst,
        histogram=tuple(histogram),
        max_left=max_left if some else None,
        max_right=max_right if some else None,
        rms_left=_grown(math.sqrt(left_squares / finite), left_scale) if some else None,
        rms_right=_grown(math.sqrt(right_squares / finite), right_scale) if some else None,
        filled=filled,
        rms_rest=rms_rest,
        heat=heat,
    )


def _cosine(left: float, right: float, products: float) -> float | None:
    """From the sums of squares and of products; None where a side is all zeros, which has no direction."""
    if not left or not right:
        return None
    # Of equal sums the root would be taken of a square: exactly 1 for equal vectors, with nothing rounded on the way.
    cosine = products / left if left == right else products / (math.sqrt(left) * math.sqrt(right))
    return min(max(cosine, -1.0), 1.0)


def _worst(
    place: int, shape: tuple[int, ...], left: tuple[NDArray[Any], Form], right: tuple[NDArray[Any], Form]
) -> Worst:
    index = []
    rest = place
    for length in reversed(shape):
        rest, at = divmod(rest, length)
        index.append(at)
    return Worst(tuple(reversed(index)), kernel_numpy.element(*left, place), kernel_numpy.element(*right, place))


def _heat(cells: NDArray[np.float64], blemish: NDArray[np.bool_]) -> Heat:
    cells[blemish] = math.nan
    rows, columns = cells.shape
    return Heat(rows, columns, tuple(cells.reshape(-1).tolist()))


# Squares beyond float64 --------------------------------------------------------------------------------------------


def _out_of_range(numbers: NDArray[np.float64]) -> bool:
    """May the squares of the largest error, or of the largest value of a side, have left the range of float64?"""
    largest = numbers[totals.LARGEST_ERROR : totals.LARGEST_RIGHT + 1].tolist()
    return any(each > 1e150 or 0 < each < 1e-140 for each in largest)


def _rescale(blocks: Iterator[kernel_numpy.Block], numbers: NDArray[np.float64]) -> tuple[int, int, int]:
    """The five sums again, with the largest value of each side and the largest error brought to about 1.

    Gives the powers of two by which left, right and errors were divided.
    """
    sums = [totals.SUM_LEFT, totals.SUM_RIGHT, totals.SUM_PRODUCTS, totals.SUM_ERRORS, totals.SUM_SQUARES]
    numbers[sums] = 0.0
    largest = numbers[[totals.LARGEST_LEFT, totals.LARGEST_RIGHT, totals.LARGEST_ERROR]].tolist()
    left, right, error = (math.frexp(each)[1] if each < math.inf else 1025 for each in largest)
    with np.errstate(all="ignore"):
        for block in blocks:
            numbers[sums] += kernel_numpy.scaled_sums(block, left, right, error)
    return left, right, error


def _grown(value: float, power: int) -> float:
    """`value` times 2^power; inf where no float64 is that large."""
    if not power:
        return value
    with np.errstate(all="ignore"):
        return float(np.ldexp(value, power))
