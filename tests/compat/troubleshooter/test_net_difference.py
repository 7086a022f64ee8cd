"""NetDifferenceFinder: the same weights and the same input in both networks."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import mindspore as ms
import torch
from mindspore import nn as mn
from mindspore import ops
from torch import nn as tn

import twintrace.compat.troubleshooter as ts
from twintrace.model.errors import UsageError, WeightsError

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


class TorchNet(tn.Module):
    def __init__(self, several=False):
        super().__init__()
        self.fc = tn.Linear(3, 4)
        self.norm = tn.LayerNorm(4)
        self.drop = tn.Dropout(0.5)
        self.several = several

    def forward(self, x):
        y = self.drop(self.norm(self.fc(x)))
        return (y, torch.relu(y)) if self.several else y


class MindSporeNet(mn.Cell):
    def __init__(self, several=False, scale=1.0):
        super().__init__()
        self.fc = mn.Dense(3, 4)
        self.norm = mn.LayerNorm((4,), epsilon=1e-5)
        self.drop = mn.Dropout(p=0.5)
        self.several, self.scale = several, scale

    def construct(self, x):
        y = self.drop(self.norm(self.fc(x))) * self.scale
        return (y, ops.relu(y)) if self.several else y


AUTO = (((2, 3), np.float32),)


def results(text):
    """(names, allclose) of each row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "step_" in line]
    return [(*row[:2], row[2]) for row in rows]


def test_weights_are_carried_over_and_outputs_agree(capsys):
    pt_net, ms_net = TorchNet().train(), MindSporeNet().set_train()
    text = ts.migrator.NetDifferenceFinder(pt_net=pt_net, ms_net=ms_net).compare(auto_inputs=AUTO)
    assert results(text) == [("step_0_out", "step_0_out", "True")]
    said = capsys.readouterr().out
    assert "The comparison results of Net" in said
    assert "norm.gamma" in said
    assert np.array_equal(ms_net.fc.weight.asnumpy(), pt_net.fc.weight.detach())
    assert pt_net.training
    assert ms_net.training


def test_networks_that_differ():
    text = ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(scale=1.5), compare_params=False).compare(
        auto_inputs={"input": AUTO, "num": 2}
    )
    assert results(text) == [(f"step_{n}_out", f"step_{n}_out", "False") for n in (0, 1)]


def test_several_outputs_and_every_kind_of_input(tmp_path):
    values = np.ones((2, 3), np.float32)
    np.save(tmp_path / "x.npy", values)
    inputs = [(values,), (torch.tensor(values),), (ms.Tensor(values),), (str(tmp_path / "x.npy"),)]
    finder = ts.migrator.NetDifferenceFinder(TorchNet(several=True), MindSporeNet(several=True), print_level=0)
    found = results(finder.compare(inputs))
    assert [name for name, _, _ in found] == [f"step_{case}_out_{slot}" for case in range(4) for slot in (0, 1)]
    assert {allclose for _, _, allclose in found} == {"True"}


def test_checkpoints(tmp_path):
    torch.save(TorchNet().state_dict(), tmp_path / "a.pth")
    ms.save_checkpoint(MindSporeNet(), str(tmp_path / "b.ckpt"))
    for paths in ({"pt_params_path": tmp_path / "a.pth"}, {"ms_params_path": tmp_path / "b.ckpt"}):
        finder = ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(), compare_params=False, **paths)
        assert results(finder.compare(auto_inputs=AUTO))[0][2] == "True"
    both = {"pt_params_path": tmp_path / "a.pth", "ms_params_path": tmp_path / "b.ckpt"}
    finder = ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(), compare_params=False, **both)
    assert results(finder.compare(auto_inputs=AUTO))[0][2] == "False"


def test_without_conversion():
    finder = ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(), auto_conv_ckpt=0, compare_params=False)
    assert results(finder.compare(auto_inputs=AUTO))[0][2] == "False"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected inputs or auto_inputs, got neither"),
        ({"inputs": (1,), "auto_inputs": AUTO}, "got both"),
        ({"inputs": [np.ones(3)]}, "inputs: expected a tuple of arrays, or a list of such tuples, got list"),
        ({"inputs": ({},)}, "inputs: expected an array, a tensor or the name of a .npy file, got dict"),
        ({"inputs": ("nothing.npy",)}, r"nothing.npy is no array that can be read"),
        ({"auto_inputs": {"input": AUTO}}, "auto_inputs: expected"),
        ({"auto_inputs": ((2, 3),)}, "auto_inputs: expected"),
        ({"auto_inputs": (((2, 7), np.float32),)}, "mat1 and mat2"),
    ],
)
def test_what_cannot_be_compared(options, message):
    finder = ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(), compare_params=False)
    with pytest.raises((UsageError, RuntimeError), match=message):
        finder.compare(**options)


def test_what_cannot_be_asked_for():
    with pytest.raises(UsageError, match=r"pt_net: expected a torch.nn.Module, got MindSporeNet"):
        ts.migrator.NetDifferenceFinder(MindSporeNet(), TorchNet())
    with pytest.raises(UsageError, match="auto_conv_ckpt: expected 0 or 1, got 2"):
        ts.migrator.NetDifferenceFinder(TorchNet(), MindSporeNet(), auto_conv_ckpt=2)
    with pytest.raises(UsageError, match="pt_net puts out 2 arrays, ms_net 1"):
        ts.migrator.NetDifferenceFinder(TorchNet(several=True), MindSporeNet(), compare_params=False).compare(
            auto_inputs=AUTO
        )
    with pytest.raises(WeightsError):
        ts.migrator.NetDifferenceFinder(tn.Linear(3, 4), MindSporeNet()).compare(auto_inputs=AUTO)
