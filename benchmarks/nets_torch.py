"""The work that is measured, in PyTorch.

work = trainings("full")         {"transformer": Training, "cnn": Training}
work["cnn"].step()               zero_grad, forward, backward, AdamW: one training step on fixed data
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.sizes import SIZES, Size


def prepare() -> None:
    """Before anything is computed: one thread."""
    torch.set_num_threads(1)


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each behind a layer norm and beside a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, dim=-1)
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        return self.project(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x), mask)
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A GPT-like decoder."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.register_buffer("mask", torch.ones(size.length, size.length, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


class ConvNet(nn.Module):
    """Convolution, batch norm and ReLU, over and over; twice half the pixels and twice the channels."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        inputs, outputs = 3, size.channels
        for number in range(size.blocks):
            shrink = number in (size.blocks // 3, 2 * size.blocks // 3)
            outputs *= 2 if shrink else 1
            convolution = nn.Conv2d(inputs, outputs, 3, stride=2 if shrink else 1, padding=1, bias=False)
            blocks.append(nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU()))
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(outputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(images).mean(dim=(2, 3)))


class Training:
    """One model, its optimiser and one batch that is used again and again."""

    def __init__(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.net = net
        self.inputs = inputs
        self.targets = targets
        self.optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step(self) -> None:
        self.optimiser.zero_grad()
        outputs = self.net(self.inputs)
        F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), self.targets).backward()
        self.optimiser.step()


def trainings(size_name: str) -> dict[str, Training]:
    """The two models' trainings, the same in every process."""
    size = SIZES["torch"][size_name]
    torch.manual_seed(0)
    tokens = torch.randint(size.vocabulary, (size.sequences, size.length + 1))
    images = torch.randn(size.images, 3, size.pixels, size.pixels)
    return {
        "transformer": Training(Transformer(size), tokens[:, :-1], tokens[:, 1:].reshape(-1)),
        "cnn": Training(ConvNet(size), images, torch.randint(10, (size.images,))),
    }
