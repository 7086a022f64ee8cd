"""What comparing very many ranks costs: seconds, processor time and memory of the driver, as the ranks grow.

    python -m benchmarks.fleet                               16, 64 and 256 ranks of 10,000 records and 4 steps, on 1 and 2 cores
    python -m benchmarks.fleet --cases 256x2 1024x14         these ranks, on so many cores; at once, as far as there are cores
    python -m benchmarks.fleet --records 2500 --json FILE
    python -m benchmarks.fleet --kinds fault                 only the run with a fault

Runs are simulated (`simulated.py`): a recorded training, on every rank with numbers of its own. `equal` is a run beside itself,
`fault` one in which a call of one rank gives something else in step 2, and all ranks follow by the gradients that they reduce. A
record is a line of a journal: a call, a tensor or a gradient. Each comparison has a process of its own, held to its cores. The last
table extrapolates to 4,096 ranks on 64 cores: what grows with the ranks is divided by the cores, what does not is not.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import layout, say, targets_table
from benchmarks.simulated import Fault, record_base, write_run
from benchmarks.targets import Verdict
from twintrace.engine.processes import Processes
from twintrace.store.registry import open_trace

ROOT = Path(__file__).resolve().parent.parent
CASES = ("16x1", "64x1", "256x1", "16x2", "64x2", "256x2")
KINDS = ("fault", "equal")
MINUTES = 10.0
MEMORY_MB = 2000.0
LARGEST, MANY_CORES = 4096, 64


@dataclass(frozen=True)
class Row:
    """One comparison."""

    kind: str
    ranks: int
    cores: int
    seconds: float = 0.0
    cpu: float = 0.0
    """Processor seconds of the driver and of all its processes."""
    driver: float = 0.0
    """Processor seconds of the driver alone: what it judges."""
    peak_mb: float = 0.0
    code: int = -1
    told: str = ""
    error: str | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        return self.kind, self.ranks, self.cores


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.worker:
        sys.stdout.write(json.dumps(_compare(json.loads(options.worker))) + "\n")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="twintrace-fleet-", dir=options.dir))
    try:
        rows = list(run(folder, options.cases, options.records, options.steps, options.kinds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judge(rows)
    say("")
    say(costs_table(rows))
    say("")
    say(targets_table(verdicts))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return int(any(row.error for row in rows) or any(verdict.met is False for verdict in verdicts))


def run(
    folder: Path, cases: Sequence[tuple[int, int]], records: int, steps: int, kinds: Sequence[str] = KINDS
) -> Iterator[Row]:
    """Simulate each number of ranks, and compare it on so many cores: several at once, each on cores of its own."""
    base = folder / "base"
    record_base(base, records=records, steps=steps)
    for ranks in sorted({ranks for ranks, _ in cases}):
        began = time.perf_counter()
        runs: list[tuple[str, Fault | None]] = [("a", None)]
        runs += [("fault", Fault(ranks // 3, steps // 2))] if "fault" in kinds else []
        for name, fault in runs:
            tasks = [range(first, min(first + 16, ranks)) for first in range(0, ranks, 16)]
            work = functools.partial(_written, base, folder / f"{name}{ranks}", ranks, fault)
            for done in Processes().run(work, tasks):
                done.result()
        say(f"  {ranks} ranks written in {time.perf_counter() - began:.0f} s")
    for kind in kinds:
        waiting = [Row(kind, *case) for case in cases]
        while waiting:
            free = sorted(os.sched_getaffinity(0))
            together: list[tuple[Row, list[int]]] = []
            for row in list(waiting):
                if row.cores <= len(free) or not together:
                    waiting.remove(row)
                    together.append((row, free[: row.cores]))
                    free = free[row.cores :]
            with ThreadPoolExecutor(len(together)) as pool:
                for row in pool.map(lambda case: _asked(case[0], folder, case[1]), together):
                    told = row.error or f"{row.seconds:.1f} s, {row.cpu:.1f} of processors; {row.told}"
                    say(f"  {row.kind}, {row.ranks} ranks, {row.cores} cores: {told}")
                    yield row


def _written(base: Path, path: Path, ranks: int, fault: Fault | None, only: range) -> None:
    write_run(open_trace(base), path, ranks=ranks, fault=fault, only=only)


def _asked(row: Row, folder: Path, cores: Sequence[int]) -> Row:
    """One comparison, in a process of its own."""
    left = folder / f"a{row.ranks}"
    right = left if row.kind == "equal" else folder / f"fault{row.ranks}"
    task = {"left": str(left), "right": str(right), "cores": cores}
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "benchmarks.fleet", "--worker", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    try:
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return Row(row.kind, row.ranks, row.cores, **figures)
    except (IndexError, ValueError):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        return Row(row.kind, row.ranks, row.cores, error=f"ended with {done.returncode}: {lines[-1][:200]}")


def _compare(task: dict[str, Any]) -> dict[str, Any]:
    os.sched_setaffinity(0, task["cores"])
    import torch

    import twintrace as tt

    torch.set_num_threads(1)
    began = time.perf_counter()
    found = tt.compare(task["left"], task["right"], workers=len(task["cores"]))
    text = str(found).splitlines()
    seconds = time.perf_counter() - began
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "seconds": seconds,
        "cpu": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
        "driver": own.ru_utime + own.ru_stime,
        "peak_mb": own.ru_maxrss / 1024,
        "code": found.code,
        "told": next((line.strip() for line in text if line.strip().startswith("ranks ")), text[0]),
    }


# --- what it comes to ---------------------------------------------------------------------------------------------------


def extrapolated(rows: Sequence[Row], kind: str) -> tuple[float, float] | None:
    """Seconds and megabytes of the driver for 4,096 ranks on 64 cores, by a line through the fewest and the most ranks."""
    known = sorted((row for row in rows if row.kind == kind and not row.error), key=lambda row: row.ranks)
    if not known:
        return None
    fewest = [row for row in known if row.ranks == known[0].ranks]
    most = [row for row in known if row.ranks == known[-1].ranks]
    if fewest == most:
        return None

    def mean(rows: Sequence[Row], name: str) -> float:
        return sum(float(getattr(row, name)) for row in rows) / len(rows)

    between = most[0].ranks - fewest[0].ranks
    each = (mean(most, "cpu") - mean(fewest, "cpu")) / between
    fixed = mean(fewest, "cpu") - each * fewest[0].ranks
    memory = (mean(most, "peak_mb") - mean(fewest, "peak_mb")) / between
    return fixed + each * LARGEST / MANY_CORES, mean(most, "peak_mb") + max(memory, 0.0) * (LARGEST - most[0].ranks)


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """The targets."""
    found = []
    for kind, code in (("equal", 0), ("fault", 1)):
        guess = extrapolated(rows, kind)
        minutes, memory = (None, None) if guess is None else (guess[0] / 60, guess[1])
        found.append(Verdict(f"{kind}: minutes for 4,096 ranks on 64 cores", minutes, MINUTES))
        found.append(Verdict(f"{kind}: MB of the driver, 4,096 ranks", memory, MEMORY_MB))
        codes = {row.code for row in rows if row.kind == kind and not row.error}
        wrong = None if not codes else float(codes != {code})
        found.append(Verdict(f"{kind}: another exit code than {code}", wrong, 0.0))
    return found


def costs_table(rows: Sequence[Row]) -> str:
    head = ("", "ranks", "cores", "seconds", "processor s", "of it the driver", "driver MB", "told")
    lines = [
        (
            row.kind, f"{row.ranks:,}", str(row.cores), f"{row.seconds:.1f}", f"{row.cpu:.1f}", f"{row.driver:.1f}",
            f"{row.peak_mb:.0f}", row.told,
        )
        if row.error is None
        else (row.kind, f"{row.ranks:,}", str(row.cores), f"failed: {row.error}", "", "", "", "")
        for row in rows
    ]  # fmt: skip
    return layout([head, *lines])


def _case(text: str) -> tuple[int, int]:
    """`256x2`: 256 ranks on 2 cores."""
    ranks, cores = text.split("x")
    return int(ranks), int(cores)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=_case, nargs="+", default=[_case(text) for text in CASES])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--dir", help="where the runs are written; 5.5 MB a rank and side")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
