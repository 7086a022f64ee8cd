"""The benchmark of many ranks: its targets can be missed, and what it extrapolates is a line."""

import pytest

from benchmarks.fleet import Row, costs_table, extrapolated, judge

GOOD = [
    Row(kind, ranks, cores, seconds=20, cpu=20 + ranks / 4, driver=18, peak_mb=300 + ranks / 16, code=code)
    for kind, code in (("equal", 0), ("fault", 1))
    for ranks in (16, 64, 256)
    for cores in (1, 2)
]


def test_a_good_run_meets_all_targets(words):
    assert set(words(judge(GOOD)).values()) == {"met"}


def test_what_grows_with_the_ranks_is_divided_by_the_cores():
    assert extrapolated(GOOD, "equal") == pytest.approx((20 + 4096 / 4 / 64, 300 + 4096 / 16))


@pytest.mark.parametrize(
    ("figures", "target"),
    [
        ({"cpu": 40_000}, "fault: minutes for 4,096 ranks on 64 cores"),
        ({"peak_mb": 600}, "fault: MB of the driver, 4,096 ranks"),
        ({"code": 0}, "fault: another exit code than 1"),
    ],
)
def test_each_target_can_be_missed(missed, figures, target):
    assert missed(judge, GOOD, ("fault", 256, 2), figures) == [target]


def test_what_failed_is_not_met(words):
    failed = [Row("equal", 16, 1, error="it fell over")]
    assert set(words(judge(failed)).values()) == {"not measured"}
    assert "failed: it fell over" in costs_table(failed)
