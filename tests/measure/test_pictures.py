"""One array for people to look at: the first values, how many lie where, and in which part of the array."""

import math

import numpy as np
import pytest

from twintrace.measure import pictures
from twintrace.measure.pictures import BINS, COLUMNS, FIRST, ROWS, picture


def look(array):
    return picture(array, lambda block: block)


def test_a_small_array_has_a_cell_for_each_element():
    found = look(np.array([[1.0, -4.0, 0.0], [2.0, 3.0, -1.0]], np.float32))
    assert found.first == (1.0, -4.0, 0.0, 2.0, 3.0, -1.0)
    assert (found.heat.rows, found.heat.columns) == (2, 3)
    assert found.heat.values == found.first
    assert sum(found.counts) == found.count == 6
    assert (found.edges[0], found.edges[-1]) == (-4.0, 3.0)


@pytest.mark.parametrize("block", [70, 1 << 18])
def test_a_large_array_is_counted_as_numpy_counts(monkeypatch, block):
    monkeypatch.setattr(pictures, "BLOCK", block)
    array = np.random.default_rng(0).normal(size=(5, 40, 50))
    found = look(array)
    expected, edges = np.histogram(array, BINS)
    np.testing.assert_allclose(found.edges, edges, rtol=1e-12)
    assert np.abs(np.array(found.counts) - expected).sum() <= 4, "an element on an edge may fall on either side"
    assert sum(found.counts) == array.size
    assert len(found.first) == FIRST
    assert (found.heat.rows, found.heat.columns) == (ROWS, COLUMNS)
    rows, columns = np.arange(200) * ROWS // 200, np.arange(50) * COLUMNS // 50
    flat = array.reshape(200, 50)
    for row, column in ((0, 0), (31, 31), (10, 20)):
        cell = flat[np.ix_(rows == row, columns == column)].reshape(-1)
        assert found.heat.values[row * COLUMNS + column] == cell[np.abs(cell).argmax()]


@pytest.mark.parametrize(
    ("array", "counts", "broken"),
    [
        (np.array([math.nan, math.inf]), 0, 2),
        (np.array([math.nan, 1.0, 2.0]), 2, 1),
        (np.array(3.5), 1, 0),
        (np.array([], np.float32), 0, 0),
        (np.zeros((0, 3)), 0, 0),
        (np.array([True, False, True]), 3, 0),
        (np.array([2**63 - 1, -(2**63)], np.int64), 2, 0),
        (np.array([3 + 4j]), 1, 0),
        (np.array([1.7e308, -1.7e308]), 2, 0),
        (np.array([1.0, np.nextafter(1.0, 2)]), 2, 0),
        (np.array([5e-324, 0.0]), 2, 0),
        (np.full(5, 7.0), 5, 0),
    ],
    ids=str,
)
def test_unpleasant_arrays(array, counts, broken):
    found = look(array)
    assert sum(found.counts) == counts
    assert len(found.edges) == (len(found.counts) + 1 if counts else 0)
    cells = found.heat.values if found.heat else ()
    assert sum(math.isnan(cell) for cell in cells) == broken


def test_of_complex_numbers_the_modulus():
    assert look(np.array([3 + 4j])).first == (5.0,)
