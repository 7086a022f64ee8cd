"""The net of torch_net.py in MindSpore, with MindSpore's names: `mindspore_net.py FOLDER good:tensor:mix …`."""

from __future__ import annotations

import argparse

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from twintrace.compat.msprobe.debugger import close
from twintrace.compat.msprobe.mindspore import PrecisionDebugger


class ParallelMLP(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.mapping, self.projection = nn.Dense(16, 32), nn.Dense(32, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.projection(ops.tanh(self.mapping(x)))


class Net(nn.Cell):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.embed, self.fc1 = nn.Embedding(10, 8), nn.Dense(8, 16)
        self.norm, self.mlp = nn.LayerNorm((16,), epsilon=eps), ParallelMLP()

    def construct(self, tokens: Tensor) -> Tensor:
        return self.mlp(self.norm(ops.relu(self.fc1(self.embed(tokens)))))


class Model(nn.Cell):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.net = Net(eps)

    def construct(self, tokens: Tensor, target: Tensor) -> Tensor:
        return ops.mse_loss(self.net(tokens), target)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("dumps", nargs="+", metavar="NAME:TASK:LEVEL[:broken]")
    args = parser.parse_args()
    for text in args.dumps:
        name, task, level, *broken = text.split(":")
        train(f"{args.folder}/{name}", task, level, bool(broken))


def train(dump: str, task: str, level: str, broken: bool) -> None:
    random = np.random.default_rng(0)
    model = Model(50.0 if broken else 1e-5)
    for parameter in model.get_parameters():
        assert isinstance(parameter, Parameter)
        parameter.set_data(Tensor(random.normal(size=parameter.shape).astype(np.float32)))
    data = np.random.default_rng(1)
    tokens = Tensor(data.integers(0, 10, (3, 5)).astype(np.int32))
    target = Tensor(data.normal(size=(3, 5, 4)).astype(np.float32))
    step = ms.value_and_grad(model, None, model.trainable_params())
    debugger = PrecisionDebugger(dump_path=dump, task=task, level=level)
    debugger.start(model)
    step(tokens, target)
    debugger.stop()
    debugger.step()
    close()


if __name__ == "__main__":
    main()
