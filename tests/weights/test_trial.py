"""The same input through a torch net and a MindSpore net: within what rounding explains, or not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import torch
from mindspore import nn as mn
from mindspore import ops
from torch import nn as tn

import twintrace as tt
from twintrace import api

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


class TorchNet(tn.Module):
    def __init__(self, *, epsilon=1e-5):
        super().__init__()
        self.conv = tn.Conv2d(3, 8, 3, padding=1)
        self.bn = tn.BatchNorm2d(8)
        self.norm = tn.LayerNorm(64, eps=epsilon)
        self.up = tn.Linear(64, 32)
        self.rnn = tn.RNN(32, 6)

    def forward(self, x):
        h = torch.relu(self.bn(self.conv(x))).flatten(2)
        out, last = self.rnn(torch.tanh(self.up(self.norm(h))))
        return {"out": out, "last": last}


class MindSporeNet(mn.Cell):
    def __init__(self):
        super().__init__()
        self.first = mn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.second = mn.BatchNorm2d(8)
        self.third = mn.LayerNorm((64,), epsilon=1e-5)
        self.fourth = mn.Dense(64, 32)
        self.fifth = mn.RNN(32, 6)

    def construct(self, x):
        h = ops.relu(self.second(self.first(x)))
        h = h.reshape((h.shape[0], h.shape[1], -1))
        out, last = self.fifth(ops.tanh(self.fourth(self.third(h))))
        return {"out": out, "last": last}


@pytest.fixture
def nets():
    torch.manual_seed(0)
    left, right = TorchNet(), MindSporeNet()
    with torch.no_grad():
        left.bn.running_mean.uniform_(-1, 1)
        left.bn.running_var.uniform_(0.5, 2)
        left.bn.weight.uniform_(0.5, 2)
    tt.convert_weights(left, right)
    return left, right, [np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)]


def test_a_right_port_is_certified(nets):
    left, right, inputs = nets
    found = tt.certify_weights(left, right, inputs=inputs)
    assert found.granted, [row for row in found.trial if not row.within]
    assert {row.name for row in found.trial if row.what == "output"} == {"0.out", "0.last"}
    assert len([row for row in found.trial if row.what == "gradient of"]) == 12
    assert all(row.error > 0 and row.bound < 1e-3 for row in found.trial if row.what == "output")


def test_a_framework_s_coarse_function_is_measured_and_named():
    """MindSpore's tanh on a CPU is good to 1.5e-05 only: more than rounding, and nobody's mistake."""
    left = tn.Sequential(tn.Linear(4, 8), tn.Tanh())
    right = mn.SequentialCell(mn.Dense(4, 8), mn.Tanh())
    tt.convert_weights(left, right)
    inputs = [np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32) * 3]
    found = tt.certify_weights(left, right, inputs=inputs)
    assert found.granted
    assert any("MindSpore's tanh is accurate to" in row.because for row in found.trial)


def test_the_other_way_round_as_well(nets):
    left, right, inputs = nets
    found = tt.certify_weights(right, left, inputs=inputs)
    assert found.granted, found


def test_what_a_run_leaves_behind_is_nothing(nets):
    left, right, inputs = nets
    before = {name: value.clone() for name, value in left.state_dict().items()}
    mean = right.second.moving_mean.asnumpy().copy()
    left.train()
    right.set_train(True)
    tt.certify_weights(left, right, inputs=inputs)
    assert left.training
    assert right.training
    assert all(torch.equal(before[name], value) for name, value in left.state_dict().items())
    assert all(parameter.grad is None for parameter in left.parameters())
    assert np.array_equal(mean, right.second.moving_mean.asnumpy())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda left, right: left.norm.__setattr__("eps", 1e-2), "the nets are set differently"),
        (lambda left, right: right.second.gamma.set_data(right.second.beta), "second.gamma"),
        (lambda left, right: right.second.moving_mean.set_data(right.second.moving_variance), "second.moving_mean"),
        (lambda left, right: right.fourth.bias.set_data(right.fourth.bias * 1.1), "fourth.bias"),
    ],
)
def test_a_mistake_shows_in_the_trial_and_in_the_certificate(nets, spoil, message):
    left, right, inputs = nets
    spoil(left, right)
    found = tt.certify_weights(left, right, inputs=inputs)
    assert not found.granted
    assert any(not row.within for row in found.trial if row.what == "output")
    assert message in api.certificate_text(found)


def test_a_torch_module_reads_alike_from_its_file(nets, tmp_path):
    left, right, _ = nets
    torch.save(left.state_dict(), tmp_path / "net.pth")
    found = tt.certify_weights(tmp_path / "net.pth", right, map=tt.map_weights(left, right))
    assert found.granted, found.mistakes
