"""What recording costs on a GPU: each level and keep, beside bare steps of the same work in turns.

    python -m benchmarks.gpu                      a GPT of 12 layers and a ResNet-50, both in bf16; about four minutes
    python -m benchmarks.gpu --quick              the GPT alone, fewer rounds
    python -m benchmarks.gpu --work gpt --only api:fingerprint
    python -m benchmarks.gpu --profile api:fingerprint      where the host's time goes, by function
    python -m benchmarks.gpu --json FILE          the figures as well

Runs from source on whatever torch is there; installs nothing. A ratio is the median of recorded steps by the median of bare ones; a
recorded step includes `rec.step()`, with which all of it is in the trace. The floor is what reading each value once takes at the
bandwidth that the kernel has been measured at here, when nothing overlaps.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import importlib.util
import json
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the comparison of bits

import torch
from torch import nn
from torch.nn import functional as F

import twintrace

GIB = 1 << 30
CONFIGURATIONS = [f"{level}:{keep}" for level in ("module", "api", "mix") for keep in ("statistics", "fingerprint")]


# --- the works ----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, -1)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        shortcut = [nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)]
        self.shortcut = nn.Sequential(*shortcut) if stride != 1 or inside != 4 * width else None

    def forward(self, x: Any) -> Any:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.shortcut is None else self.shortcut(x)
        return self.relu(out)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        layers: list[nn.Module] = []
        inside = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
                inside = 4 * width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


class Work:
    """A net, its optimizer and one batch."""

    def __init__(self, name: str, device: str, tiny: bool) -> None:
        torch.manual_seed(0)
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        if name == "gpt":
            words, width, layers, heads, batch, length = (
                (128, 64, 2, 4, 2, 16) if tiny else (50304, 768, 12, 12, 8, 1024)
            )
            self.net: nn.Module = GPT(words, width, layers, heads).to(device, kind)
            self.x = torch.randint(0, words, (batch, length), device=device)
            self.y = torch.randint(0, words, (batch, length), device=device)
        else:
            self.net = ResNet50().to(device, kind)
            batch, size = (2, 32) if tiny else (64, 224)
            self.x = torch.randn(batch, 3, size, size, device=device, dtype=kind)
            self.y = torch.randint(0, 1000, (batch,), device=device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)

    def step(self, mark: Callable[[str], None] | None = None) -> None:
        """One step; `mark` is told of the end of each part."""
        mark = mark or _unmarked
        out = self.net(self.x)
        loss = F.cross_entropy(out.view(-1, out.shape[-1]).float(), self.y.view(-1))
        mark("forward")
        loss.backward()
        mark("backward")
        self.optimizer.step()
        mark("optimizer")
        self.optimizer.zero_grad(set_to_none=False)
        mark("gradients to zero")


# --- measuring ----------------------------------------------------------------------------------------------------------


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def milliseconds(work: Callable[[], None]) -> float:
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return (time.perf_counter() - start) * 1e3


def measure(work: Work, level: str, keep: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Bare and recorded steps, three of each in turns."""
    path = folder / f"{level}-{keep}"
    recorder = twintrace.record(path, work.net, level=level, keep=keep, overwrite=True)
    bare: list[float] = []
    recorded: list[float] = []
    stopped: list[float] = []

    def recorded_step() -> None:
        work.step()
        recorder.step()

    recorder.start()
    for _ in range(4):  # compile, and make plans; from the place of all others, as a training loop would
        milliseconds(recorded_step)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    recorder.stop()
    for _ in range(rounds):
        work.step()
        bare += [milliseconds(work.step) for _ in range(3)]
        recorder.start()
        recorded += [milliseconds(recorded_step) for _ in range(4)][1:]
        recorder.stop()
        stopped += [milliseconds(work.step) for _ in range(3)]
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    recorder.close()
    trace = twintrace.open(path)
    journal = trace.journal(trace.steps[-1] if keep != "tensor" else trace.steps[0])
    calls = sum(1 for _ in journal.calls())
    tensors = list(journal.tensors())
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / len(trace.steps)
    shutil.rmtree(path)
    middle, spread = statistics.median(recorded), statistics.quantiles(recorded, n=4)
    base = statistics.median(bare)
    return {
        "level": level, "keep": keep, "bare": base, "recorded": middle, "ratio": middle / base,
        "low": spread[0] / base, "high": spread[2] / base, "stopped": statistics.median(stopped) / base,
        "calls": calls, "tensors": len(tensors), "missing": sum(tensor.missing is not None for tensor in tensors),
        "per_call_us": (middle - base) * 1e3 / max(1, calls), "per_tensor_us": (middle - base) * 1e3 / max(1, len(tensors)),
        "peak": peak / GIB, "megabytes": size / 1e6,
        "values": sum({tensor.fingerprint: _nbytes(tensor) for tensor in tensors}.values()) / 1e9,
    }  # fmt: skip


def _nbytes(tensor: Any) -> int:
    from twintrace.model.tensors import DTYPES

    count = DTYPES[tensor.spec.dtype]
    for size in tensor.spec.shape:
        count *= size
    return count


