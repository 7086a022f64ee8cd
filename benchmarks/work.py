"""The work that is measured, and the process that does it.

    work = trainings("full")         {"transformer": Training, "cnn": Training}
    work["cnn"].step()               zero_grad, forward, backward, AdamW: one training step on fixed data

    python benchmarks/work.py …      a worker: does single steps on request and answers with seconds

A worker reads one JSON command a line on stdin and answers one JSON object a line. It never takes a turn by itself:
the parent gives the turns, so that a bare step and a recorded step lie next to each other in time (see measure.py).

    {"do": "bare", "model": "cnn"}       {"wall": 0.061, "cpu": 0.060}
    {"do": "recorded", "model": "cnn"}   {"wall": 0.075, "cpu": 0.075}     start, training step, step, stop: all of it
    {"do": "open"}                       {}                                construct the tool: not timed
    {"do": "close"}                      {"wall": 0.004, "cpu": 0.004}     whatever the tool had put off
    {"do": "finish"}                     {"peak_mb": 512, "bytes": …, "files": …, "calls": …}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.tools import TOOLS, Tool


@dataclass(frozen=True)
class Size:
    """How large the two models and their batches are."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    sequences: int
    blocks: int
    channels: int
    pixels: int
    images: int


SIZES = {
    "full": Size(6, 256, 8, 128, 1000, 4, 14, 32, 32, 8),
    "tiny": Size(1, 16, 2, 8, 32, 2, 2, 4, 8, 2),
}


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
    size = SIZES[size_name]
    torch.manual_seed(0)
    tokens = torch.randint(size.vocabulary, (size.sequences, size.length + 1))
    images = torch.randn(size.images, 3, size.pixels, size.pixels)
    return {
        "transformer": Training(Transformer(size), tokens[:, :-1], tokens[:, 1:].reshape(-1)),
        "cnn": Training(ConvNet(size), images, torch.randint(10, (size.images,))),
    }


def timed(action: Callable[[], None]) -> dict[str, float]:
    """Seconds on the clock, and seconds of processor over all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


class Worker:
    """Answers the commands; knows no tool by name."""

    def __init__(self, work: dict[str, Training], tool: Tool | None, folder: Path) -> None:
        self.work = work
        self.tool = tool
        self.folder = folder
        self.removed_bytes = 0
        self.removed_files = 0

    def answer(self, command: dict[str, str]) -> dict[str, Any]:
        match command["do"]:
            case "bare":
                return timed(self.work[command["model"]].step)
            case "recorded":
                return self.recorded(self.work[command["model"]])
            case "open":
                self._tool.open({name: training.net for name, training in self.work.items()})
                return {}
            case "close":
                return timed(self._tool.close)
            case "finish":
                return self.finish()
        raise ValueError(f"unknown command {command}")

    def recorded(self, training: Training) -> dict[str, float]:
        tool = self._tool

        def all_of_it() -> None:
            tool.start(training.net)
            training.step()
            tool.step()
            tool.stop()

        seconds = timed(all_of_it)
        for path in tool.finished():
            self._remove(path)
        if tool.heavy:
            os.sync()  # so that writing this step back to disk is not paid by the next one, whosever it is
        return seconds

    def finish(self) -> dict[str, Any]:
        calls = self.tool.calls() if self.tool else None
        size, files = tally(self.folder)
        size, files = size + self.removed_bytes, files + self.removed_files
        return {"peak_mb": peak_mb(), "bytes": size, "files": files, "calls": calls}

    @property
    def _tool(self) -> Tool:
        if self.tool is None:
            raise ValueError("this worker does bare steps only")
        return self.tool

    def _remove(self, path: Path) -> None:
        """Count and delete what the tool will not touch again: tensor dumps would fill the disk."""
        size, files = tally(path)
        self.removed_bytes += size
        self.removed_files += files
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()


def tally(folder: Path) -> tuple[int, int]:
    """Bytes and files below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def peak_mb() -> float:
    """The most memory that this process ever held. Not getrusage: that one remembers the parent across exec."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    options = _options()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # tools talk on stdout; the answers have a way of their own
    torch.set_num_threads(1)
    work = trainings(options.size)
    tool = TOOLS[options.tool](options.folder, options.level, options.keep) if options.tool else None
    worker = Worker(work, tool, options.folder)
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever a tool does to this process is a result, told to the parent
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/work.py", description="One worker of a measurement.")
    parser.add_argument("--folder", type=Path, required=True, help="where the tool writes")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--tool", choices=TOOLS, help="without it the worker does bare steps only")
    parser.add_argument("--level", default="api")
    parser.add_argument("--keep", default="statistics")
    return parser.parse_args()


if __name__ == "__main__":
    main()
