"""A transformer block in PyTorch and its port to MindSpore: dumped, compared; the layer that was ported wrongly is named."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import mindspore as ms
import torch
from mindspore import nn as mn
from mindspore import ops
from torch import nn as tn
from torch.nn import functional as F

import twintrace.compat.troubleshooter as ts
from tests.compat.troubleshooter.dumps import table
from twintrace import api

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]
WIDTH, WORDS, HEADS = 16, 20, 2


class TorchNet(tn.Module):
    def __init__(self):
        super().__init__()
        self.embed = tn.Embedding(WORDS, WIDTH)
        self.norm1, self.norm2 = tn.LayerNorm(WIDTH), tn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (tn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = tn.Linear(WIDTH, 4 * WIDTH), tn.Linear(4 * WIDTH, WIDTH)
        self.drop = tn.Dropout(0.3)

    def forward(self, words):
        x = self.embed(words)
        h = self.norm1(x)
        b, t, _ = x.shape
        q, k, v = (layer(h).reshape(b, t, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        a = F.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4, dim=-1)
        x = x + self.drop(self.o(torch.matmul(a, v).transpose(1, 2).reshape(b, t, WIDTH)))
        return x + self.drop(self.down(torch.relu(self.up(self.norm2(x)))))


class MindSporeNet(mn.Cell):
    def __init__(self, epsilon):
        super().__init__()
        self.embed = mn.Embedding(WORDS, WIDTH)
        self.norm1, self.norm2 = mn.LayerNorm((WIDTH,), epsilon=1e-5), mn.LayerNorm((WIDTH,), epsilon=epsilon)
        self.q, self.k, self.v, self.o = (mn.Dense(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = mn.Dense(WIDTH, 4 * WIDTH), mn.Dense(4 * WIDTH, WIDTH)
        self.drop = mn.Dropout(p=0.3)

    def construct(self, words):
        x = self.embed(words)
        h = self.norm1(x)
        b, t, _ = x.shape
        q, k, v = (layer(h).reshape(b, t, HEADS, -1).swapaxes(1, 2) for layer in (self.q, self.k, self.v))
        a = ops.softmax(ops.bmm(q, k.swapaxes(-2, -1)) / 4, axis=-1)
        x = ops.add(x, self.drop(self.o(ops.bmm(a, v).swapaxes(1, 2).reshape(b, t, WIDTH))))
        return ops.add(x, self.drop(self.down(ops.relu(self.up(self.norm2(x))))))


@pytest.fixture(scope="module")
def words():
    return np.random.default_rng(0).integers(0, WORDS, (2, 5)).astype(np.int32)


@pytest.fixture(scope="module")
def original(tmp_path_factory, words):
    """(the network, the folder of its dump)."""
    torch.manual_seed(0)
    net, folder = TorchNet().train(), tmp_path_factory.mktemp("original") / "d"
    ts.migrator.api_dump_init(net, folder, retain_backward=True)
    ts.migrator.api_dump_start()
    net(torch.tensor(words).long()).square().sum().backward()
    ts.migrator.api_dump_stop()
    return net, folder


def compared(original, words, tmp_path, epsilon):
    net = MindSporeNet(epsilon).set_train()
    api.convert_weights(original[0], net)
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    ts.migrator.api_dump_start()
    ms.value_and_grad(lambda x: net(x).square().sum(), None, net.trainable_params())(ms.Tensor(words))
    ts.migrator.api_dump_stop()
    ts.migrator.api_dump_compare(tmp_path / "d", original[1], tmp_path / "out", rtol=1e-3)
    return tuple(
        table(tmp_path / "out" / f"ts_api_{stem}.csv") for stem in ("mapping", "forward_compare", "backward_compare")
    )


def test_a_port_agrees_api_by_api(original, words, tmp_path):
    mapping, forward, backward = compared(original, words, tmp_path, 1e-5)
    assert len(mapping) == 29
    assert all(left and right for left, right in mapping)
    assert {tuple(pair) for pair in mapping} >= {
        ("NN_Dense_5", "NN_Linear_5"), ("Tensor_swapaxes_3", "Tensor_transpose_3"), ("Functional_bmm_1", "Torch_matmul_1"),
        ("Functional_add_1", "Tensor_add_1"), ("NN_Embedding_0", "NN_Embedding_0"), ("Functional_relu_0", "Torch_relu_0"),
    }  # fmt: skip
    assert {row[4] for row in forward + backward} == {"True"}
    assert not (tmp_path / "out" / "ts_api_unmatched.csv").exists()


def test_the_layer_that_was_ported_wrongly_is_named(original, words, tmp_path, capsys):
    mapping, forward, backward = compared(original, words, tmp_path, 0.1)
    assert all(left and right for left, right in mapping), "what comes after is paired by operation, shape and flow"
    wrong = [row for row in forward if row[4] != "True"]
    assert wrong[0][0] == "NN_LayerNorm_1_forward_output.npy"
    assert "False" in {row[4] for row in backward}
    said = capsys.readouterr().out
    assert "The first difference (forward): NN_LayerNorm_1 beside NN_LayerNorm_1: what comes in agrees" in said
