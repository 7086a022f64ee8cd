"""Sums that the pass over both arrays leaves behind: the places of each number in two small arrays that a kernel fills.

    counts[EQUAL]          how many elements are equal          numbers[SUM_ERRORS]      the sum of the errors
    counts[HISTOGRAM + 3]  a bin of the histogram               numbers[LARGEST_LEFT]    the largest finite magnitude

Arrays and not a class, because a compiled kernel fills them. The error of an element is |right - left|, its ratio is that divided
by |left|, its step is that divided by the power of two at or below the larger magnitude (the unit in the last place, but for a
factor that is the same for all elements). Elements that are not finite on both sides are counted, and otherwise taken for zeros.
"""

from __future__ import annotations

from ..model.measurements import HISTOGRAM_EDGES

(
    EQUAL, CLOSE, ONE_THOUSANDTH, FIVE_THOUSANDTHS, FLIPS,
    RATIOS,  # elements with a ratio: those with left ≠ 0
    NOT_FINITE, NAN_LEFT, NAN_RIGHT, NAN_BOTH, INF_LEFT, INF_RIGHT, INF_BOTH,
    WORST,  # position of the first element with the largest error, in the left side's order; -1 if there is no error
    HISTOGRAM,  # the first of its bins
) = range(15)  # fmt: skip
BINS = len(HISTOGRAM_EDGES) + 2
COUNTS = HISTOGRAM + BINS

(
    SUM_ERRORS, SUM_SQUARES,
    SUM_LEFT, SUM_RIGHT,  # of squares
    SUM_PRODUCTS,  # of left and right; of complex numbers the real part of left's conjugate times right
    SUM_RATIOS,
    LARGEST_ERROR, LARGEST_LEFT, LARGEST_RIGHT, LARGEST_RATIO, LARGEST_STEP,
    NUMBERS,
) = range(12)  # fmt: skip
