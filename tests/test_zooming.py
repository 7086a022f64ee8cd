"""Zoom: a first look at two runs says what a second is to record, and the comparison of the second ones says why."""

from __future__ import annotations

import json

import pytest

import twintrace as tt
from twintrace import api
from twintrace.model.errors import UsageError
from twintrace.model.zoom import Zoom, zoom_of

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    """A layer with a norm and a function between."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.last = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.slope = 0.01

    def forward(self, x):
        x = self.norm(x)
        x = torch.nn.functional.leaky_relu(self.first(x), self.slope)
        return self.last(x)


class Net(torch.nn.Module):
    """Two blocks, one after the other."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = Block(), Block()

    def forward(self, x):
        return self.two(x + self.one(x))


def train(path, *, steps, wrong_at=None, **options):
    """A training in which one call of one step is told something else, if that is wanted."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    with tt.record(path, net, **{"level": "mix", "keep": "fingerprint", "strict": True} | options) as rec:
        for step in range(steps):
            net.two.slope = 0.2 if step == wrong_at else 0.01
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            rec.step()
    return path


@pytest.mark.parametrize("late", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_a_call_of_a_late_step_from_end_to_end(tmp_path, late):
    steps = late + 2
    first = [train(tmp_path / name, steps=steps, wrong_at=at) for name, at in (("a", None), ("b", late))]
    found = api.zoom(*first, path=tmp_path / "zoom.json")
    assert found.steps == (late,)
    assert f"part in step {late} at forward/api:torch.nn.functional.leaky_relu#1" in found.because

    second = [
        train(
            tmp_path / f"{name} again",
            steps=steps,
            wrong_at=at,
            zoom=tmp_path / "zoom.json",
            level="module",
            keep="statistics",
        )
        for name, at in (("a", None), ("b", late))
    ]
    trace = api.open(second[0])
    assert trace.steps == (late,)
    settings = trace.manifest["settings"]
    assert (settings["level"], settings["keep"]) == ("mix", "tensor")
    whole, seen = len(api.open(first[0]).journal(late)), len(trace.journal(late))
    assert 10 < seen <= whole
    comparison = tt.compare(*second)
    assert comparison.code == 1
    place = comparison.divergence
    assert place.result.match.left[0].site.name == "torch.nn.functional.leaky_relu"
    assert "negative_slope: 0.01 | 0.2" in place.mistake.why
    assert any(remark.startswith("Continues an earlier comparison") for remark in comparison.remarks)


@pytest.fixture
def runs(tmp_path):
    return [train(tmp_path / name, steps=4, wrong_at=at) for name, at in (("a", None), ("b", 2))]


def test_a_report_says_the_same_as_the_traces(tmp_path, runs):
    api.write_json(tt.compare(*runs), tmp_path / "report.json")
    of_report, of_traces = api.zoom(tmp_path / "report.json"), api.zoom(*runs)
    assert of_report.steps == of_traces.steps == (2,)
    assert of_report.sides == of_traces.sides
    assert api.zoom(tt.compare(*runs)).sides == of_traces.sides


def test_the_calls_around_the_place_are_wanted_and_no_others(runs):
    found = api.zoom(*runs)
    calls = found.sides[0].calls
    assert "forward/api:torch.nn.functional.leaky_relu#1" in calls
    assert "forward/module:two#0" in calls
    assert "forward/module:one.norm#0" not in calls
    assert found.sides[0].level == "mix"


def test_modules_are_looked_into_where_they_were_seen_from_outside(tmp_path):
    first = [train(tmp_path / name, steps=3, wrong_at=at, level="module") for name, at in (("a", None), ("b", 1))]
    found = api.zoom(*first)
    assert (found.steps, found.sides[0].level) == ((1,), "mix")
    second = [
        train(tmp_path / f"{name} again", steps=3, wrong_at=at, zoom=found) for name, at in (("a", None), ("b", 1))
    ]
    assert tt.compare(*second).divergence.result.match.left[0].site.name == "torch.nn.functional.leaky_relu"


def test_equal_runs_have_nothing_to_zoom_into(tmp_path):
    assert api.zoom(train(tmp_path / "a", steps=2), train(tmp_path / "b", steps=2), path=tmp_path / "zoom.json") is None
    assert not (tmp_path / "zoom.json").exists()


def test_one_run_is_looked_at_for_nan(tmp_path):
    def run(path, **options):
        with tt.record(path, level="api", framework="torch", **options) as rec:
            for step in range(3):
                x = torch.arange(4.0) - step
                (x.clamp(min=0).sqrt().log() * 2).sum()
                rec.step()
        return path

    found = api.zoom(run(tmp_path / "a", keep="statistics"), path=tmp_path / "zoom.json")
    assert found.steps == (0,)
    assert "logarithm" in found.because
    journal = api.open(run(tmp_path / "b", zoom=tmp_path / "zoom.json")).journal(0)
    call = next(call for call in journal.calls() if call.site.name.endswith(".log"))
    assert journal.array(journal.tensor(call.args[0].id)).tolist()[0] == 0.0


def test_a_file_that_is_none(tmp_path, runs):
    (tmp_path / "zoom.json").write_text("{}")
    with pytest.raises(UsageError, match="a file that `twintrace zoom` wrote"):
        tt.record(tmp_path / "c", Net(), zoom=tmp_path / "zoom.json")
    with pytest.raises(UsageError, match="cannot be read"):
        tt.record(tmp_path / "c", Net(), zoom=tmp_path / "none.json")
    document = api.zoom(*runs).document()
    for change in ({"version": 2}, {"steps": ["1"]}, {"sides": [{}]}):
        with pytest.raises(UsageError, match="zoom"):
            zoom_of(document | change, "zoom.json")
    assert zoom_of(json.loads(json.dumps(document)), "zoom.json") == api.zoom(*runs)


def test_another_framework_is_told(tmp_path, runs):
    found = api.zoom(*runs)
    with pytest.raises(UsageError, match="this is one of reference"):
        Zoom(found.steps, found.ranks, found.sides, "").level("reference")


@pytest.mark.needs_mindspore
def test_two_frameworks(tmp_path):
    """Each run takes its own part of one file."""
    ms = pytest.importorskip("mindspore")
    import numpy as np

    torch.manual_seed(0)
    left = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 2))
    right = ms.nn.SequentialCell(ms.nn.Dense(4, 6), ms.nn.LayerNorm((6,), epsilon=0.1), ms.nn.Dense(6, 2))
    for one, two in zip(left.parameters(), right.get_parameters(), strict=True):
        two.set_data(ms.Tensor(one.detach().numpy()))
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

    def run(name, **options):
        for side, net, tensor in (("torch", left, torch.from_numpy(x)), ("mindspore", right, ms.Tensor(x))):
            with tt.record(tmp_path / name / side, net, **options) as rec:
                for _ in range(2):
                    net(tensor)
                    rec.step()
        return tmp_path / name / "torch", tmp_path / name / "mindspore"

    first = run("first", level="mix", keep="tensor")
    found = api.zoom(*first, path=tmp_path / "zoom.json")
    assert found.steps == (0,)
    assert [side.framework for side in found.sides] == ["torch", "mindspore"]
    assert any("layer_norm" in call for call in found.sides[0].calls)
    assert any("LayerNorm" in call or "layer_norm" in call for call in found.sides[1].calls)
    comparison = tt.compare(*run("second", zoom=tmp_path / "zoom.json"))
    assert "eps" in comparison.divergence.mistake.why
