"""`tt.record(…, against=…)`: each call beside that of another run; the first difference is told, kept, and ends the recording."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest

import twintrace as tt
from twintrace.frameworks.torch import adapter, tensors
from twintrace.model.errors import DifferenceError
from twintrace.model.records import APART
from twintrace.model.sites import Kind

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """Two layers with a function between them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)
        self.slope = 0.01

    def forward(self, x):
        return self.last(torch.nn.functional.leaky_relu(self.first(x), self.slope))


def nothing(net, step):
    """The run as it is."""


def another_slope(net, step):
    net.slope = 0.3 if step == 3 else 0.01


def other_weights(net, step):
    if step == 3:
        net.memory[0, 0] += 1  # past the framework: no call is recorded


def one_call_more(net, step):
    if step == 3:
        torch.zeros(2).add(1)


def another_gradient(net, step):
    if step == 3:
        net.last.bias.register_hook(lambda gradient: gradient * 2)


def train(path, change=nothing, *, steps=6, level="mix", data=lambda step: 0.0, **options):
    """The warnings of twintrace, in order, of a training that is changed in some step."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    net.memory = net.first.weight.detach().numpy()
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=50)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tt.record(path, net, level=level, strict=True, **options) as rec:
            for step in range(steps):
                change(net, step)
                optimizer.zero_grad()
                net(torch.linspace(-1, 1, 24).reshape(4, 6) + data(step)).square().mean().backward()
                optimizer.step()
                schedule.step()
                rec.step()
    return [str(item.message) for item in told if "twintrace:" in str(item.message)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The trace of the run as it is, by level."""
    folder = tmp_path_factory.mktemp("lockstep")
    for level in ("module", "mix"):
        train(folder / level, level=level)
    return folder


def kept_in(path, step):
    journal = tt.open(path).journal(step)
    return {
        call.site.name.removeprefix(APART): journal.array(journal.tensor(call.output.id))
        for call in journal.calls()
        if call.site.kind is Kind.SAVE
    }


@pytest.mark.parametrize("level", ["module", "mix"])
def test_an_equal_run_is_recorded_to_its_end(reference, tmp_path, level):
    assert train(tmp_path / "t", level=level, against=reference / level) == []
    assert tt.open(tmp_path / "t").steps == tuple(range(6))
    assert tt.compare(reference / level, tmp_path / "t").code == 0


PLANTED = [
    (another_slope, "mix", "leaky_relu#0 (test_lockstep.py:", "an argument is 0.01 in one run and 0.3 in the other"),
    (another_slope, "module", "forward/module:last#0", "input 0 differs, and no recorded call made it"),
    (other_weights, "mix", "torch.nn.functional.linear#0", "input 1 differs, and no recorded call made it"),
    (other_weights, "module", "forward/module:first#0", "weight differs, and no recorded call made it"),
    (one_call_more, "mix", "forward", "the second with forward/api:torch.zeros#0"),
    (another_gradient, "mix", "", "last.bias"),
    (another_gradient, "module", "", "last.bias"),
]


@pytest.mark.parametrize(("change", "level", "where", "what"), PLANTED)
def test_the_first_difference_is_told_and_ends_the_recording(reference, tmp_path, change, level, where, what):
    told = train(tmp_path / "t", change, level=level, against=reference / level)
    assert tt.open(tmp_path / "t").steps == (0, 1, 2, 3)
    assert told[-1].startswith("twintrace: recording has ended: step 3")
    assert where in told[-1]
    assert what in told[-1]
    assert "step 3 differs from" in told[0] if len(told) > 1 else change is one_call_more


def test_the_values_around_it_are_kept_and_no_others(reference, tmp_path):
    train(tmp_path / "t", another_slope, against=reference / "mix")
    found = kept_in(tmp_path / "t", 3)
    assert set(found) == {f"torch.nn.functional.leaky_relu {part}" for part in ("input 0", "output 0")}
    one, two = found.values()
    np.testing.assert_array_equal(np.where(one < 0, one * np.float32(0.3), one), two)
    for step in range(3):
        assert not (tmp_path / "t" / f"step{step}" / "rank0" / "payload.bin").exists()


def test_the_comparison_of_the_two_is_that_of_whole_runs(reference, tmp_path):
    """What the recorder has kept for itself is no call of the run."""
    train(tmp_path / "t", another_slope, against=reference / "mix")
    found = tt.compare(reference / "mix", tmp_path / "t", steps=(3,))
    assert "negative_slope: 0.01 | 0.3" in found.divergence.mistake.why
    assert not found.only_left
    assert not found.only_right


