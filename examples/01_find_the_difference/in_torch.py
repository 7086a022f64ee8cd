"""The network in PyTorch: one training step, recorded.

python in_torch.py [DIRECTORY]      the trace goes to DIRECTORY/torch, its weights to DIRECTORY/weights.npz (default: runs/demo)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import twintrace as tt


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(n, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    """A convolution with batch norm, two blocks, a classifier."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    root.mkdir(parents=True, exist_ok=True)
    tt.seed_all(7)
    net = Net()
    np.savez(root / "weights.npz", **{name: value.numpy() for name, value in net.state_dict().items()})
    numbers = np.random.default_rng(7)
    images = torch.from_numpy(numbers.standard_normal((8, 3, 16, 16), dtype=np.float32))
    labels = torch.from_numpy(numbers.integers(10, size=8))
    with tt.record(root / "torch", net, level="mix", keep="tensor", overwrite=True) as rec:
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        rec.step()
    print(f"PyTorch    loss {loss.item():.9f}")


if __name__ == "__main__":
    main()
