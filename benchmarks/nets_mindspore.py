"""The work that is measured, in MindSpore: the same models, with the same parts, as in nets_torch.py.

work = trainings("full")         {"transformer": Training, "cnn": Training}
work["cnn"].step()               value_and_grad, AdamWeightDecay: one training step on fixed data
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from benchmarks.sizes import SIZES, Size


def prepare() -> None:
    """Before anything is computed: operators run when they are called, in every worker alike.

    Queued, as MindSpore has it by default, a bare step takes two to four times as long where the queue's threads must share two
    cores with others, and recording, which ends the queueing, would seem to make it faster.
    """
    ms.runtime.launch_blocking()


class Block(nn.Cell):
    """Causal self-attention and a feed-forward part, each behind a layer norm and beside a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm((width,), epsilon=1e-5)
        self.qkv = nn.Dense(width, 3 * width)
        self.project = nn.Dense(width, width)
        self.norm2 = nn.LayerNorm((width,), epsilon=1e-5)
        self.up = nn.Dense(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Dense(4 * width, width)

    def attend(self, x: Any, mask: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(0, 2, 1, 3) for part in self.qkv(x).split(width, axis=-1)
        )
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / (width // self.heads) ** 0.5
        weights = ops.softmax(ops.masked_fill(scores, mask, float("-inf")), -1)
        return self.project(ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(batch, length, width))

    def construct(self, x: Any, mask: Any) -> Any:
        x = x + self.attend(self.norm1(x), mask)
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Cell):
    """A GPT-like decoder."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.CellList([Block(size.width, size.heads) for _ in range(size.layers)])
        self.norm = nn.LayerNorm((size.width,), epsilon=1e-5)
        self.head = nn.Dense(size.width, size.vocabulary, has_bias=False)
        self.mask = Tensor(np.triu(np.ones((size.length, size.length), bool), 1))
        self.order = Tensor(np.arange(size.length, dtype=np.int32))

    def construct(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(self.order)
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


class ConvNet(nn.Cell):
    """Convolution, batch norm and ReLU, over and over; twice half the pixels and twice the channels."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        blocks: list[nn.Cell] = []
        inputs, outputs = 3, size.channels
        for number in range(size.blocks):
            shrink = number in (size.blocks // 3, 2 * size.blocks // 3)
            outputs *= 2 if shrink else 1
            convolution = nn.Conv2d(inputs, outputs, 3, stride=2 if shrink else 1, pad_mode="pad", padding=1)
            blocks.append(nn.SequentialCell(convolution, nn.BatchNorm2d(outputs), nn.ReLU()))
            inputs = outputs
        self.blocks = nn.SequentialCell(*blocks)
        self.head = nn.Dense(outputs, 10)

    def construct(self, images: Any) -> Any:
        return self.head(self.blocks(images).mean(axis=(2, 3)))


class Training:
    """One model, its optimiser and one batch that is used again and again."""

    def __init__(self, net: nn.Cell, inputs: Any, targets: Any) -> None:
        self.net = net.set_train()
        self.inputs = inputs
        self.targets = targets
        weights = net.trainable_params()
        self.optimiser = nn.AdamWeightDecay(weights, learning_rate=1e-4)
        self.differentiated = ms.value_and_grad(self.loss, None, weights)

    def loss(self, inputs: Any, targets: Any) -> Any:
        outputs = self.net(inputs)
        return ops.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets)

    def step(self) -> None:
        loss, gradients = self.differentiated(self.inputs, self.targets)
        self.optimiser(gradients)
        loss.asnumpy()  # waits: what is still queued belongs to this step
        self.optimiser.parameters[-1].asnumpy()


def trainings(size_name: str) -> dict[str, Training]:
    """The two models' trainings, the same in every process."""
    size = SIZES["mindspore"][size_name]
    ms.set_seed(0)
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, size.vocabulary, (size.sequences, size.length + 1), np.int32)
    images = draw.standard_normal((size.images, 3, size.pixels, size.pixels)).astype(np.float32)
    kinds = draw.integers(0, 10, size.images, np.int32)
    return {
        "transformer": Training(Transformer(size), Tensor(tokens[:, :-1].copy()), Tensor(tokens[:, 1:].reshape(-1))),
        "cnn": Training(ConvNet(size), Tensor(images), Tensor(kinds)),
    }
