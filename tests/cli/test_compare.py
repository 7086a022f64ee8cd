"""`twintrace compare`, as a shell sees it: the verdict, the files, the exit codes."""

from __future__ import annotations

import csv
import json
import zipfile

import pytest

from tests.test_api import run


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("traces")
    return run(root / "left", keep="tensor"), run(root / "right", keep="tensor", eps=1e-2)


@pytest.fixture
def compare(command):
    return command("compare")


def test_the_verdict_comes_first_and_is_short(compare, traces):
    lines = compare(*traces, expect=1).splitlines()
    assert lines[0].startswith("left and right part at reference.layer_norm in norm")
    assert len(lines) <= 15


def test_agreement_is_0(compare, traces):
    assert "agree: all" in compare(traces[0], traces[0], expect=0)


def test_policies_and_tolerances_are_options(compare, traces, tmp_path):
    assert "within the tolerances that were given" in compare(*traces, "--rtol", 10, "--atol", 10, expect=0)
    assert "part at" in compare(*traces, "--policy", "torch_testing", expect=1)
    (tmp_path / "t.toml").write_text("rtol = 10\natol = 10\n")
    compare(*traces, "--tolerances", tmp_path / "t.toml", expect=0)
    assert "is not one of 'auto', 'msprobe'" in compare(*traces, "--policy", "lenient", expect=2)


def test_the_table_has_every_pair_in_whole_names(compare, traces):
    text = compare(*traces, "--table", expect=1)
    rows = [line for line in text.splitlines() if "reference.layer_norm" in line and "introduced here" in line]
    assert rows
    assert "different" in rows[0]


def test_reports_are_written_and_named(compare, traces, tmp_path):
    files = {kind: tmp_path / f"report.{kind}" for kind in ("html", "xlsx", "csv", "json")}
    options = [item for kind, path in files.items() for item in (f"--{kind}", path)]
    text = compare(*traces, *options, expect=1)
    assert [line.strip() for line in text.splitlines() if "written" in line] == [
        f"written: {path}" for path in files.values()
    ]
    assert files["html"].read_text().startswith("<!doctype html>")
    assert zipfile.is_zipfile(files["xlsx"])
    assert len(list(csv.reader(files["csv"].read_text().splitlines()))) > 10
    assert json.loads(files["json"].read_text())["policy"] == "auto"


def test_a_mapping_can_be_written_and_given_back(compare, traces, tmp_path):
    assert "written" in compare(*traces, "--write-map", tmp_path / "map.yaml", expect=1)
    first = compare(*traces, expect=1)
    assert compare(*traces, "--map", tmp_path / "map.yaml", expect=1).splitlines()[0] == first.splitlines()[0]
    (tmp_path / "map.yaml").write_text("mapping: 1\nmodles: {}\n")
    assert "map.yaml" in (found := compare(*traces, "--map", tmp_path / "map.yaml", expect=2))
    assert "modles" in found


def test_steps_can_be_chosen_and_one_that_is_not_there_is_2(compare, traces):
    compare(*traces, "--step", 0, expect=1)
    assert "among those that were asked for" in compare(*traces, "--step", 4, expect=2)


def test_noise_is_a_third_trace(compare, traces, tmp_path):
    again = run(tmp_path / "again", keep="tensor", unsteady=1e-2)
    assert "different" not in compare(*traces, "--noise", again, expect=0)
    assert "is no repeated run of" in compare(*traces, "--noise", traces[1], expect=2)


def test_a_report_that_cannot_be_written_is_2(compare, traces, tmp_path):
    assert str(tmp_path) in compare(*traces, "--csv", tmp_path / "no" / "such" / "place.csv", expect=2)


def test_accepted_differences_cost_no_exit_code(compare, traces, tmp_path):
    assert "(1 entry)" in compare(*traces, "--write-accept", tmp_path / "a.toml", expect=1)
    assert "part at" not in compare(*traces, "--accept", tmp_path / "a.toml", expect=0)
    (tmp_path / "a.toml").write_text('[[accept]]\nplace = "nowhere"\n')
    assert "fits no difference (place 'nowhere')" in compare(*traces, "--accept", tmp_path / "a.toml", expect=1)
    (tmp_path / "a.toml").write_text("[[accept]]\nwhere = 1\n")
    assert "got where" in compare(*traces, "--accept", tmp_path / "a.toml", expect=2)


def test_a_mistake_can_be_bundled(compare, traces, tmp_path):
    assert "b.zip" in compare(*traces, "--bundle", tmp_path / "b.zip", expect=1)
    assert "mistake/show.py" in zipfile.ZipFile(tmp_path / "b.zip").namelist()
    assert "there is no mistake to bundle" in compare(traces[0], traces[0], "--bundle", tmp_path / "c.zip", expect=0)


def test_recomputation_can_be_left_out(compare, traces):
    assert "The values were not recomputed (--no-recompute)" in compare(*traces, "--no-recompute", expect=1)
    assert "not recomputed (--no-recompute)" not in compare(*traces, expect=1)


def test_all_mistakes_are_listed(compare, traces):
    assert "All mistakes, each with its place and cause:" in compare(*traces, "--all", expect=1)
