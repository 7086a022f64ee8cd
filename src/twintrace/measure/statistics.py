"""Two tensors of which only the statistics are known.

    difference(Statistics(min=-1.0, …), Statistics(min=-1.5, …))    StatisticsDifference(min=-0.5, min_rel=-0.5, …)

Right minus left, and that divided by the magnitude of the left. Integers are subtracted as integers.
"""

from __future__ import annotations

from ..model.measurements import StatisticsDifference
from ..model.tensors import Statistics


def difference(left: Statistics, right: Statistics) -> StatisticsDifference:
    """Differences between two sets of statistics. A number is None where a side has none, or the left one is 0."""
    least, least_rel = _apart(left.min, right.min)
    most, most_rel = _apart(left.max, right.max)
    mean, mean_rel = _apart(left.mean, right.mean)
    norm, norm_rel = _apart(left.norm, right.norm)
    return StatisticsDifference(
        min=least,
        max=most,
        mean=mean,
        norm=norm,
        min_rel=least_rel,
        max_rel=most_rel,
        mean_rel=mean_rel,
        norm_rel=norm_rel,
        nan=right.nan - left.nan,
        inf=right.posinf + right.neginf - left.posinf - left.neginf,
        zero=right.zero - left.zero,
    )


def _apart(left: float | int | None, right: float | int | None) -> tuple[float | None, float | None]:
    if left is None or right is None:
        return None, None
    if left == right:  # two norms beyond float64 are inf, and inf - inf would be NaN
        return 0.0, 0.0 if left else None
    distance = float(right - left)
    return distance, distance / abs(left) if left else None
