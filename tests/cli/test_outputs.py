"""What commands write, and where: paths are looked at first, standard output can be piped, nothing is overwritten unasked."""

import csv
import io
import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from tests.test_api import run
from twintrace import api
from twintrace.cli.outputs import bar
from twintrace.report import progress
from twintrace.report.tables import MAIN, SHEET


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("traces")
    return run(root / "left"), run(root / "right", eps=1e-2)


@pytest.fixture
def twintrace(checkout_env):
    """`twintrace("compare", …)`: the exit code, standard output, standard error."""

    def call(*arguments):
        code = "from twintrace.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=checkout_env, capture_output=True,
                              text=True, timeout=300)  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.mark.parametrize("option", ["--html", "--json", "--csv", "--xlsx", "--write-map"])
def test_a_folder_that_is_not_there_is_told_before_the_work(command, traces, tmp_path, monkeypatch, option):
    monkeypatch.setattr(api, "compare", lambda *_, **__: pytest.fail("it was compared"))
    assert "does not exist" in command("compare")(*traces, option, tmp_path / "nope" / "x", expect=2)


def test_json_on_standard_output_is_json_and_nothing_else(twintrace, traces):
    code, out, err = twintrace("compare", *traces, "--json", "-")
    assert code == 1
    assert json.loads(out)["agree"] is False
    assert "part at" in err


def test_quiet_says_it_by_the_exit_code(twintrace, traces, tmp_path):
    assert twintrace("compare", *traces, "--quiet", "--csv", tmp_path / "x.csv") == (1, "", "")
    assert (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(("other", "expected"), [(0, 0), (1, 1)])
def test_a_reader_that_stops_changes_neither_files_nor_exit_code(checkout_env, traces, tmp_path, other, expected):
    """`set -o pipefail; twintrace compare … --table --csv x.csv | head -1`."""
    code = "from twintrace.cli import main; main()"
    words = [sys.executable, "-c", code, "compare", traces[0], traces[other], "--table", "--csv", tmp_path / "x.csv"]
    with subprocess.Popen(words, env=checkout_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        run.stdout.close()
        assert (run.wait(timeout=300), run.stderr.read()) == (expected, "")
    assert (tmp_path / "x.csv").exists()


def test_the_columns_of_the_csv(command, traces, tmp_path):
    for name, columns in (("main", MAIN), ("all", [column.name for column in SHEET])):
        command("compare")(*traces, "--csv", tmp_path / name, "--columns", name, expect=1)
        rows = list(csv.reader(io.StringIO((tmp_path / name).read_text(encoding="utf-8"), newline="")))
        assert rows[0] == list(columns)
        assert {len(row) for row in rows} == {len(columns)}
    command("compare")(*traces, "--csv", tmp_path / "plain", expect=1)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "main").read_bytes()
    assert (tmp_path / "main").stat().st_size < (tmp_path / "all").stat().st_size / 2


@pytest.mark.parametrize(("typed", "meant"), [("comapre", "compare"), ("veiw", "view"), ("doktor", "doctor")])
def test_the_nearest_command_is_named(twintrace, typed, meant):
    code, _, err = twintrace(typed)
    assert code == 2
    assert f"No such command '{typed}'. Did you mean {meant}?" in err


@pytest.mark.parametrize(
    "words", [("compare", "a", "b", "--policy", "atuo"), ("export", "a", "--to", "msprob", "-o", "x")]
)
def test_what_may_be_chosen_is_listed(twintrace, words):
    code, _, err = twintrace(*words)
    assert code == 2
    assert "is not one of" in err
    assert "msprobe" in err


def test_a_mapping_that_is_there_is_not_overwritten(command, traces, tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text("edited by hand")
    assert "is there already" in command("compare")(*traces, "--write-map", file, expect=2)
    assert file.read_text() == "edited by hand"
    command("compare")(*traces, "--write-map", file, "--force", expect=1)
    assert file.read_text().startswith("mapping: 1")


class TestWeights:
    @pytest.fixture
    def checkpoint(self, tmp_path):
        from safetensors.numpy import save_file

        save_file({"fc.weight": np.ones((2, 2), np.float32)}, tmp_path / "net.safetensors")
        return tmp_path / "net.safetensors"

    def test_a_checkpoint_that_is_there_is_not_overwritten(self, command, checkpoint, tmp_path):
        target = tmp_path / "net.ckpt"
        target.write_bytes(b"precious")
        assert "is there already" in command("weights", "convert")(checkpoint, target, expect=2)
        assert target.read_bytes() == b"precious"
        command("weights", "convert")(checkpoint, target, "--force", expect=None)
        assert target.read_bytes() != b"precious"

    @pytest.mark.parametrize(
        ("left", "right", "agree"),
        [(100.0, 100.9, True), (100.9, 100.0, True), (100.0, 101.05, False), (101.05, 100.0, True)],
    )
    def test_tolerances_are_relative_to_the_left(self, left, right, agree):
        """1.05 is beyond 1.04 % of 100 and within 1.04 % of 101.05: as everywhere, the left is the reference."""
        sides = [{"w": np.array([value], np.float32)} for value in (left, right)]
        limits = {"rtol": 0.0104, "atol": 0.0}
        assert api.compare_weights(*sides, **limits).agree is agree
        assert api.compare_weights(*reversed(sides), **limits, relative_to="right").agree is agree


def test_the_bar_is_one_line_however_much_is_told(monkeypatch):
    """Forty steps were eighty lines, drawn ten times a second."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress.progress_bar() as tell:
        for step in range(40):
            for phase in (
                "pairing",
                "measuring a thing with a very long name that does not fit on the line of any terminal",
            ):
                for number in range(50):
                    tell(f"step {step}, rank 0: {phase}", number, 50)
    written = screen.getvalue()
    assert len(written) < 100_000
    assert "\x1b[1A\x1b[2K\x1b[1A" not in written  # never two lines up


def test_the_bar_goes_over_all_steps_once(tmp_path):
    left, right = (
        run(tmp_path / "left", steps=3, keep="tensor"),
        run(tmp_path / "right", steps=3, keep="tensor", eps=1e-2),
    )
    told = []
    api.compare(left, right, progress=lambda *what: told.append(what))
    done = [number for _, number, _ in told]
    assert done == sorted(done)
    assert {total for _, _, total in told} == {3000}
    assert (told[0][1], told[-1][1]) == (0, 3000)
    assert "(1 of 3)" in told[0][0]


def test_quiet_says_nothing_of_compiling_either():
    log = logging.getLogger("twintrace")
    with bar(quiet=True):
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING)
