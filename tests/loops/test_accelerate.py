"""`twintrace.loops.accelerate`: a loop of accelerate's own kind is recorded by its steps."""

from __future__ import annotations

import itertools

import pytest

import twintrace as tt
from twintrace.model.sites import Kind, Phase

pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]  # the library's own
torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from twintrace.loops.accelerate import record  # noqa: E402 - only where the library is


def train(path, *, batches=6, accumulated=1, momentum=0.9, save=None, load=None, evaluate=False, **options):
    """A training; `save` and `load` are folders of accelerate's state."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    precision = options.pop("mixed_precision", "no")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated, mixed_precision=precision)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    rows = torch.randn(48, 6, generator=torch.Generator().manual_seed(1))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    rec = record(path, net, accelerator, **{"level": "mix", "keep": "tensor", "strict": True} | options)
    if load is not None:
        accelerator.load_state(load)
    skipped = rec.state_dict()["done"] * accumulated
    loader = accelerator.skip_first_batches(loader, skipped)
    with rec:
        for batch in itertools.islice(loader, batches - skipped):
            with accelerator.accumulate(net):
                accelerator.backward(net(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            rec.step()
            if evaluate:
                with rec.paused(), torch.no_grad():
                    net(batch)
        if save is not None:
            accelerator.save_state(save)
    return tt.open(path)


def calls_of(trace, step, name):
    sites = [call.site for call in trace.journal(step).calls()]
    return sum(site.kind is Kind.MODULE and site.name == name for site in sites)


def test_steps_are_those_of_the_optimizer(tmp_path):
    """Batches whose gradients are accumulated are one step; what is paused is in none; names are the model's own."""
    trace = train(tmp_path / "t", accumulated=3, evaluate=True)
    assert trace.steps == (0, 1)
    assert [calls_of(trace, step, "0") for step in trace.steps] == [3, 3]
    for step in trace.steps:
        assert sum(call.site.phase is Phase.UPDATE for call in trace.journal(step).calls()) == 1


def test_a_training_that_goes_on_is_the_one_that_never_stopped(tmp_path):
    train(tmp_path / "parts", batches=4, save=tmp_path / "state", level="module")  # data are read at other moments
    parts = train(tmp_path / "parts", load=tmp_path / "state", level="module")
    assert parts.steps == tuple(range(6))
    train(tmp_path / "whole", level="module")
    found = tt.compare(tmp_path / "whole", tmp_path / "parts")
    assert found.code == 0, str(found)


def test_a_state_that_is_loaded_too_late_is_told(tmp_path):
    train(tmp_path / "t", batches=1, save=tmp_path / "state")
    accelerator = accelerate.Accelerator(cpu=True)
    with record(tmp_path / "u", torch.nn.Linear(2, 3), accelerator) as rec:
        with pytest.raises(tt.SessionError, match="between record"):
            rec.load_state_dict({"done": 1})
        rec.recorder.save("x", torch.ones(1))


def test_a_planted_mistake_is_named(tmp_path):
    train(tmp_path / "a", batches=2)
    train(tmp_path / "b", batches=2, momentum=0.5)
    found = tt.compare(tmp_path / "a", tmp_path / "b")
    assert found.code == 1
    assert "momentum: 0.9 | 0.5" in str(found)


def test_mixed_precision(tmp_path):
    trace = train(tmp_path / "t", batches=1, mixed_precision="bf16")
    assert {"f32", "bf16"} <= {tensor.spec.dtype for tensor in trace.journal(0).tensors()}


def test_several_models(tmp_path):
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True)
    nets = {"up": torch.nn.Linear(2, 3), "down": torch.nn.Linear(3, 1)}
    with record(tmp_path / "t", nets, accelerator, level="module") as rec:
        nets["down"](nets["up"](torch.ones(1, 2)))
        rec.step()
    trace = tt.open(tmp_path / "t")
    assert {call.site.name for call in trace.journal(0).calls()} == {"up", "down"}
