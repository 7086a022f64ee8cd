"""The benchmark of comparing: its data are what it says, its targets can be missed."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compare import Row, costs_table, judge, quickest
from benchmarks.comparers import COMPARERS, FORMATS, Data, Kernel, Scales, Twintrace

GOOD = [
    Row("kernel", "large", seconds=0.2, cpu=0.1, gb=0.4, rows=48, peak_mb=100),
    Row("twintrace", "large", seconds=0.2, cpu=0.4, gb=0.4, rows=48, peak_mb=200),
    Row("twintrace", "larger", seconds=0.8, cpu=1.6, gb=1.6, rows=192, peak_mb=202),
    Row("twintrace", "small", seconds=0.1, cpu=0.1, gb=0.001, rows=2000, peak_mb=200),
    Row("msprobe", "large", seconds=4.0, cpu=4.0, gb=0.4, rows=48, peak_mb=400),
    Row("msprobe", "small", seconds=5.0, cpu=5.0, gb=0.001, rows=2000, peak_mb=400),
]


def test_a_good_run_meets_every_target(words):
    assert set(words(judge(GOOD)).values()) == {"met"}


@pytest.mark.parametrize(
    ("key", "figures", "target"),
    [
        (("twintrace", "large"), {"seconds": 0.5}, "large tensors: time / msprobe's"),
        (("kernel", "large"), {"cpu": 0.3}, "kernel: seconds per GB on one core"),
        (("twintrace", "larger"), {"peak_mb": 400}, "peak memory: four times the data / once"),
    ],
)
def test_each_target_can_be_missed(missed, key, figures, target):
    assert missed(judge, GOOD, key, figures) == [target]


def test_what_was_not_measured_is_not_met(words):
    assert set(words(judge(GOOD[1:4])).values()) == {"not measured", "met"}
    failed = [replace(row, error="it fell over") for row in GOOD]
    assert words(judge(failed))["kernel: seconds per GB on one core"] == "not measured"


def test_a_round_that_failed_counts_for_all():
    assert quickest([GOOD[0], replace(GOOD[0], seconds=0.1)]).seconds == 0.1
    assert quickest([GOOD[0], replace(GOOD[0], error="it fell over")]).error


def test_the_table_has_a_line_for_each_row():
    assert len(costs_table([*GOOD, Row("msprobe", "large", error="it fell over")]).splitlines()) == len(GOOD) + 2


def test_the_two_sides_differ_in_the_last_place():
    data = Data("some", 3, 1000)
    for left, right in zip(data.arrays("left"), data.arrays("right"), strict=True):
        apart = np.abs(left.view(np.int32) - right.view(np.int32))
        assert set(apart) == {0, 1}
        assert 0.4 < apart.mean() < 0.6


@pytest.mark.needs_torch
def test_ours_compare_every_tensor_of_the_data(tmp_path):
    """What is timed is work: each tool of ours says how many pairs it measured."""
    data = Data("some", 5, 300)
    for name in {COMPARERS[tool].format for tool in ("kernel", "scales", "twintrace")}:
        FORMATS[name](tmp_path / name, data)
    for comparer in (Kernel(), Scales(), Twintrace()):
        comparer.prepare(tmp_path / comparer.format)
        assert comparer.compare(tmp_path / comparer.format, tmp_path / "out") == 5


@pytest.mark.needs_torch
def test_a_dump_is_written_as_msprobe_writes_it(tmp_path):
    import json

    FORMATS["dumps"](tmp_path, Data("some", 2, 10))
    dump = json.loads((tmp_path / "left" / "dump.json").read_text())
    assert [*dump] == ["task", "level", "framework", "dump_data_dir", "data"]
    [entry] = dump["data"]["Functional.relu.1.forward"]["output"]
    assert (tmp_path / "left" / "dump_tensor_data" / entry["data_name"]).exists()
