"""The benchmark of comparing folders of arrays: its data are what it says, its targets can be missed."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compare import Row
from benchmarks.comparers import COMPARERS, FORMATS, Data
from benchmarks.npy import checked, judge

GOOD = [
    Row("folders", "different", seconds=0.5, cpu=0.9, gb=1.7, rows=200),
    Row("troubleshooter", "different", seconds=9.0, cpu=8.7, gb=1.7, rows=200),
    Row("folders", "equal", seconds=0.2, cpu=0.3, gb=1.7, rows=200),
    Row("troubleshooter", "equal", seconds=1.3, cpu=1.2, gb=1.7, rows=200),
]


def words(rows):
    return [verdict.word for verdict in judge(rows)]


def test_a_good_run_meets_both_targets():
    assert words(GOOD) == ["met", "met"]


@pytest.mark.parametrize("which", [0, 1])
def test_each_target_can_be_missed(which):
    slow = [replace(row, seconds=1.0) if place == 2 * which else row for place, row in enumerate(GOOD)]
    assert [word == "MISSED" for word in words(slow)] == [which == 0, which == 1]


def test_what_was_not_measured_is_not_met():
    assert words(GOOD[::2]) == ["not measured", "not measured"]
    assert words([replace(GOOD[0], error="it fell over"), *GOOD[1:]]) == ["not measured", "met"]


def test_a_tool_that_leaves_rows_out_has_no_figure():
    assert checked(GOOD[0], 200).error is None
    assert checked(GOOD[0], 201).error == "it has 200 rows for 201 pairs"


def test_the_arrays_are_what_they_are_said_to_be(tmp_path):
    for name, differ in (("neighbours", 0.9), ("twins", 0)):
        FORMATS[name](tmp_path / name, Data("some", 3, 1000))
        for number in range(3):
            left, right = (np.load(tmp_path / name / side / f"value{number}.npy") for side in ("left", "right"))
            assert left.dtype == right.dtype == np.float32
            assert (left != right).mean() >= differ
            assert (left != right).any() == bool(differ)
            np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)


def test_ours_compare_every_pair_of_the_data(tmp_path, capsys):
    FORMATS["neighbours"](tmp_path, Data("some", 5, 300))
    assert COMPARERS["folders"]().compare(tmp_path, tmp_path / "out") == 5
