"""Record a training step twice, the second time with a planted difference, and see where the two part.

python run.py [DIRECTORY]      the traces go to DIRECTORY/left and DIRECTORY/right (default: runs/demo)
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import twintrace as tt


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(nn.Module):
    """A convolution with batch norm, two blocks, a classifier."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


def train(directory: Path, *, epsilon: float) -> float:
    """One training step; the second block's first layer norm has the given epsilon."""
    tt.seed_all(7)
    net = Net()
    net.blocks[1].norm1.eps = epsilon  # the planted difference
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    images, labels = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
    with tt.record(directory, net, level="mix", keep="tensor", overwrite=True) as rec:
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        rec.step()
    return loss.item()


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    left, right = root / "left", root / "right"
    say = sys.stdout.write
    say(f"left   loss {train(left, epsilon=1e-5):.9f}\n")
    say(f"right  loss {train(right, epsilon=1e-6):.9f}\n\n")
    say(tt.verdict(tt.compare(left, right)) + "\n\n")
    say(f"Look around:  .venv/bin/twintrace show {left}\n")


if __name__ == "__main__":
    main()
