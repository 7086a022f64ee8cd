"""What two sets of statistics differ by."""

import math

import pytest

from twintrace.measure.statistics import difference
from twintrace.model.measurements import StatisticsDifference
from twintrace.model.tensors import Statistics

INF = math.inf


def test_right_minus_left_and_divided_by_the_left():
    left, right = Statistics(-2.0, 4.0, 0.5, 10.0, 0, 1, 2, 3), Statistics(-3.0, 3.0, 0.5, 0.0, 2, 0, 1, 7)
    assert difference(left, right) == StatisticsDifference(-1.0, -1.0, 0.0, -10.0, -0.5, -0.25, 0.0, -1.0, 2, -2, 4)


@pytest.mark.parametrize(
    ("left", "right", "apart", "relative"),
    [
        (None, 1.0, None, None),
        (1.0, None, None, None),
        (0.0, 2.0, 2.0, None),
        (0.0, 0.0, 0.0, None),
        (INF, INF, 0.0, 0.0),
        (INF, 1.0, -INF, None),
        (1.0, INF, INF, INF),
        (2**63 - 1, 2**63, 1.0, 2.0**-63),
    ],
)
def test_numbers_that_are_not_there_or_not_finite(left, right, apart, relative):
    sides = [Statistics(value, value, value, value, 0, 0, 0, 0) for value in (left, right)]
    found = difference(*sides)
    assert [found.min, found.max, found.mean, found.norm] == [apart] * 4
    if left == INF and right != INF:
        assert math.isnan(found.norm_rel)
    else:
        assert [found.min_rel, found.max_rel, found.mean_rel, found.norm_rel] == [relative] * 4
