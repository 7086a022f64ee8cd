"""`twintrace why-nan`: what it says, and its exit codes."""

import json

import pytest

import twintrace as tt

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


def recorded(path, run, **options):
    with tt.record(path, **{"level": "api", "keep": "statistics", "framework": "torch"} | options) as rec:
        run()
        rec.step()
        torch.ones(2) + 1
    return path


@pytest.fixture
def broken(tmp_path):
    return recorded(tmp_path / "t", lambda: torch.tensor([0.0, 1.0]).log().sum())


def test_found(command, broken):
    said = command("why-nan")(broken, expect=1)
    assert "arises at torch.Tensor.log, step 0, forward" in said
    assert "test_why_nan.py" in said
    assert "log of zero: 1 of 2 elements of the input are 0" in said
    assert "input f32[2] 0 … 1, norm 1, 1 zero" in said


def test_for_machines(command, broken):
    document = json.loads(command("why-nan")(broken, "--json", expect=1))
    assert document["code"] == 1
    origin = document["origin"]
    assert (origin["site"], origin["source"]) == ("forward/api:torch.Tensor.log#0", "logarithm of zero or less")
    assert origin["given"][0]["statistics"]["zero"] == 1
    assert origin["made"][0]["statistics"]["neginf"] == 1


def test_of_other_steps_nothing_is_said(command, broken):
    assert "every recorded value is finite, in 1 step" in command("why-nan")(broken, "--step", "1", expect=0)
    assert "none of the steps" in command("why-nan")(broken, "--step", "7", expect=2)


def test_harmless(command, tmp_path):
    path = recorded(tmp_path / "t", lambda: torch.tensor([0.0, 1.0]).log().softmax(0).sum())
    said = command("why-nan")(path, expect=0)
    assert "nothing that is not finite has an effect, in 2 steps" in said
    assert "torch.Tensor.log made 1 -inf, and torch.Tensor.softmax gives finite results of it" in said


def test_no_trace(command, tmp_path):
    assert "why-nan" not in command("why-nan")(tmp_path / "none", expect=2)


def test_without_values(command, tmp_path):
    with tt.record(tmp_path / "t", level="api", keep="statistics", framework="torch"):
        torch.ones(2, device="meta") + 1
    assert "could not be told" in command("why-nan")(tmp_path / "t", expect=3)


def test_show_says_it_too(command, broken):
    said = command("show")(broken, "--nonfinite", expect=None)
    assert said.index("log of zero") < said.index("torch.Tensor.log#0")
    assert "origin" not in json.loads(command("show")(broken, "--nonfinite", "--json", expect=None))
