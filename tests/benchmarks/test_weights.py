"""The benchmark of weights runs, and its targets can be missed."""

import pytest

from benchmarks import weights
from benchmarks.weights import Figure, judge

GOOD = [
    Figure("twintrace", "convert", 1.0, 1.0, 100.0), Figure("troubleshooter", "convert", 4.0, 4.0, 1000.0),
    Figure("twintrace", "compare", 1.0, 1.0, 100.0), Figure("troubleshooter", "compare", 4.0, 4.0, 1000.0),
]  # fmt: skip


def test_a_good_run_meets_every_target():
    assert [verdict.met for verdict in judge(GOOD)] == [True] * 4


@pytest.mark.parametrize(
    ("figure", "target"),
    [
        (Figure("twintrace", "convert", 2.0, 1.0, 100.0), "convert: times as fast as TroubleShooter"),
        (Figure("twintrace", "compare", 1.0, 1.0, 600.0), "compare: peak memory / TroubleShooter's"),
    ],
)
def test_a_target_can_be_missed(figure, target):
    rows = [figure if (row.tool, row.task) == (figure.tool, figure.task) else row for row in GOOD]
    assert [verdict.target for verdict in judge(rows) if not verdict.met] == [target]


def test_what_was_not_measured_is_not_met():
    assert not any(verdict.met for verdict in judge(GOOD[:1]))


@pytest.mark.needs_torch
def test_our_side_runs(capsys, tmp_path):
    pytest.importorskip("torch")
    arguments = [
        "--megabytes",
        "8",
        "--rounds",
        "1",
        "--no-peers",
        "--dir",
        str(tmp_path),
        "--json",
        str(tmp_path / "out.json"),
    ]
    assert weights.main(arguments) == 0
    assert "convert   twintrace" in capsys.readouterr().out
    assert [item.name for item in tmp_path.iterdir()] == ["out.json"]
