"""The benchmark of many steps: its targets can be missed, and its work is what it says."""

from dataclasses import replace

import pytest

from benchmarks.steps import Row, costs_table, judge

GOOD = [
    Row(
        steps, kind, "module", bare_ms=20, recorded_ms=21, kb=18, seconds=2, cpu=2 + steps / 200, peak_mb=250, code=code
    )
    for steps in (25, 100, 400)
    for kind, code in (("equal", 0), ("apart", 1))
]


def test_a_good_run_meets_all_targets(words):
    assert set(words(judge(GOOD)).values()) == {"met"}


@pytest.mark.parametrize(
    ("key", "figures", "target"),
    [
        ((400, "equal"), {"recorded_ms": 23}, "recorded / bare"),
        ((400, "equal"), {"kb": 21}, "KB a step"),
        ((400, "equal"), {"cpu": 5}, "equal: seconds for 1,000 steps"),
        ((400, "apart"), {"cpu": 5}, "apart: seconds for 1,000 steps"),
        ((400, "apart"), {"peak_mb": 300}, "apart: peak memory, 400 steps / 100"),
        ((400, "equal"), {"code": 1}, "equal: another exit code than 0"),
        ((400, "apart"), {"code": 0}, "apart: another exit code than 1"),
    ],
)
def test_each_target_can_be_missed(missed, key, figures, target):
    assert missed(judge, GOOD, key, figures) == [target]


def test_what_failed_is_not_met(words):
    failed = [replace(row, error="it fell over") for row in GOOD]
    assert set(words(judge(failed)).values()) == {"not measured"}
    assert "failed: it fell over" in costs_table(failed)
