"""`twintrace npy compare`, as a shell sees it."""

import csv
import json
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

import twintrace.compat.troubleshooter as ts
from twintrace import api
from twintrace.cli import cli

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def folders(tmp_path):
    for side, arrays in (("left", [X, X, X]), ("right", [X, X + 1, X.T])):
        (tmp_path / side).mkdir()
        for number, array in enumerate(arrays):
            np.save(tmp_path / side / f"{number}_x.npy", array)
    np.save(tmp_path / "left" / "3_only.npy", X)
    (tmp_path / "left" / "4_bad.npy").write_bytes(b"")
    np.save(tmp_path / "right" / "4_bad.npy", X)
    return tmp_path / "left", tmp_path / "right"


@pytest.fixture
def compare(command):
    return command("npy", "compare")


def test_the_verdict_and_every_row(compare, folders):
    text = compare(*folders, "--table", expect=1)
    assert text.startswith("left and right part at 1_x.npy\n")
    assert "4 pairs of files: 1 the same, 2 different, 1 not comparable. Unpaired: 1 left, 0 right." in text
    rows = [line for line in text.splitlines() if ".npy" in line and line[:1].isdigit()]
    assert len(rows) == 5
    for sentence in ("the shapes do not fit: f32[3, 4] | f32[4, 3]", "it is empty", "no file of this name"):
        assert any(sentence in row for row in rows), sentence


def test_exit_codes(compare, folders, tmp_path):
    assert "write again what is damaged" in compare(folders[0], folders[0], expect=3)  # one cannot be read
    (folders[0] / "4_bad.npy").unlink()
    assert "left agree: all 4 pairs are the same, bit by bit" in compare(folders[0], folders[0], expect=0)
    compare(*folders, expect=1)
    (tmp_path / "other").mkdir()
    assert "expected .npy files" in compare(folders[0], tmp_path / "other", expect=2)
    assert "does not exist" in compare(folders[0], tmp_path / "gone", expect=2)
    np.save(tmp_path / "other" / "z.npy", X)
    assert "have nothing in common" in compare(folders[0], tmp_path / "other", expect=2)


def test_tolerances_and_nan(compare, folders):
    (folders[0] / "4_bad.npy").unlink()
    text = compare(*folders, "--rtol", 0, "--atol", 2, expect=1)
    assert "part at 2_x.npy" in text  # shapes have no tolerance
    for side in folders:
        for path in side.iterdir():
            path.unlink()
        np.save(side / "x.npy", np.array([np.nan, 1.0]))
    assert "NaN on both sides" in compare(*folders, expect=1)
    assert "agree" in compare(*folders, "--equal-nan", expect=0)


def test_the_reference_is_the_left_here_and_the_target_in_the_embassy(compare, tmp_path):
    for side, value in (("one", 1.0), ("two", 2.0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "x.npy", np.full(3, value))
    one, two = tmp_path / "one", tmp_path / "two"
    for orig, target, agree in ((one, two, True), (two, one, False)):
        table = ts.migrator.compare_npy_dir(orig, target, rtol=0.75, atol=0.0)
        assert f"| {agree!s:^18} |" in table
        compare(target, orig, "--rtol", 0.75, "--atol", 0, expect=0 if agree else 1)


def test_what_belongs_together(compare, tmp_path):
    for side, names in (("left", ["a1", "a2", "a3"]), ("right", ["b4", "b5"])):
        (tmp_path / side).mkdir()
        for name, shape in zip(names, [(2, 3), (3,), (3,)], strict=False):
            np.save(tmp_path / side / f"{name}.npy", np.ones(shape))
    sides = tmp_path / "left", tmp_path / "right"
    assert "have nothing in common" in compare(*sides, expect=2)
    for options in (["--by", "number"], ["--by", "shape"], ["--grads"], ["--grads", "--by", "shape"]):
        assert "2 pairs of files: 2 the same. Unpaired: 1 left, 0 right." in compare(*sides, *options, expect=1)


def test_options_that_contradict_each_other_are_refused(folders):
    done = CliRunner().invoke(cli, ["npy", "compare", *map(str, folders), "--grads", "--by", "name"])
    assert done.exit_code == 2
    assert "--grads means --by shape" in done.output


@pytest.mark.parametrize("command", [["npy", "compare"], ["compare"]])
def test_two_reports_in_one_file_are_refused(folders, tmp_path, command):
    """Before anything is compared or written."""
    (tmp_path / "link").symlink_to(tmp_path)
    files = ["--csv", str(tmp_path / "r"), "--json", str(tmp_path / "link" / "r")]
    done = CliRunner().invoke(cli, [*command, *map(str, folders), *files])
    assert done.exit_code == 2
    assert "--csv and --json would both write" in done.output
    assert not (tmp_path / "r").exists()


def test_all_the_reports_of_a_comparison(compare, folders, tmp_path):
    files = {kind: tmp_path / f"report.{kind}" for kind in ("html", "xlsx", "csv", "json")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", path)]
    assert compare(*folders, *options, expect=1).count("written: ") == 4
    with files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows] == ["same", "different", "different", "unknown", "unknown"]
    assert rows[4]["because"] == "only on the left: the other side has no file of this name"
    assert (rows[4]["left_site"], rows[4]["right_site"]) == ("forward/save:3_only.npy#0", "")
    assert rows[1]["left_site"] == "forward/save:1_x.npy#0"
    assert float(rows[1]["max_abs"]) == 1.0
    assert "4_bad.npy: no npy file: it is empty" in rows[3]["because"]
    assert json.loads(files["json"].read_text())
    found = api.read_report(files["json"])
    assert (len(found.results), len(found.only_left), found.saved) == (4, 1, True)
    assert found.results[1].tensors[0].measurement.heat is not None
    assert "The folders part at" in files["html"].read_text(encoding="utf-8")
    with zipfile.ZipFile(files["xlsx"]) as book:
        assert any(b"4_bad.npy" in book.read(name) for name in book.namelist())
