"""`twintrace zoom`: what it says, and its exit codes."""

import json

import pytest

import twintrace as tt

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


def recorded(path, slope):
    with tt.record(path, level="api", framework="torch") as rec:
        for step in range(3):
            torch.nn.functional.leaky_relu(torch.arange(-4.0, 4.0), slope if step == 1 else 0.01).sum()
            rec.step()
    return path


def test_written(command, tmp_path):
    runs = recorded(tmp_path / "a", 0.01), recorded(tmp_path / "b", 0.3)
    said = command("zoom")(*runs, "-o", tmp_path / "zoom.json", expect=None)
    assert "part in step 1 at forward/api:torch.nn.functional.leaky_relu#0" in said
    document = json.loads((tmp_path / "zoom.json").read_text())
    assert document["steps"] == [1]
    assert document["sides"][0]["framework"] == "torch"
    assert "is there already" in command("zoom")(*runs, "-o", tmp_path / "zoom.json", expect=2)
    command("zoom")(*runs, "-o", tmp_path / "zoom.json", "--force", expect=None)


def test_nothing_to_zoom_into(command, tmp_path):
    runs = recorded(tmp_path / "a", 0.01), recorded(tmp_path / "b", 0.01)
    assert "the two runs are the same" in command("zoom")(*runs, "-o", tmp_path / "zoom.json", expect=3)
    assert "every value is finite" in command("zoom")(runs[0], "-o", tmp_path / "zoom.json", expect=3)
    assert not (tmp_path / "zoom.json").exists()
