"""`twintrace export` and `twintrace import`: there and back, exit codes, one sentence for what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import twintrace as tt
from tests.test_api import run
from twintrace.api import exporters


@pytest.fixture
def twintrace(checkout_env):
    def call(*arguments, expect=0):
        code = "from twintrace.cli import main; main()"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, env=checkout_env, capture_output=True, text=True, timeout=300)
        assert done.returncode == expect, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return call


def test_there_and_back(tmp_path, twintrace):
    source = run(tmp_path / "own", keep="tensor", steps=2)
    said = twintrace("export", source, "--to", "msprobe", "-o", tmp_path / "dump")
    assert said.startswith(f"written: {tmp_path / 'dump'} (msprobe): 2 steps, 1 rank, ")
    assert (tmp_path / "dump" / "step1" / "rank" / "dump.json").is_file()
    said = twintrace("import", tmp_path / "dump", "--output", tmp_path / "back")
    assert "(twintrace): 2 steps" in said
    assert tt.open(tmp_path / "back").steps == (0, 1)
    assert "bit by bit" in twintrace("compare", tmp_path / "dump", tmp_path / "back")


def test_a_damaged_dump_is_imported_as_far_as_it_goes(tmp_path, twintrace):
    record = {"output": [{"type": "int", "value": 3}]}
    document = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": {"Torch.a.0.forward": record}}
    (tmp_path / "dump.json").write_text(json.dumps(document, indent=1)[:-5] + ', "Torch.b.0.for')
    said = twintrace("import", tmp_path / "dump.json", "-o", tmp_path / "own", expect=1)
    assert "1 call" in said
    assert "damaged:" in said


def test_what_cannot_be_is_2_and_one_sentence(tmp_path, twintrace):
    source = run(tmp_path / "own")
    said = twintrace("export", source, "--to", "excel", "-o", tmp_path / "x", expect=2)
    assert "'excel' is not one of" in said
    assert "is there already" in twintrace("export", source, "--to", "msprobe", "-o", source, expect=2)
    assert "does not exist" in twintrace("import", tmp_path / "none", "-o", tmp_path / "x", expect=2)
    assert "Missing option '--to'" in twintrace("export", source, "-o", tmp_path / "x", expect=2)


def test_what_is_there_is_overwritten_only_by_force(tmp_path, twintrace):
    source = run(tmp_path / "own", keep="tensor")
    file, trace = tmp_path / "dump.pkl", run(tmp_path / "old", steps=3)
    file.write_text("precious")
    for options, target in ((("export", source, "--to", "torch_npu"), file), (("import", source), trace)):
        assert "is there already" in twintrace(*options, "-o", target, expect=2)
    assert file.read_text() == "precious"
    assert tt.open(trace).steps == (0, 1, 2)
    twintrace("export", source, "--to", "torch_npu", "-o", file, "--force")
    twintrace("import", source, "-o", trace, "--force")
    assert len(tt.open(file)) > 0
    assert tt.open(trace).steps == (0,)


@pytest.mark.parametrize("place", ["precious.txt", "step0/rank0/precious.txt"])
def test_force_removes_nothing_that_is_no_trace(tmp_path, twintrace, place):
    source, trace, folder = run(tmp_path / "own", keep="tensor"), run(tmp_path / "old"), tmp_path / "folder"
    for root in (trace, folder):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("precious")
        twintrace("import", source, "-o", root, "--force", expect=2)
        assert (root / place).read_text() == "precious"
    assert len(tt.open(trace)) > 0


def test_help_names_the_layouts(twintrace):
    said = twintrace("export", "--help")
    assert [name for name in exporters() if name not in said] == []


def test_what_the_other_layout_has_no_place_for_is_told(tmp_path, twintrace):
    """msprobe records neither the optimizer nor the model itself."""
    source = run(tmp_path / "own")
    said = twintrace("export", source, "--to", "msprobe", "-o", tmp_path / "dump")
    calls = list(tt.open(source).calls())
    updates = sum(call.site.phase == "update" for call in calls)
    assert updates
    assert "not carried over, as msprobe has no place for it" in said
    assert f"{updates} calls of the update" in said
    assert "1 call of the model itself" in said
    assert "not carried over" not in twintrace("import", source, "-o", tmp_path / "copy")
