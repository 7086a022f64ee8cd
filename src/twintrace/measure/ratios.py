"""Relative errors that are numbers also where there is nothing to divide by.

    ratios(left, right, "f32", "f32")        Ratios(max=0.0042, within_1_1000=0.98, within_5_1000=1.0)

Where the left element is 0, the smallest step at 1 is added to both sides first. The arithmetic is that of the elements: float32
where neither type has more digits, float64 otherwise. That is how the tools of Ascend define these three numbers; a
`Measurement` divides in float64, and has no relative error where the left side is 0. docs/reference/metrics.md, Ratios.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.measurements import Ratios
from ..model.pairs import Layout
from . import kernel_numpy
from .formats import Form, form
from .values import check, side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kernel = Callable[..., None]

_SINGLE = 24  # digits of float32
_AS_IT_IS = Layout()


def ratios(left: NDArray[Any], right: NDArray[Any], left_dtype: str, right_dtype: str) -> Ratios:
    """The relative errors of two arrays of one shape, in their storage types."""
    return _ratios(_kernel(), left, right, form(left_dtype), form(right_dtype))


def _ratios(kernel: Kernel, left: NDArray[Any], right: NDArray[Any], left_form: Form, right_form: Form) -> Ratios:
    check(left, right, left_form, right_form, _AS_IT_IS)
    count = left.size * (1 + left_form.packed)
    if not count:
        return Ratios(None, None, None)
    counts, largest = np.zeros(2, np.int64), np.zeros(1)
    single = all(each.precision is not None and each.precision[0] <= _SINGLE for each in (left_form, right_form))
    kernel(count, left, left_form, right, right_form, single, counts, largest)
    one, five = (counts / count).tolist()
    return Ratios(largest.item(), one, five)


@functools.cache
def _kernel() -> Kernel:
    return _numba_kernel() or kernel_numpy.relate


def _numba_kernel() -> Kernel | None:
    """The compiled kernel, or None where it cannot be had."""
    if sys.byteorder != "little":
        return None
    try:
        from . import ratios_numba

        kernel = _calling(ratios_numba.load())
        _ratios(kernel, np.ones(1), np.ones(1), form("f64"), form("f64"))
    except Exception:  # noqa: BLE001 - not installed, at odds with this numpy or LLVM, switched off by NUMBA_DISABLE_JIT
        return None
    return kernel


def _calling(relate: Callable[..., None]) -> Kernel:
    """The compiled function, called as the one of `kernel_numpy` is."""

    def kernel(count: int, left: Any, left_form: Form, right: Any, right_form: Form, *rest: Any) -> None:
        relate(count, *side(left, left_form), *side(right, right_form), *rest)

    return kernel
