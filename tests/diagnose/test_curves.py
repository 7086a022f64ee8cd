"""Curves of a run: what they say is what the framework computed."""

import contextlib
import json

import pytest
from click.testing import CliRunner

import twintrace as tt
from twintrace import api
from twintrace.cli import cli
from twintrace.report.curves import sparkline

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training, and what PyTorch says of it step by step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    path, truth = tmp_path_factory.mktemp("curves") / "t", []
    x = torch.randn(16, 4)
    with tt.record(path, net, keep="statistics") as rec:
        for _ in range(5):
            optimizer.zero_grad()
            weights = torch.cat([p.detach().flatten() for p in net.parameters()]).norm().item()
            loss = net(x).square().mean()
            loss.backward()
            gradients = torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item()
            dead = (net[1](net[0](x)) == 0).float().mean().item()
            truth.append({"loss": loss.item(), "weights": weights, "gradients": gradients, "dead": dead})
            optimizer.step()
            rec.step()
    return path, truth


def test_they_are_what_was_computed(run):
    path, truth = run
    found = {curve.name: curve for curve in api.curves_of(path).curves}
    for name in ("loss", "weights", "gradients", "dead"):
        assert [step for step, _ in found[name].points] == [0, 1, 2, 3, 4]
        assert found[name].known == pytest.approx([item[name] for item in truth], rel=1e-5)


def test_layers(run):
    layers = {layer.name: layer for layer in api.curves_of(run[0]).layers}
    assert set(layers) == {"0", "1", "2"}
    assert layers["1"].type == "ReLU"
    assert layers["1"].zeros == pytest.approx(run[1][-1]["dead"], abs=1e-6)
    assert layers["0"].zeros == 0
    assert layers["2"].gradient > 0


def test_some_steps(run):
    assert [step for step, _ in api.curves_of(run[0], steps=[1, 3]).curves[0].points] == [1, 3]
    with pytest.raises(tt.TraceError, match="none of these steps"):
        api.curves_of(run[0], steps=[77])


def test_what_is_printed(run):
    said = CliRunner().invoke(cli, ["show", str(run[0]), "--curves"]).output
    assert "steps 0 to 4" in said
    assert "norm of the gradients of all parameters" in said
    assert "ReLU" in said
    document = json.loads(CliRunner().invoke(cli, ["show", str(run[0]), "--curves", "--json"]).output)
    assert [curve["name"] for curve in document["curves"]] == ["loss", "gradients", "weights", "results", "dead"]


def test_a_step_that_is_not_finite_is_a_gap(tmp_path):
    net = torch.nn.Linear(2, 1)
    with tt.record(tmp_path / "t", net, keep="statistics") as rec:
        for value in (1.0, float("nan"), 1.0):
            net(torch.full((1, 2), value)).sum().backward()
            rec.step()
            net.zero_grad()
    found = {curve.name: [value for _, value in curve.points] for curve in api.curves_of(tmp_path / "t").curves}
    assert [value is None for value in found["gradients"]] == [False, True, False]
    assert "1 steps without" in api.curves_text(api.curves_of(tmp_path / "t"))


def bent(path, *, rate=0.3, keep="tensor"):
    """A training with functions that go flat, recorded where there is a path, and what PyTorch says of it where not."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Sigmoid())
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    x, truth = torch.linspace(-6, 6, 64).reshape(16, 4), []
    rec = tt.record(path, net, level="mix", keep=keep) if path else None
    with rec or contextlib.nullcontext():
        for _ in range(4):
            before = torch.cat([p.detach().flatten() for p in net.parameters()]) if rec is None else None
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            if rec is not None:
                rec.step()
                continue
            after = torch.cat([p.detach().flatten() for p in net.parameters()])
            with torch.no_grad():
                tanh = 1 - net[1](net[0](x)) ** 2
                sigmoid = net(x) * (1 - net(x)) * 4
            flat = 1 - torch.cat([tanh.flatten(), sigmoid.flatten()]).mean().item()
            truth.append({"update": ((after - before).norm() / before.norm()).item(), "flat": flat})
    return truth


def test_flat_functions_and_updates(tmp_path):
    bent(tmp_path / "t")
    truth = bent(None)
    found = {curve.name: [value for _, value in curve.points] for curve in api.curves_of(tmp_path / "t").curves}
    # Of a step what the step before has left.
    assert found["saturated"][1:] == pytest.approx([item["flat"] for item in truth[:-1]], rel=1e-4)
    assert found["updates"][0] is None
    assert found["updates"][1:] == pytest.approx([item["update"] for item in truth[:-1]], rel=1e-4)
    layers = {layer.name: layer.update for layer in api.curves_of(tmp_path / "t").layers}
    assert layers["0"] > 0
    assert layers["1"] is None


def test_updates_need_values(tmp_path):
    bent(tmp_path / "t", keep="statistics")
    names = {curve.name for curve in api.curves_of(tmp_path / "t").curves}
    assert "saturated" in names
    assert "updates" not in names


def test_two_runs(tmp_path):
    bent(tmp_path / "a")
    bent(tmp_path / "b", rate=0.31)
    comparison = tt.compare(tmp_path / "a", tmp_path / "b")
    found = api.compared_curves(comparison)
    apart = {curve.name: [value for _, value in curve.points] for curve in found.apart}
    losses = [dict(side.curves[0].points) for side in (found.left, found.right)]
    for step, distance in enumerate(apart["loss"]):
        assert distance == pytest.approx(abs(losses[0][step] - losses[1][step]) / losses[0][step])
    assert apart["loss"][0] == 0
    assert apart["of bound"][0] > 1  # the update of the first step
    said = api.curves_text(found)
    assert "left above right" in said
    assert "how far the two losses are apart" in said


def test_curves_on_the_page(tmp_path):
    """Of a trace its own, of a comparison those of both runs; none where a trace is gone."""
    from twintrace.api.reporting import comparison_page
    from twintrace.api.viewing import trace_page_sheet

    traces = [tmp_path / "a", tmp_path / "b"]
    bent(traces[0])
    bent(traces[1], rate=0.31)
    own = [api.curves_of(trace).curves for trace in traces]
    known = {item["name"]: item["sides"] for item in trace_page_sheet(api.open(traces[0])).index["curves"]}
    assert [*known] == [curve.name for curve in own[0]]
    comparison = tt.compare(*traces)
    both = {item["name"]: item["sides"] for item in comparison_page(comparison).index["curves"]}
    for name in ("loss", "gradients"):
        drawn = [
            [[step, pytest.approx(value, rel=1e-5)] for step, value in curve.points]
            for curves in own
            for curve in curves
            if curve.name == name
        ]
        assert both[name] == drawn
        assert known[name] == drawn[:1]
    traces[0].rename(tmp_path / "moved")
    assert comparison_page(comparison).index["curves"] == []


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([1.0, 2.0, 3.0], "▁▅█"),
        ([1.0, 1.0], "▁▁"),
        ([1.0, 1e2, 1e4], "▁▅█"),
        ([None, 1.0, None, 2.0], "·▁·█"),
        ([None], "·"),
        ([0.0, -1.0], "█▁"),
    ],
)
def test_a_line_of_bars(values, drawn):
    assert sparkline(values) == drawn


def test_many_values_are_put_together_by_the_largest():
    assert len(sparkline([float(i) for i in range(1000)], width=10)) == 10
    assert sparkline([1.0] * 50 + [9.0] + [1.0] * 49, width=10) == "▁▁▁▁▁█▁▁▁▁"