def test_it_raises_where_that_was_asked_for(reference, tmp_path):
    with pytest.raises(DifferenceError, match=r"step 3.*leaky_relu.*twintrace compare"):
        train(tmp_path / "t", another_slope, against=reference / "mix", on_difference="raise")


def test_a_value_that_is_overwritten_is_no_difference(tmp_path):
    """What nothing computes with may be another; the steps after it are still compared."""

    def drawing(seed, change):
        generator = torch.Generator()
        generator.manual_seed(seed)

        def draw(net, step):
            torch.rand(4, generator=generator).fill_(1.0).add(1)
            change(net, step)

        return draw

    train(tmp_path / "a", drawing(1, nothing))
    told = train(tmp_path / "b", drawing(2, other_weights), against=tmp_path / "a")
    assert tt.open(tmp_path / "b").steps == (0, 1, 2, 3)
    assert len(told) == 2
    assert all("forward/module:first#0" in text or "linear#0" in text for text in told)


def test_a_value_that_only_the_user_saved(tmp_path):
    """It is told though no call shows it, also after steps in which something differed without effect."""

    def run(path, values, **options):
        net = Net()
        generator = torch.Generator()
        generator.manual_seed(len(values) * 7 + int(sum(values)))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with tt.record(path, net, level="mix", strict=True, **options) as rec:
                for value in values:
                    net(torch.ones(1, 6))
                    torch.rand(4, generator=generator).fill_(1.0)
                    rec.save("outside", np.float32(value) * torch.from_numpy(np.ones(2, np.float32)))
                    rec.step()
        return [str(item.message) for item in told]

    run(tmp_path / "a", [1.0, 1.0, 1.0])
    told = run(tmp_path / "b", [1.0, 1.0, 5.0], against=tmp_path / "a")
    assert tt.open(tmp_path / "b").steps == (0, 1, 2)
    assert "recording has ended: step 2" in told[-1]


@pytest.mark.parametrize(("change", "level", "where", "what"), PLANTED)
def test_on_a_device_it_is_told_at_the_end_of_the_step(reference, tmp_path, monkeypatch, change, level, where, what):
    """Fingerprints are known late there; no value is kept, and everything else is as on the host."""

    def forbidden(tensor):
        raise AssertionError("values of a tensor on a device were asked for on the host")

    monkeypatch.setattr(tensors, "_PLANS", {})
    monkeypatch.setattr(tensors, "_PLACES", {})
    monkeypatch.setattr(tensors, "is_elsewhere", lambda tensor: True)
    monkeypatch.setattr(tensors, "has_device", lambda: True)
    monkeypatch.setattr(adapter.TorchFramework, "host", staticmethod(forbidden))
    equal = train(tmp_path / "equal", level=level, against=reference / level)
    assert [text for text in equal if "Triton" not in text] == []
    told = train(tmp_path / "t", change, level=level, against=reference / level)
    assert tt.open(tmp_path / "t").steps == (0, 1, 2, 3)
    assert where in told[-1]
    assert what in told[-1]


def test_a_kept_trace_will_do(tmp_path):
    train(tmp_path / "a", keep="tensor")
    assert train(tmp_path / "b", against=tmp_path / "a") == []
    assert "leaky_relu" in train(tmp_path / "c", another_slope, against=tmp_path / "a", keep="tensor")[-1]


def test_steps_that_the_other_has_not_are_told(reference, tmp_path):
    told = train(tmp_path / "t", steps=8, against=reference / "mix")
    assert len(told) == 1
    assert "has no step 6 of rank 0, so it is recorded and not compared" in told[0]
    assert tt.open(tmp_path / "t").steps == tuple(range(8))


def test_a_step_that_was_not_closed_is_told(reference, tmp_path):
    shutil.copytree(reference / "mix", tmp_path / "a")
    journal = tmp_path / "a" / "step0" / "rank0" / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    told = train(tmp_path / "t", steps=1, against=tmp_path / "a")
    assert "step 0 of" in told[0]
    assert "not compared" in told[0]


def test_what_cannot_be_compared_is_refused(reference, tmp_path):
    for options, why in (
        ({"level": "module"}, "level mix, and this run with module"),
        ({"keep": "statistics"}, "by fingerprint"),
        ({"on_difference": "ask"}, "expected 'stop' or 'raise'"),
    ):
        with pytest.raises(tt.UsageError, match=why):
            tt.record(tmp_path / "t", Net(), **{"level": "mix", "against": reference / "mix"} | options)
    with pytest.raises(tt.UsageError, match="is what is being recorded"):
        tt.record(reference / "mix", Net(), level="mix", against=reference / "mix", overwrite=True)
    with pytest.raises(tt.TraceError):
        tt.record(tmp_path / "t", Net(), against=tmp_path / "none")
    assert not (tmp_path / "t").exists()
