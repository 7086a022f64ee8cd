"""What many steps cost: recording them with fingerprints, and comparing two such runs, equal and apart.

    python -m benchmarks.steps                     25, 100, 400 and 1,600 steps at level module; a quarter of an hour
    python -m benchmarks.steps --quick             25 and 100 steps
    python -m benchmarks.steps --level mix
    python -m benchmarks.steps --width 512         larger blocks: what recording costs beside more work
    python -m benchmarks.steps --json FILE         the figures as well, for keeping

Twelve blocks (norm, linear, GELU, linear, dropout; 64 wide unless told), AdamW, 32 rows of data that change each step. `equal` is a
run and its repetition, recorded beside it (`against`); `apart` is a run in which one number of the data of the step in the middle
is another. Each run and each comparison has a process of its own. The status is 1 when a target was missed. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import layout, say, targets_table
from benchmarks.targets import Verdict

ROOT = Path(__file__).resolve().parent.parent
STEPS = (25, 100, 400, 1600)
BLOCKS = 12
RATIO = 1.1  # recorded / bare
LOCKSTEP = 1.1  # recorded beside another trace / recorded
KB_A_STEP = 20.0
SECONDS = 10.0  # comparing 1,000 steps
GROWTH = 1.1  # of the peak memory, from the second number of steps to the last
WARM = 5
"""Steps before the clock starts: first-time costs of the framework and of the recorder."""


@dataclass(frozen=True)
class Row:
    """One number of steps: what recording it took, and comparing it."""

    steps: int
    kind: str
    level: str
    bare_ms: float = 0.0
    recorded_ms: float = 0.0
    lockstep: float = 0.0
    """Processor time of a step that is recorded beside another trace, against one that is recorded alone."""
    kb: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0
    code: int = -1
    told: str = ""
    error: str | None = None

    @property
    def key(self) -> tuple[int, str]:
        return self.steps, self.kind

    @property
    def ratio(self) -> float:
        return self.recorded_ms / self.bare_ms


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.worker:
        return _work(json.loads(options.worker))
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="twintrace-steps-", dir=options.dir))
    try:
        rows = list(run(folder, options.steps, options.level, options.width))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judge(rows)
    say("")
    say(costs_table(rows))
    say("")
    say(targets_table(verdicts))
    say(
        f"\n{time.perf_counter() - began:.0f} s on {os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    if options.json:
        figures = {
            "rows": [asdict(row) for row in rows],
            "targets": [asdict(each) | {"met": each.met} for each in verdicts],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(any(row.error for row in rows) or any(verdict.met is False for verdict in verdicts))


def run(folder: Path, numbers: Sequence[int], level: str, width: int) -> Iterator[Row]:
    """Record and compare each number of steps."""
    for steps in numbers:
        task: dict[str, Any] = {"steps": steps, "level": level, "width": width}
        try:
            bare = ask(task | {"do": "train"})
            recorded = ask(task | {"do": "train", "path": str(folder / "a")})
            beside = ask(task | {"do": "train", "path": str(folder / "b"), "against": str(folder / "a")})
            ask(task | {"do": "train", "path": str(folder / "c"), "apart": steps // 2})
        except RuntimeError as error:
            yield Row(steps, "equal", level, error=str(error))
            return
        costs = {"bare_ms": bare["ms"], "recorded_ms": recorded["ms"], "kb": recorded["bytes"] / steps / 1000}
        costs["lockstep"] = beside["cpu_ms"] / recorded["cpu_ms"]
        for kind, right in (("equal", "b"), ("apart", "c")):
            try:
                found = ask({"do": "compare", "left": str(folder / "a"), "right": str(folder / right)})
                row = Row(steps, kind, level, **costs, **found)
            except RuntimeError as error:
                row = Row(steps, kind, level, **costs, error=str(error))
            say(f"  {steps} steps, {kind}: {row.error or f'{row.seconds:.2f} s; {row.told}'}")
            yield row
        for name in ("a", "b", "c"):
            shutil.rmtree(folder / name)


def ask(task: dict[str, Any]) -> dict[str, Any]:
    """Do one task in a process of its own; its figures."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    }
    command = [sys.executable, "-m", "benchmarks.steps", "--worker", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    try:
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return figures
    except (IndexError, ValueError):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise RuntimeError(f"ended with {done.returncode}: {lines[-1][:200]}") from None


def _work(task: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(_compare(task) if task["do"] == "compare" else _train(task)) + "\n")
    return 0


def _train(task: dict[str, Any]) -> dict[str, Any]:
    """The run, recorded where there is a path; milliseconds of a step after the first ones, and bytes on disk."""
    import contextlib

    import torch

    import twintrace as tt

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = blocks(task["width"])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(1)
    path = Path(task["path"]) if "path" in task else None
    options = {"level": task["level"], "keep": "fingerprint", "against": task.get("against")}
    recorder = tt.record(path, net, **options) if path else None
    seconds, processor = [], []
    with recorder or contextlib.nullcontext():
        for step in range(task["steps"]):
            began, cpu = time.perf_counter(), time.process_time()
            rows = torch.randn(32, task["width"], generator=data)
            labels = torch.randint(0, 10, (32,), generator=data)
            if step == task.get("apart"):
                rows[0, 0] += 1e-3
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(rows), labels).backward()
            optimizer.step()
            if recorder is not None:
                recorder.step()
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - cpu)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path else 0
    return {"ms": _median_ms(seconds), "cpu_ms": _median_ms(processor), "bytes": size}


