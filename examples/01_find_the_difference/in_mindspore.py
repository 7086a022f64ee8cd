"""The same network in MindSpore: one training step with the weights of the other, recorded.

python in_mindspore.py [DIRECTORY]      reads DIRECTORY/weights.npz; the trace goes to DIRECTORY/mindspore (default: runs/demo)
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

import twintrace as tt


class SelfAttention(nn.Cell):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(width, width)
        self.value = nn.Dense(width, width)
        self.out = nn.Dense(width, width)

    def split(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        return x.reshape((n, length, self.heads, -1)).transpose(0, 2, 1, 3)

    def construct(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(x.shape))


class EncoderLayer(nn.Cell):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_a = nn.LayerNorm((width,))
        self.attn = SelfAttention(width, heads)
        self.ln_b = nn.LayerNorm((width,))
        self.mlp = nn.SequentialCell(nn.Dense(width, 4 * width), nn.GELU(approximate=False), nn.Dense(4 * width, width))

    def construct(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_a(x))
        return x + self.mlp(self.ln_b(x))


class Classifier(nn.Cell):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 4, stride=4, pad_mode="valid", has_bias=True)
        self.bn = nn.BatchNorm2d(width)
        self.layers = nn.CellList([EncoderLayer(width, 2) for _ in range(2)])
        self.fc = nn.Dense(width, 10)

    def construct(self, images: Tensor) -> Tensor:
        x = ops.relu(self.bn(self.conv(images)))
        n, c, h, w = x.shape
        x = mint.permute(x.reshape((n, c, h * w)), (0, 2, 1))
        for layer in self.layers:
            x = layer(x)
        return self.fc(mint.mean(x, 1))


IN_TORCH = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def load(net: Classifier, weights: dict[str, np.ndarray]) -> None:
    """Fill each Cell with the weights of its counterpart."""

    def fill(cell: nn.Cell, counterpart: str, rows: slice = slice(None)) -> None:
        for name, value in cell.parameters_and_names():
            value.set_data(Tensor(weights[f"{counterpart}.{IN_TORCH.get(name, name)}"][rows]))

    fill(net.conv, "stem.0")
    fill(net.bn, "stem.1")
    for number, layer in enumerate(net.layers):
        block, width = f"blocks.{number}", layer.attn.query.in_channels
        fill(layer.ln_a, f"{block}.norm1")
        fill(layer.attn.query, f"{block}.qkv", slice(0, width))
        fill(layer.attn.key, f"{block}.qkv", slice(width, 2 * width))
        fill(layer.attn.value, f"{block}.qkv", slice(2 * width, None))
        fill(layer.attn.out, f"{block}.proj")
        fill(layer.ln_b, f"{block}.norm2")
        fill(layer.mlp[0], f"{block}.up")
        fill(layer.mlp[2], f"{block}.down")
    fill(net.fc, "head")


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    net = Classifier().set_train()
    load(net, dict(np.load(root / "weights.npz")))
    numbers = np.random.default_rng(7)
    images = Tensor(numbers.standard_normal((8, 3, 16, 16), dtype=np.float32))
    labels = Tensor(numbers.integers(10, size=8), ms.int32)
    criterion = nn.CrossEntropyLoss()
    step = ms.value_and_grad(lambda: criterion(net(images), labels), None, net.trainable_params())
    with tt.record(root / "mindspore", net, level="mix", keep="tensor", overwrite=True) as rec:
        loss, _ = step()
        rec.step()
    print(f"MindSpore  loss {loss.asnumpy().item():.9f}")


if __name__ == "__main__":
    main()
