"""Small networks that are trained for two steps, each with something that a recorder could disturb.

CASES["lstm"]()      a Case: the network, its inputs, and how a step is made
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def numbers(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@dataclass
class Case:
    """A network, what it is called with, and what it raises."""

    net: nn.Cell
    inputs: tuple[Any, ...]
    raises: str = ""

    @staticmethod
    def loss(output):
        return mint.sum(mint.mul(output, output))


def filled(net):
    """The same weights in every run, whatever has been drawn before."""
    for number, parameter in enumerate(net.get_parameters()):
        if parameter.requires_grad:
            values = np.random.default_rng(100 + number).standard_normal(parameter.shape).astype(np.float32)
            parameter.set_data(Tensor(values * np.float32(0.3)))
    return net


class ConvNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, pad_mode="same", has_bias=True)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2, 2)
        self.head = nn.Dense(16, 3)

    def construct(self, x):
        x = self.pool(ops.relu(self.norm(self.conv(x))))
        return self.head(x.reshape(x.shape[0], -1))


class Attention(nn.Cell):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Dense(width, width) for _ in range(3))
        self.norm = nn.LayerNorm((width,), epsilon=1e-5)
        self.out = nn.Dense(width, width)

    def split(self, x):
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def construct(self, x):
        h = self.norm(x)
        q, k, v = self.split(self.query(h)), self.split(self.key(h)), self.split(self.value(h))
        weights = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / 2.0, -1)
        mixed = ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(x.shape)
        return x + self.out(mixed)


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=1, batch_first=True)
        self.head = nn.Dense(5, 2)

    def construct(self, x):
        output, _ = self.lstm(x)
        return self.head(output[:, -1])


class SharedCell(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 4)

    def construct(self, x):
        return self.layer(ops.tanh(self.layer(x)))


class InPlace(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 4)
        self.calls = Parameter(np.zeros(1, np.float32), name="calls", requires_grad=False)

    def construct(self, x):
        ops.assign_add(self.calls, Tensor(np.ones(1, np.float32)))
        h = self.layer(x)
        h.copy_(ops.mul(h, 2.0))
        h[0] = 1.0
        return h * self.calls


class Doubling(nn.Cell):
    """A gradient that the user has written, and not the true one: whoever differentiates for himself is found out."""

    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        return (dout * 3.0,)


class CustomBackward(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer, self.double = nn.Dense(4, 4), Doubling()

    def construct(self, x):
        return self.double(self.layer(x))


class Raising(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 4)

    def construct(self, x):
        raise ValueError(f"no good: {self.layer(x).shape}")


class Recomputed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(4, 4), nn.Dense(4, 4)
        self.first.recompute()

    def construct(self, x):
        return ms.recompute(self.second, ops.relu(self.first(x)))


class WithGraph(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 4)

    def construct(self, x):
        return in_a_graph(self.layer(x))


@ms.jit
def in_a_graph(x):
    return ops.relu(x) * 2.0


class Mint(nn.Cell):
    """The names that PyTorch's users know."""

    def __init__(self):
        super().__init__()
        self.first, self.second = mint.nn.Linear(4, 8), mint.nn.Linear(8, 4)
        self.activation = mint.nn.functional.relu  # kept before anybody records

    def construct(self, x):
        h = self.activation(self.first(x))
        a, b = mint.chunk(self.second(h), 2, -1)
        return mint.cat([a.exp(), b, mint.where(a > 0, a, b)], -1) - x.mean()


class Residual(nn.Cell):
    """One tensor in many places: what is added up first shows in the bits of its gradient."""

    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(6, 6) for _ in range(4)])

    def construct(self, x):
        outputs = [x]
        for layer in self.layers:
            outputs.append(ops.sigmoid(layer(sum(outputs))))
        return sum(outputs) + x * outputs[1] - outputs[2] / (x * x + 1.0)


CASES: dict[str, Callable[[], Case]] = {
    "dense": lambda: Case(nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2)), (numbers(3, 4),)),
    "conv and batch norm": lambda: Case(ConvNet(), (numbers(2, 3, 4, 4),)),
    "layer norm": lambda: Case(nn.SequentialCell(nn.LayerNorm((4,)), nn.Dense(4, 4), nn.GELU()), (numbers(3, 4),)),
    "lstm": lambda: Case(Recurrent(), (numbers(2, 3, 4),)),
    "attention": lambda: Case(Attention(), (numbers(2, 3, 8),)),
    "shared cell": lambda: Case(SharedCell(), (numbers(2, 4),)),
    "in place": lambda: Case(InPlace(), (numbers(3, 4),)),
    "dropout off": lambda: Case(
        nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5)).set_train(False), (numbers(3, 4),)
    ),
    "dropout on": lambda: Case(nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5)).set_train(), (numbers(3, 4),)),
    "custom bprop": lambda: Case(CustomBackward(), (numbers(3, 4),)),
    "raises": lambda: Case(Raising(), (numbers(3, 4),), raises="no good"),
    "recompute": lambda: Case(Recomputed(), (numbers(3, 4),)),
    "jit inside": lambda: Case(WithGraph(), (numbers(3, 4),)),
    "mint": lambda: Case(Mint(), (numbers(3, 4),)),
    "residual": lambda: Case(Residual(), (numbers(5, 6),)),
    "embedding": lambda: Case(
        nn.SequentialCell(nn.Embedding(7, 4), nn.Dense(4, 2)), (Tensor(np.array([[1, 2], [2, 6]], np.int32)),)
    ),
}
