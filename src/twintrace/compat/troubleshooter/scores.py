"""The four cells that TroubleShooter says of two arrays, out of what was measured.

    result of allclose   ratio of allclose   cosine similarity   mean & max diffs
    True                 100.00%             1.00000             0.00000, 0.00000
    False                0.00%               0.52350             0.10281, 0.34079
    Shape is inconsistent   0.00%            nan                 nan, nan
    Cannot be read: …       0.00%            nan                 nan, nan

The mean is over all elements. Where an element is NaN and the other side's is not the same, there is no cosine and no difference to
speak of: they are nan; infinities that differ are infinitely far apart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...model.measurements import Measurement
from ...model.tensors import Spec
from .tables import percent, truncated

Cells = tuple[object, str, str, str]
INCONSISTENT = "Shape is inconsistent"


class Scores(NamedTuple):
    """Result of `cal_algorithm`; `allclose` is a text where nothing could be computed."""

    allclose: bool | str
    ratio: float = 0.0
    cosine: float = math.nan
    diffs: tuple[float, float] = (math.nan, math.nan)

    @property
    def cells(self) -> Cells:
        """As they stand in a table: numbers are cut off, not rounded."""
        return self.allclose, percent(self.ratio), truncated(self.cosine, 5), ", ".join(
            truncated(number, 5) for number in self.diffs
        )  # fmt: skip


def scores(found: Measurement, *, equal_nan: bool, double: bool = True) -> Scores:
    """From a measurement whose `rtol` is relative to the target, as numpy.allclose has it.

    Without `double`, numbers have the precision of float32, as those of such arrays have in the real tool: a cosine of 0.99999999
    would be cut off to 0.99999.
    """
    if not found.count:
        return Scores(True, 1.0, 1.0, (0.0, 0.0))
    kept = found.nan_both if equal_nan else 0  # NaN elements that count as equal
    close = round((found.close or 0.0) * found.count) - (found.nan_both - kept)
    ratio = close / found.count
    if found.nan_left + found.nan_right > 2 * kept:
        return Scores(False, ratio)
    if found.inf_left + found.inf_right > 2 * found.inf_both:
        return Scores(False, ratio, diffs=(math.inf, math.inf))
    if found.equal == found.count:
        return Scores(True, 1.0, 1.0, (0.0, 0.0))
    cosine = math.nan if found.cosine is None else found.cosine
    numbers = [cosine, found.mean_abs or 0.0, found.max_abs or 0.0]
    if not double:
        numbers = [float(np.float32(number)) for number in numbers]
    return Scores(ratio == 1.0, ratio, numbers[0], (numbers[1], numbers[2]))


def is_double(left: Spec, right: Spec) -> bool:
    """Does numpy compute with two such arrays in float64?"""
    return not {left.dtype, right.dtype} <= {"f32", "f16", "bf16"}