def bandwidth() -> float | None:
    """GB/s at which the kernel reads bf16, statistics and fingerprint; None where there is no Triton."""
    if not torch.cuda.is_available():
        return None
    from twintrace.frameworks.torch.batches import Entry, launch, triton_for

    kernels = triton_for(torch.device("cuda"))
    if kernels is None:
        return None
    x = torch.randn(GIB // 2, device="cuda").bfloat16()
    results = torch.empty((1, 16), dtype=torch.int64, device="cuda")
    entry = Entry(x.data_ptr(), x.nbytes, "bf16", None, x, x.untyped_storage(), x.nbytes, 0, 0)
    launch([entry], results, True, kernels)
    took = min(milliseconds(lambda: launch([entry], results, True, kernels)) for _ in range(5))
    return x.nbytes / took / 1e6


def same_bits(name: str, device: str, tiny: bool, configurations: Sequence[str], folder: Path) -> dict[str, str]:
    """Are gradients and weights after three steps those of bare steps, bit for bit?"""
    torch.use_deterministic_algorithms(True, warn_only=True)
    for fused in _FUSED:  # their backward passes add in any order
        fused(False)

    def trained(configuration: str | None) -> list[torch.Tensor]:
        work = Work(name, device, tiny)
        recorder = None
        if configuration is not None:
            level, keep = configuration.split(":")
            recorder = twintrace.record(folder / "bits", work.net, level=level, keep=keep, overwrite=True)
            recorder.start()
        for _ in range(3):
            work.step()
            if recorder is not None:
                recorder.step()
        out = work.net(work.x)
        F.cross_entropy(out.view(-1, out.shape[-1]).float(), work.y.view(-1)).backward()
        if recorder is not None:
            recorder.close()
        parameters = list(work.net.parameters())
        return [tensor.detach().clone() for p in parameters for tensor in (p, p.grad) if tensor is not None]

    try:
        bare, again = trained(None), trained(None)
        if not all(map(torch.equal, bare, again)):
            return {"bare": "not the same twice"}
        found = {}
        for configuration in configurations:
            found[configuration] = "equal" if all(map(torch.equal, bare, trained(configuration))) else "DIFFERENT"
        return found
    finally:
        torch.use_deterministic_algorithms(False)
        for fused in _FUSED:
            fused(True)


_FUSED = (
    torch.backends.cuda.enable_cudnn_sdp,
    torch.backends.cuda.enable_flash_sdp,
    torch.backends.cuda.enable_mem_efficient_sdp,
)


def measure_peer(work: Work, level: str, rounds: int, folder: Path) -> dict[str, Any] | None:
    """MindStudio-Probe's statistics on the same work, where it is installed."""
    from benchmarks.tools import Msprobe

    tool = Msprobe(folder / "msprobe", level, "statistics")
    tool.folder.mkdir()
    tool.open({"": work.net})
    bare: list[float] = []
    recorded: list[float] = []

    def step() -> None:
        tool.start(work.net)
        work.step()
        tool.step()

    for _ in range(rounds):
        bare += [milliseconds(work.step) for _ in range(3)]
        recorded += [milliseconds(step) for _ in range(2)]
    return {
        "level": level,
        "keep": "msprobe statistics",
        "ratio": statistics.median(recorded) / statistics.median(bare),
    }


# --- telling ------------------------------------------------------------------------------------------------------------


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _options(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    triton = importlib.util.find_spec("triton")
    versions = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": torch.__version__,
        "triton": __import__("triton").__version__ if triton else None, "python": sys.version.split()[0],
        "numba": importlib.util.find_spec("numba") is not None, "twintrace": twintrace.__version__,
    }  # fmt: skip
    say("python -m benchmarks.gpu " + " ".join(arguments if arguments is not None else sys.argv[1:]))
    say(", ".join(f"{name} {value}" for name, value in versions.items()))
    speed = bandwidth()
    if speed:
        say(f"the kernel reads {speed:.0f} GB/s of bf16 (statistics, fingerprint and order sums)")
    figures: dict[str, Any] = {"versions": versions, "bandwidth": speed, "works": {}}
    folder = Path(tempfile.mkdtemp(dir=asked.dir))
    try:
        for name in asked.work or (["gpt"] if asked.quick else ["gpt", "resnet50"]):
            figures["works"][name] = _one_work(name, device, asked, folder, speed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1))
    return 0


