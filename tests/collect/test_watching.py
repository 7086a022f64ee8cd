"""`tt.record(…, stop_on_nonfinite=True)`: told at once, kept, and recording ends with the step."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import twintrace as tt
from twintrace.model.errors import NonfiniteError
from twintrace.model.nonfinite import Source
from twintrace.model.sites import Kind

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")

OPTIONS = {"level": "api", "keep": "statistics", "framework": "torch", "strict": True}


def run(path, steps, **options):
    """Each step is a function; the warnings of twintrace, in order."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tt.record(path, **OPTIONS | {"stop_on_nonfinite": True} | options) as rec:
            for step in steps:
                step()
                rec.step()
    return [str(item.message) for item in told if "twintrace:" in str(item.message)]


def fine():
    (torch.arange(4.0) + 1).log().sum()


def broken():
    x = torch.arange(4.0)
    (x / x).sum()


def masked():
    torch.randn(3, 3).masked_fill(torch.eye(3).bool(), float("-inf")).softmax(-1).sum()


def hidden():
    torch.arange(4.0).log().softmax(-1).sum()


def test_it_ends_with_the_step(tmp_path):
    told = run(tmp_path / "t", [fine, masked, hidden, broken, fine, fine])
    trace = tt.open(tmp_path / "t")
    assert trace.steps == (0, 1, 2, 3)
    assert len(told) == 2
    assert "step 3: torch.Tensor.div made NaN out of values without NaN" in told[0]
    assert "recording has ended: step 3, forward at torch.Tensor.div (test_watching.py:" in told[1]
    assert "zero divided by zero" in told[1]
    assert tt.first_nonfinite(trace).origin.source is Source.DIVISION


def test_the_values_around_it_are_kept(tmp_path):
    run(tmp_path / "t", [fine, broken])
    journal = tt.open(tmp_path / "t").journal(1)
    kept = {
        call.site.name: journal.array(journal.tensor(call.output.id))
        for call in journal.calls()
        if call.site.kind is Kind.SAVE
    }
    assert set(kept) == {f"nonfinite: torch.Tensor.div {part}" for part in ("input 0", "input 1", "output 0")}
    np.testing.assert_array_equal(kept["nonfinite: torch.Tensor.div input 0"], np.arange(4.0, dtype=np.float32))
    assert np.isnan(kept["nonfinite: torch.Tensor.div output 0"][0])


def test_of_a_call_in_place_the_value_before_is_kept(tmp_path):
    def in_place():
        x = torch.arange(4.0)
        x.div_(x.clone())
        x.sum()

    run(tmp_path / "t", [in_place])
    journal = tt.open(tmp_path / "t").journal(0)
    kept = {
        call.site.name: journal.array(journal.tensor(call.output.id))
        for call in journal.calls()
        if call.site.kind is Kind.SAVE
    }
    np.testing.assert_array_equal(kept["nonfinite: torch.Tensor.div_ input 0"], np.arange(4.0, dtype=np.float32))


def test_it_raises_where_that_was_asked_for(tmp_path):
    done = []
    steps = [lambda step=step: (step(), done.append(step)) for step in (fine, masked, broken, fine)]
    with pytest.raises(NonfiniteError, match="zero divided by zero"):
        run(tmp_path / "t", steps, stop_on_nonfinite="raise")
    assert done == [fine, masked, broken]


def test_what_the_run_raised_is_not_hidden(tmp_path):
    def fails():
        broken()
        raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        run(tmp_path / "t", [fails], stop_on_nonfinite="raise")


def test_a_gradient(tmp_path):
    def root():
        torch.zeros(2, requires_grad=True).sqrt().mul(0.0).sum().backward()

    told = run(tmp_path / "t", [fine, root, *[fine] * 25])
    assert "a gradient is NaN" in told[0]
    assert "the derivative of sqrt at 0 is infinite" in told[1]


def train(path, level, *, scale):
    """A loss scaler that begins too high."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tt.record(path, net, level=level, keep="statistics", strict=True, stop_on_nonfinite=True) as rec:
        for _ in range(8):
            with torch.autocast("cpu", dtype=torch.float16):
                out = net(torch.ones(2, 4))
            scaler.scale(out.float().square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            rec.step()
    return tt.open(path)


@pytest.mark.parametrize("level", ["module", "mix"])
def test_a_loss_scaler_may_skip_steps(tmp_path, level):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert train(tmp_path / "t", level, scale=2.0**20).steps == tuple(range(8))


def test_without_it_nothing_is_watched(tmp_path):
    assert not run(tmp_path / "t", [broken, fine], stop_on_nonfinite=False)
    assert tt.open(tmp_path / "t").steps == (0, 1)


def test_what_it_may_be(tmp_path):
    with pytest.raises(tt.UsageError, match="expected True, False or 'raise'"):
        tt.record(tmp_path / "t", **OPTIONS, stop_on_nonfinite="yes")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
def test_on_an_accelerator_it_is_told_at_the_end_of_the_step(tmp_path):
    """Inside the step nothing waits for the device: a synchronisation raises there."""

    def on_device(work):
        def step():
            torch.cuda.set_sync_debug_mode("error")
            try:
                work(torch.arange(4.0, device="cuda"))
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return step

    def hidden(x):
        x.log().softmax(-1).sum()

    def masked(x):
        x.masked_fill(x > 1, float("-inf")).softmax(-1).sum()

    def broken(x):
        (x / x).sum()

    told = run(tmp_path / "t", [on_device(work) for work in (hidden, masked, broken, hidden)], level="api")
    assert tt.open(tmp_path / "t").steps == (0, 1, 2)
    assert len(told) == 1
    assert "recording has ended: step 2, forward at torch.Tensor.div" in told[0]
