"""The benchmark runs, and its targets can be missed."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import peers, record, work
from benchmarks.measure import Plan, Row, WorkerFailed, in_turns, measure
from benchmarks.targets import SHARES, judge


def good_rows():
    """A run in which every target is met."""
    ours = [("module", "statistics"), ("module", "fingerprint"), ("api", "statistics"), ("api", "fingerprint"),
            ("api", "tensor"), ("mix", "statistics"), ("mix", "fingerprint")]  # fmt: skip
    theirs = {
        ("module", "statistics"): 0.6,
        ("api", "statistics"): 5.0,
        ("api", "tensor"): 15.0,
        ("mix", "statistics"): 6.0,
    }
    return [
        *(
            Row("twintrace", *key, both=1.1, extra=0.1, growth=1.0, bytes_per_step=4e8, steps=3, files=14)
            for key in ours
        ),
        *(Row("msprobe", *key, both=1 + extra, extra=extra, bytes_per_step=1e9) for key, extra in theirs.items()),
        Row("stopped", "api", "statistics", both=1.0),
    ]


def changed(key, **figures):
    return [replace(row, **figures) if row.key == key else row for row in good_rows()]


def test_a_good_run_meets_every_target(words):
    assert set(words(judge(good_rows())).values()) == {"met"}


@pytest.mark.parametrize(
    ("key", "figures", "target"),
    [
        (("twintrace", "api", "statistics"), {"extra": 0.9}, "api statistics: extra time / msprobe api statistics"),
        (("twintrace", "api", "fingerprint"), {"extra": 0.9}, "api fingerprint: extra time / msprobe api statistics"),
        (
            ("twintrace", "module", "statistics"),
            {"extra": 0.4},
            "module statistics: extra time / msprobe module statistics",
        ),
        (("twintrace", "mix", "statistics"), {"extra": 1.1}, "mix statistics: extra time / msprobe mix statistics"),
        (("twintrace", "mix", "fingerprint"), {"extra": 1.1}, "mix fingerprint: extra time / msprobe mix statistics"),
        (("twintrace", "api", "tensor"), {"extra": 3.0}, "api tensor: extra time / msprobe api tensor"),
        (("twintrace", "api", "tensor"), {"bytes_per_step": 6e8}, "api tensor: bytes / msprobe api tensor"),
        (("twintrace", "api", "tensor"), {"files": 3000}, "api tensor: files of a step"),
        (("twintrace", "api", "statistics"), {"growth": 1.5}, "api statistics: last / first steps"),
        (("stopped", "api", "statistics"), {"both": 1.2}, "api statistics: stopped / bare"),
    ],
)
def test_a_bad_figure_misses_its_target_and_no_other(missed, key, figures, target):
    assert missed(judge, good_rows(), key, figures) == [target]


def test_a_tool_that_failed_is_not_measured(words):
    """A row with an error holds no figures, and zero extra time would meet anything."""
    rows = changed(("twintrace", "api", "tensor"), error="RuntimeError: no disk", extra=0.0)

    assert words(judge(rows))["api tensor: extra time / msprobe api tensor"] == "not measured"


def test_the_table_shows_a_failure_in_its_row():
    text = record.costs_table([Row("msprobe", "api", "tensor", error="OSError: no space")])

    assert text.splitlines()[1].split() == ["msprobe", "api", "tensor", "failed:", "OSError:", "no", "space"]


def test_a_failing_worker_becomes_a_row():
    class Failing:
        def ask(self, do, model=None):
            raise WorkerFailed("ImportError: No module named 'msprobe'")

    (row,) = in_turns([measure(Plan("msprobe", "api", "statistics", 1), Failing(), Failing())])

    assert row.error == "ImportError: No module named 'msprobe'"


def test_what_is_compared_takes_turns():
    seen = []

    def task(name, turns):
        for _ in range(turns):
            seen.append(name)
            yield
        return name.upper()

    assert in_turns([task("a", 3), task("b", 1), task("c", 2)]) == ["A", "B", "C"]
    assert seen == ["a", "b", "c", "a", "c", "a"]
    plans = [Plan(tool, level, keep, 1) for tool in ("twintrace", "msprobe") for level in ("module", "api", "mix")
             for keep in ("statistics", "fingerprint", "tensor")]  # fmt: skip
    for ours, theirs, _ in SHARES:
        (group,) = [group for group in record.in_groups(plans) if Plan("msprobe", *theirs, 1) in group]
        assert Plan("twintrace", *ours, 1) in group


@pytest.mark.parametrize(
    ("figures", "status"), [([], 0), ([(("stopped", "api", "statistics"), {"both": 1.2})], 1)], ids=["met", "missed"]
)
def test_the_status_tells_a_missed_target(monkeypatch, capsys, figures, status):
    rows = changed(figures[0][0], **figures[0][1]) if figures else good_rows()
    monkeypatch.setattr(record, "run", lambda *_: rows)

    assert record.main(["--no-peers"]) == status
    assert ("MISSED" in capsys.readouterr().out) == bool(status)


def test_a_peer_that_cannot_be_had_is_told(monkeypatch, capsys):
    def unavailable(name):
        raise peers.PeerUnavailable("pip ended with 1")

    monkeypatch.setattr(peers, "environment", unavailable)
    monkeypatch.setattr(record, "run", lambda *_: good_rows())

    assert record.main([]) == 1
    assert "msprobe was not measured: pip ended with 1" in capsys.readouterr().out


def test_a_worker_finds_the_peers_and_not_the_benchmarks_that_are_called_like_them(monkeypatch):
    """benchmarks/msprobe.py is a benchmark; `msprobe` is what it measures."""
    folder = str(Path(work.__file__).parent)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    assert importlib.util.find_spec("peers") is not None
    work.leave_own_folder()
    importlib.invalidate_caches()
    assert importlib.util.find_spec("peers") is None
    assert sys.path


def test_an_edit_whose_text_is_not_there_stops_the_build(tmp_path):
    (tmp_path / "peer.py").write_text("import one\n")
    edits = (peers.Edit("peer.py", "import one\n", "import two\n"),)
    peers.apply(edits, tmp_path)

    assert (tmp_path / "peer.py").read_text() == "import two\n"
    with pytest.raises(peers.PeerUnavailable, match="found it 0 times"):
        peers.apply(edits, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.needs_torch),
        pytest.param("mindspore", marks=pytest.mark.needs_mindspore),
    ],
)
def test_a_tiny_run_prints_both_tables_and_leaves_nothing(framework, tmp_path, capsys):
    """The whole way, with real workers: recorded, stopped and bare."""
    figures, disk = tmp_path / "figures.json", tmp_path / "disk"
    disk.mkdir()
    arguments = ["--no-peers", "--size", "tiny", "--rounds", "1", "--dir", str(disk), "--json", str(figures)]
    arguments += ["--framework", framework, "--only", "twintrace:api:statistics", "--only", "stopped"]
    record.main(arguments)

    rows = {(row["tool"], row["level"]): row for row in json.loads(figures.read_text())["rows"]}
    assert [*rows] == [("bare", ""), ("twintrace", "api"), ("stopped", "api")]
    assert [row["error"] for row in rows.values()] == [None, None, None]
    assert rows["twintrace", "api"]["both"] > 0
    assert rows["twintrace", "api"]["bytes_per_step"] > 0
    text = capsys.readouterr().out
    assert "low-high" in text
    assert "stopped / bare" in text
    assert [*disk.iterdir()] == []
