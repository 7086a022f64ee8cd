"""The benchmark of msprobe's comparison: its dumps are what it says, its targets can be missed."""

import csv
import json
from dataclasses import replace

import pytest

from benchmarks.msprobe import Row, Work, costs_table, judge, one, tools, works, write

GOOD = [
    Row("twintrace", "statistics", seconds=1.2, rows=20_000, peak_mb=90),
    Row("msprobe", "statistics", seconds=15, rows=20_000, peak_mb=440),
    Row("twintrace", "statistics xlsx", seconds=2, rows=20_000, peak_mb=90),
    Row("msprobe", "statistics xlsx", seconds=33, rows=20_000, peak_mb=620),
    Row("twintrace", "tensors", seconds=4, gb=2, rows=1000, peak_mb=180),
    Row("msprobe", "tensors", seconds=60, gb=2, rows=1000, peak_mb=390),
    Row("twintrace", "a quarter", seconds=2, gb=0.5, rows=250, peak_mb=178),
]


def test_a_good_run_meets_every_target(words):
    assert set(words(judge(GOOD)).values()) == {"met"}


@pytest.mark.parametrize(
    ("key", "figures", "target"),
    [
        (("twintrace", "statistics"), {"seconds": 1.6}, "statistics: time / msprobe's"),
        (("twintrace", "statistics xlsx"), {"seconds": 3.4}, "statistics xlsx: time / msprobe's"),
        (("twintrace", "tensors"), {"seconds": 6.1}, "tensors: time / msprobe's"),
        (("twintrace", "a quarter"), {"peak_mb": 100}, "peak memory: four times the tensors / once"),
    ],
)
def test_each_target_can_be_missed(missed, key, figures, target):
    assert missed(judge, GOOD, key, figures) == [target]


def test_what_failed_was_not_measured(words):
    assert set(words(judge([replace(row, error="it fell over") for row in GOOD])).values()) == {"not measured"}


def test_the_table_has_a_line_for_each_row():
    assert len(costs_table([*GOOD, Row("msprobe", "tensors", error="it fell over")]).splitlines()) == len(GOOD) + 2


def test_the_full_size_is_what_is_promised():
    sizes = {work.name: work for work in works(quick=False)}
    assert sizes["statistics"].rows == sizes["statistics xlsx"].rows == 20_000
    assert sizes["tensors"].gb >= 2
    assert sizes["a quarter"].rows * 4 == sizes["tensors"].rows
    assert works(quick=True)[0].rows < 20_000


@pytest.mark.needs_torch
def test_ours_compares_what_is_written(tmp_path):
    """What is timed is work: a table with as many rows as the work says."""
    commands, _ = tools(False)
    for work in (Work("statistics", 500), Work("tensors", 3, 16)):
        write(tmp_path, work)
        row = one("twintrace", commands["twintrace"], tmp_path, work)
        assert row.error is None
        assert row.seconds > 0
        (made,) = (tmp_path / "out").glob("*.csv")
        with made.open(newline="") as file:
            assert sum(1 for _ in csv.reader(file)) == work.rows + 1
    assert 100 < len(json.loads((tmp_path / "statistics/left/dump.json").read_text())["data"]) < 200


def test_a_tool_that_fails_has_no_figure(tmp_path):
    row = one("twintrace", tools(False)[0]["twintrace"], tmp_path, Work("nothing was written", 5))
    assert "ended with 2" in row.error
