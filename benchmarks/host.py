"""Processor time that recording on a device adds to a step, without a device: for work on the recorder itself.

    python -m benchmarks.host                       GPT and ResNet-50 in structure, of width 24, at levels module, api and mix
    python -m benchmarks.host --work gpt --level module --rounds 20
    python -m benchmarks.host --work gpt --level api --profile      by function

Tensors of the host are said to lie on a device, whose kernels do nothing: what is left is the host's share, which on a GPU is all
that counts. Bare and recorded steps in turns, processor time (others may use the machine), the least and the median of each.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import twintrace
from benchmarks import gpu
from twintrace.frameworks.torch import readers, sums, tensors


class _Nothing:
    """A kernel that is launched, and does nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: None


_KERNELS = SimpleNamespace(
    CHUNK=64, UNROLL=2, MAX_AXES=4, COLUMNS=11, RESULTS=16, DIRECT=0, WORDS=1, ELEMENTS=2,
    KINDS={"f32": "f32", "bf16": "bf16"}, digest=_Nothing(), gather_up=_Nothing(),
)  # fmt: skip


def pretend() -> None:
    """Say of each tensor that it lies on a device."""
    tensors.is_elsewhere = lambda tensor: True  # type: ignore[assignment]
    tensors.has_device = lambda: True  # type: ignore[assignment]
    readers.triton_for = lambda device: _KERNELS  # type: ignore[assignment, return-value]

    def zeros(self: Any, device: torch.device) -> None:
        self.rows, self.tickets = torch.zeros((2048, 16), dtype=torch.int64), []

    sums._Block.__init__ = zeros  # type: ignore[method-assign]


def work_of(name: str) -> gpu.Work:
    """The works of `benchmarks.gpu`, narrow."""
    torch.manual_seed(0)
    work = gpu.Work.__new__(gpu.Work)
    if name == "gpt":
        work.net = gpu.GPT(64, 24, 12, 12)
        work.x, work.y = torch.randint(0, 64, (1, 4)), torch.randint(0, 64, (1, 4))
    else:
        work.net = gpu.ResNet50()
        for module in work.net.modules():  # an eighth of the width
            if isinstance(module, nn.Conv2d):
                inside = module.in_channels if module.in_channels == 3 else module.in_channels // 8
                sizes = module.kernel_size[0], module.stride[0], module.padding[0]
                module.__init__(inside, module.out_channels // 8, *sizes, bias=False)  # type: ignore[misc]
            elif isinstance(module, nn.BatchNorm2d):
                module.__init__(module.num_features // 8)  # type: ignore[misc]
        work.net.head = nn.Linear(256, 10)
        work.x, work.y = torch.randn(2, 3, 8, 8), torch.randint(0, 10, (2,))
    work.optimizer = torch.optim.SGD(work.net.parameters(), lr=1e-4)
    return work


def milliseconds(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return (time.process_time() - start) * 1e3


def measure(name: str, level: str, rounds: int, profile: bool, folder: Path) -> None:
    work = work_of(name)
    recorder = twintrace.record(folder / f"{name}-{level}", work.net, level=level, keep="fingerprint", overwrite=True)

    def recorded_step() -> None:
        work.step()
        recorder.step()

    bare: list[float] = []
    recorded: list[float] = []
    profiler = cProfile.Profile()
    for turn in range(2 * rounds + 1):
        if turn % 2:
            bare += [milliseconds(work.step) for _ in range(4)][1:]
            continue
        recorder.start()
        for i in range(4 if turn else 8):  # always from here: plans know the place
            if profile and turn and i:
                profiler.enable()
            took = milliseconds(recorded_step)
            profiler.disable()
            if turn and i:
                recorded.append(took)
        recorder.stop()
    recorder.close()
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)
        return
    least, middle = min(recorded) - min(bare), statistics.median(recorded) - statistics.median(bare)
    gpu.say(
        f"{name:8} {level:7} bare {min(bare):6.2f}  recorded {min(recorded):6.2f} ms  "
        f"added: least {least:6.2f}  median {middle:6.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description="The host's share of recording.")
    parser.add_argument("--work", action="append", choices=("gpt", "resnet50"), help="may be repeated")
    parser.add_argument("--level", action="append", choices=("module", "api", "mix"), help="may be repeated")
    parser.add_argument("--rounds", type=int, default=12, help="of three bare and three recorded steps; default: 12")
    parser.add_argument("--profile", action="store_true", help="by function, instead of figures")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    pretend()
    folder = Path(tempfile.mkdtemp())
    try:
        for name in asked.work or ("gpt", "resnet50"):
            for level in asked.level or ("module", "api", "mix"):
                gc.collect()
                measure(name, level, asked.rounds, asked.profile, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
