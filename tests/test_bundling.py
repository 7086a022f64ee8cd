"""A mistake as a zip that needs no twintrace."""

import json
import subprocess
import sys
import zipfile

import pytest

import twintrace as tt
from tests.test_api import run as run_reference
from twintrace import api
from twintrace.api.bundling import SCRIPT


def shown(path, folder):
    """Output of the script, in a process that cannot import twintrace."""
    with zipfile.ZipFile(path) as bundle:
        bundle.extractall(folder)
    hide = "import sys, runpy; sys.modules['twintrace'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", hide, str(folder / "mistake" / "show.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_is_short_enough_to_be_read():
    assert len(SCRIPT.splitlines()) <= 50
    assert "twintrace" not in SCRIPT


@pytest.mark.needs_torch
def test_a_call_of_pytorch_is_computed_again(tmp_path):
    import torch
    from torch import nn

    for side, eps in (("left", 1e-5), ("right", 0.5)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps=eps)).bfloat16()
        with tt.record(tmp_path / side, net, level="mix", keep="tensor"):
            net(torch.randn(4, 8).bfloat16())
    sides = tmp_path / "left", tmp_path / "right"
    assert api.write_bundle(*sides, tt.compare(*sides), tmp_path / "b.zip")
    text = shown(tmp_path / "b.zip", tmp_path)
    assert "eps=1e-05" in text
    assert "eps=0.5" in text
    assert next(line for line in text.splitlines() if line.startswith("input 0")).endswith("equal")
    again = [line for line in text.splitlines() if "recorded | computed in float64: relative error" in line]
    assert len(again) == 2
    assert all(float(line.split("relative error ")[1].split(",")[0]) < 2**-7 for line in again)
    case = json.loads((tmp_path / "mistake" / "case.json").read_text(encoding="utf-8"))
    assert case["mistake"]["kind"] == "meaning"
    assert case["versions"]["twintrace"] == tt.__version__


def test_of_another_framework_the_arrays_are_shown(tmp_path):
    sides = run_reference(tmp_path / "left", keep="tensor"), run_reference(tmp_path / "right", keep="tensor", eps=0.5)
    assert api.write_bundle(*sides, tt.compare(*sides), tmp_path / "b.zip")
    text = shown(tmp_path / "b.zip", tmp_path)
    assert "recorded arrays only: reference.layer_norm is no function of PyTorch" in text
    assert "relative error" in text


def test_where_there_is_no_mistake_nothing_is_written(tmp_path):
    side = run_reference(tmp_path / "left", keep="tensor")
    assert not api.write_bundle(side, side, tt.compare(side, side), tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()