def _median_ms(seconds: list[float]) -> float:
    counted = sorted(seconds[WARM:] or seconds)
    return 1000 * counted[len(counted) // 2]


def blocks(width: int) -> Any:
    """The network."""
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.act = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU()
            self.down, self.drop = nn.Linear(4 * width, width), nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            shortened: Tensor = self.drop(self.down(self.act(self.up(self.norm(x)))))
            return x + shortened

    return nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(width, 10))


def _compare(task: dict[str, Any]) -> dict[str, Any]:
    import twintrace as tt

    tt.compare(task["left"], task["right"], steps=[0])  # importing and compiling are not what is measured
    began, cpu = time.perf_counter(), time.process_time()
    found = tt.compare(task["left"], task["right"])
    text = str(tt.verdict(found)).strip()
    told = next((line for line in text.splitlines() if "first bit" in line), text.splitlines()[0]).strip()
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "code": found.code,
        "told": told,
    }


def costs_table(rows: Sequence[Row]) -> str:
    heads = (
        "steps",
        "",
        "bare ms",
        "recorded ms",
        "×",
        "lockstep ×",
        "KB a step",
        "compare s",
        "cpu s",
        "ms a step",
        "peak MB",
        "code",
    )
    return layout([heads, *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    if row.error:
        return str(row.steps), row.kind, f"failed: {row.error}"
    return (
        str(row.steps),
        row.kind,
        f"{row.bare_ms:.1f}",
        f"{row.recorded_ms:.1f}",
        f"{row.ratio:.2f}",
        f"{row.lockstep:.2f}",
        f"{row.kb:.1f}",
        f"{row.seconds:.2f}",
        f"{row.cpu:.2f}",
        f"{1000 * row.cpu / row.steps:.1f}",
        f"{row.peak_mb:.0f}",
        str(row.code),
    )


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """All targets against the rows of one run; those of comparing for 1,000 steps, from the longest run."""
    good = {row.key: row for row in rows if row.error is None}
    numbers = sorted({steps for steps, _ in good})
    longest = numbers[-1] if numbers else 0
    verdicts = []
    last = good.get((longest, "equal"))
    verdicts.append(Verdict("recorded / bare", last.ratio if last else None, RATIO))
    verdicts.append(Verdict("beside a trace / recorded, processor time", last.lockstep if last else None, LOCKSTEP))
    verdicts.append(Verdict("KB a step", last.kb if last else None, KB_A_STEP))
    for kind, code in (("equal", 0), ("apart", 1)):
        row = good.get((longest, kind))
        enough = row is not None and longest >= 100
        verdicts.append(
            Verdict(f"{kind}: seconds for 1,000 steps", 1000 * row.cpu / longest if row and enough else None, SECONDS)
        )
        first = good.get((numbers[1], kind)) if len(numbers) > 2 else None
        grown = row.peak_mb / first.peak_mb if row and first else None
        verdicts.append(
            Verdict(f"{kind}: peak memory, {longest} steps / {numbers[1] if first else '-'}", grown, GROWTH)
        )
        verdicts.append(
            Verdict(f"{kind}: another exit code than {code}", float(row.code != code) if row else None, 0.0)
        )
    return verdicts


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description="What many steps cost.")
    parser.add_argument("--steps", type=lambda text: [int(item) for item in text.split(",")], default=list(STEPS))
    parser.add_argument("--quick", dest="steps", action="store_const", const=[25, 100], help="25 and 100 steps")
    parser.add_argument("--level", choices=["module", "api", "mix"], default="module")
    parser.add_argument("--width", type=int, default=64, help="of the blocks")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be written to; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
