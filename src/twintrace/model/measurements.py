"""Numbers about two tensors, and about one. No number here says whether it is too large: that is the bench's affair.

    Measurement            both values were read, element by element
    StatisticsDifference   only their statistics are known
    Heat                   where in the tensor the error is, as a coarse picture
    Picture                the values of one tensor, for people to look at

Formulas and edge cases are in docs/reference/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

HISTOGRAM_EDGES = tuple(range(-12, 3))
"""Powers of ten. Bin 0 counts exact equality, bin 1 errors below 10**-12, the last those at or above 10**2."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The element with the largest absolute error. `index` is in the left tensor's shape.

    Integers are given exactly, of complex numbers the modulus.
    """

    index: tuple[int, ...]
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Heat:
    """The largest absolute error in each cell of a grid laid over the tensor (leading axes folded into rows).

    A cell is NaN where an element is not finite on one side and another on the other.
    """

    rows: int
    columns: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Numbers from one pass over two arrays. Errors are right minus left, the left side being the divisor.

    Elements that are not finite on either side take no part in the error numbers; they are counted. In shares they count as
    what they are: NaN beside NaN is as close as can be, NaN beside a number is not. A number is None where it has no meaning:
    no finite pair of elements, a zero vector's cosine.
    """

    count: int
    """Elements of each side."""
    finite: int
    """Elements that are finite on both sides."""
    equal: int
    """Elements with equal values; NaN equals NaN, and an infinity equals itself."""
    max_abs: float | None
    mean_abs: float | None
    max_rel: float | None
    """Of |right - left| / |left| over the elements with left ≠ 0."""
    mean_rel: float | None
    rmse: float | None
    mape: float | None
    cosine: float | None
    euclidean: float | None
    within_1_1000: float | None
    """Share of the elements with a relative error below 1/1000; a zero on the left counts if the right is zero too."""
    within_5_1000: float | None
    close: float | None
    """Share of the elements with |right - left| <= atol + rtol * |left|."""
    rtol: float
    atol: float
    max_ulp: float | None
    """Largest error in units in the last place of the larger of the two values, in the coarser of the two dtypes; None for
    integers and complex numbers."""
    nan_left: int
    nan_right: int
    nan_both: int
    inf_left: int
    inf_right: int
    inf_both: int
    """The same infinity on both sides, in the same place."""
    sign_flips: int | None
    worst: Worst | None
    """None where no finite pair differs."""
    histogram: tuple[int, ...]
    """Relative errors (absolute ones where left is 0) by HISTOGRAM_EDGES."""
    max_left: float | None
    """The largest finite magnitude."""
    max_right: float | None
    rms_left: float | None
    rms_right: float | None
    filled: int = 0
    """Elements of a fill value (-1e9 before a softmax): the same on both sides, far beyond the rest. 0 where none differs."""
    rms_rest: float | None = None
    """The root mean square of the other elements, of the larger side; None where nothing is filled."""
    heat: Heat | None = None


@dataclass(frozen=True, slots=True)
class StatisticsDifference:
    """Right minus left, and that divided by the left; None where a side has no such number, or the left one is 0."""

    min: float | None
    max: float | None
    mean: float | None
    norm: float | None
    min_rel: float | None
    max_rel: float | None
    mean_rel: float | None
    norm_rel: float | None
    nan: int
    inf: int
    zero: int


@dataclass(frozen=True, slots=True)
class Picture:
    """One tensor's values: the first few, a histogram, and a coarse picture of where they lie.

    `counts` has one number for each gap between `edges`, over the finite elements; none are there if no element is finite. Of
    complex numbers the modulus is taken. In `heat` a cell is the value of the largest magnitude; NaN where one is not finite.
    """

    count: int
    first: tuple[float, ...]
    counts: tuple[int, ...]
    edges: tuple[float, ...]
    heat: Heat | None