def _one_work(name: str, device: str, asked: argparse.Namespace, folder: Path, speed: float | None) -> dict[str, Any]:
    work = Work(name, device, asked.tiny)
    for _ in range(3):
        work.step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    bare = statistics.median(milliseconds(work.step) for _ in range(9))
    peak = torch.cuda.max_memory_allocated() / GIB if device == "cuda" else 0.0
    say(f"\n{name}: bare step {bare:.1f} ms, peak {peak:.2f} GiB")
    if asked.profile:
        for configuration in asked.profile:
            _profile(work, configuration, folder)
        return {}
    rows = []
    say(
        "level   keep         × bare  (quartiles)    stopped  calls  tensors  missing  "
        "µs/call  µs/tensor  peak GiB  MB/step  floor ×"
    )
    configurations = asked.only or CONFIGURATIONS + ([] if asked.quick else ["module:tensor"])
    for configuration in configurations:
        level, keep = configuration.split(":")
        gc.collect()
        row = measure(work, level, keep, 1 if keep == "tensor" else asked.rounds, folder)
        row["floor"] = 1 + row["values"] / speed * 1e3 / bare if speed and keep != "statistics" else None
        rows.append(row)
        floor = f"{row['floor']:.2f}" if row["floor"] else "–"
        say(
            f"{level:7} {keep:11} {row['ratio']:7.2f}  ({row['low']:.2f} to {row['high']:.2f})  "
            f"{row['stopped']:8.2f} {row['calls']:6} "
            f"{row['tensors']:8} {row['missing']:8} {row['per_call_us']:8.1f} {row['per_tensor_us']:10.1f} {row['peak']:9.2f} "
            f"{row['megabytes']:8.2f}  {floor}"
        )
    if importlib.util.find_spec("msprobe"):
        for level in ("module", "api", "mix"):
            peer = measure_peer(work, level, 2, Path(tempfile.mkdtemp(dir=folder)))
            if peer:
                rows.append(peer)
                say(f"{level:7} {'msprobe':11} {peer['ratio']:7.2f}")
    else:
        say("msprobe is not installed here: no peer")
    bits = same_bits(name, device, asked.tiny, [c for c in configurations if not c.endswith("tensor")], folder)
    say("gradients and weights: " + ", ".join(f"{configuration} {told}" for configuration, told in bits.items()))
    return {"bare": bare, "peak": peak, "rows": rows, "bits": bits}


class _Clock:
    """Times between marks, by name."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self.times.setdefault(name, []).append((now - self.last) * 1e3)
        self.last = now


def _looked_at(work: Work, recorder: Any) -> tuple[dict[str, float], dict[str, tuple[int, float]], cProfile.Profile]:
    """Steps from one place, which plans know: ms of each part; of each operation of torch's and call of the driver how often in a
    step, and ms of its own; the functions of all threads (of one before Python 3.12).
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    clock, functions, operations = _Clock(), cProfile.Profile(), torch.profiler.profile(activities=activities)
    for turn in range(24):
        synchronize()
        if turn == 6:  # plans are made
            clock.times.clear()
        elif turn == 18:
            operations.start()
        elif turn > 20:
            functions.enable()
        clock.last = time.perf_counter()
        work.step(clock if turn < 18 else _unmarked)
        if recorder is not None:
            recorder.step()
        functions.disable()
        if turn < 18:
            clock("end of the step")
            synchronize()
            clock("the device")
        elif turn == 18:
            synchronize()
            operations.stop()
    rows = {row.key: (row.count, row.self_cpu_time_total / 1e3) for row in operations.key_averages()}
    return {name: statistics.median(times) for name, times in clock.times.items()}, rows, functions


def _unmarked(_: str) -> None:
    """Nobody looks at the clock."""


def _profile(work: Work, configuration: str, folder: Path) -> None:
    """By part of the step, by operation of torch's and call of the driver, by function."""
    level, keep = configuration.split(":")
    bare_parts, bare, _ = _looked_at(work, None)
    with twintrace.record(folder / "profile", work.net, level=level, keep=keep, overwrite=True) as recorder:
        recorded_parts, recorded, functions = _looked_at(work, recorder)
    say(f"\n{configuration}: parts of a step, ms of the clock, bare and recorded")
    for name, took in recorded_parts.items():
        say(f"{name:17} {bare_parts[name]:8.2f} {took:8.2f}  added {took - bare_parts[name]:8.2f}")
    say("\noperations, and calls of the driver: how often in a step, ms of their own on the host, bare and recorded")
    added = {name: took - bare.get(name, (0, 0.0))[1] for name, (_, took) in recorded.items()}
    for name in sorted(added, key=added.__getitem__, reverse=True)[:40]:
        before, after = bare.get(name, (0, 0.0)), recorded[name]
        say(f"{name[:60]:60} {before[0]:6} {before[1]:8.2f} {after[0]:6} {after[1]:8.2f}  added {added[name]:8.2f}")
    pstats.Stats(functions).sort_stats("tottime").print_stats(60)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="What recording costs on a GPU.")
    parser.add_argument("--quick", action="store_true", help="the GPT alone, no tensors kept")
    parser.add_argument("--work", action="append", choices=("gpt", "resnet50"), help="may be repeated")
    parser.add_argument("--only", action="append", metavar="LEVEL:KEEP", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=4, help="of three bare and three recorded steps each; default: 4")
    parser.add_argument(
        "--profile", action="append", metavar="LEVEL:KEEP", help="where the host's time goes, instead of figures"
    )
    parser.add_argument("--tiny", action="store_true", help="small nets: to try the benchmark itself")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be written to; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
