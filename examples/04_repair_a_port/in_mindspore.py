"""The port, with three mistakes; --repair takes them out, the first so many.

python in_mindspore.py TRACES [--repair 0|1|2|3]
"""

import argparse
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops

import twintrace as tt

parser = argparse.ArgumentParser()
parser.add_argument("traces", type=Path)
parser.add_argument("--repair", type=int, default=0)
asked = parser.parse_args()


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(16, 32)
        # 1: MindSpore's GELU is the approximation by tanh unless it is told otherwise.
        self.gelu = nn.GELU(approximate=False) if asked.repair >= 1 else nn.GELU()
        # 2: its LayerNorm has an epsilon of 1e-7, PyTorch's of 1e-5.
        self.ln = nn.LayerNorm((32,), epsilon=1e-5) if asked.repair >= 2 else nn.LayerNorm((32,))
        self.fc2 = nn.Dense(32, 10)

    def construct(self, x):
        return self.fc2(self.ln(self.gelu(self.fc1(x))))


net = Network()
tt.convert_weights(asked.traces / "net.pth", net)
# 3: the label smoothing was forgotten.
smoothing = 0.1 if asked.repair >= 3 else 0.0

generator = np.random.default_rng(0)
x = ms.Tensor(generator.normal(size=(8, 16)).astype(np.float32))
labels = ms.Tensor(generator.integers(0, 10, size=8), ms.int32)


def forward(x, labels):
    return ops.cross_entropy(net(x), labels, label_smoothing=smoothing)


with tt.record(asked.traces / "mindspore", net, keep="tensor", overwrite=True):
    loss, _ = ms.value_and_grad(forward, None, net.trainable_params())(x, labels)
print(f"MindSpore  loss {float(loss):.9f}")
