"""What comparing costs: ours, and the peers on the same tensors in the same run.

    python -m benchmarks.compare                  all of it, a few minutes
    python -m benchmarks.compare --no-peers       ours alone
    python -m benchmarks.compare --size tiny      to try the benchmark itself
    python -m benchmarks.compare --json FILE      the figures as well, for keeping

The status is 1 when a target was missed, a tool failed, or a peer could not be had. README.md: how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.comparers import COMPARERS, PEERS, Data
from benchmarks.record import layout, say, targets_table
from benchmarks.targets import Verdict

SIZES = {
    "full": (Data("large", 48, 1 << 20), Data("larger", 192, 1 << 20), Data("small", 2000, 64)),
    "tiny": (Data("large", 2, 1 << 12), Data("larger", 8, 1 << 12), Data("small", 20, 64)),
}
WARM = Data("warm", 2, 64)
OURS = ("kernel", "scales", "twintrace")
SHARE_OF_TIME = 1 / 10  # of msprobe's, on tensor data
SECONDS_PER_GB = 1 / 2  # of both sides, in the kernel, on one core
GROWTH = 1.10  # of the peak memory when the traces are four times as large


@dataclass(frozen=True)
class Row:
    """One tool on one set of tensors: the quickest of the rounds."""

    tool: str
    data: str
    seconds: float = 0.0
    cpu: float = 0.0
    gb: float = 0.0
    rows: int = 0
    peak_mb: float = 0.0
    error: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.tool, self.data


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.perf_counter()
    pythons, missing = interpreters(options.peers)
    folder = Path(tempfile.mkdtemp(prefix="twintrace-benchmark-", dir=options.dir))
    try:
        rows = list(run(folder, pythons, SIZES[options.size], options.rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tell(rows, judge(rows), missing, costs_table(rows), began, options.json)


def tell(
    rows: Sequence[Row],
    verdicts: Sequence[Verdict],
    missing: Sequence[str],
    costs: str,
    began: float,
    json_file: Path | None,
) -> int:
    """Say what was found, keep the figures if that is wanted; the status."""
    say("")
    say(costs)
    say("")
    say(targets_table(verdicts))
    for line in missing:
        say(line)
    say(
        f"\n{time.perf_counter() - began:.0f} s on {os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    if json_file:
        figures = {
            "rows": [asdict(row) for row in rows],
            "targets": [asdict(each) | {"met": each.met} for each in verdicts],
        }
        json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    failed = any(row.error for row in rows) or any(verdict.met is False for verdict in verdicts)
    return int(failed or bool(missing))


def interpreters(wanted: bool) -> tuple[dict[str, Path], list[str]]:
    """Who runs each tool, and a line for each peer that cannot be run."""
    pythons = dict.fromkeys(OURS, Path(sys.executable))
    missing = []
    for name in PEERS if wanted else ():
        try:
            pythons[name] = peers.environment(name)
        except peers.PeerUnavailable as reason:
            missing.append(f"{name} was not measured: {reason}")
    return pythons, missing


def run(folder: Path, pythons: dict[str, Path], sizes: Sequence[Data], rounds: int) -> Iterable[Row]:
    """Every tool on every set of tensors, in turns, so that a busy machine is busy for all of them."""
    wanted = {COMPARERS[tool].format for tool in pythons}
    write_tensors(folder, WARM, wanted)
    for data in sizes:
        tools = [tool for tool in pythons if data.name != "larger" or tool in ("scales", "twintrace")]
        formats = {COMPARERS[tool].format for tool in tools}
        write_tensors(folder, data, formats)
        found: dict[str, list[Row]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool in tools:
                found[tool].append(one_run(tool, pythons[tool], folder, data))
        for tool in tools:
            yield quickest(found[tool])
        for name in formats:
            shutil.rmtree(folder / name / data.name)


def quickest(rows: Sequence[Row]) -> Row:
    """The round with the least time; one that failed, if any did."""
    row = next((row for row in rows if row.error), None) or min(rows, key=lambda row: row.seconds)
    say(f"  {row.tool} {row.data}: {row.error or f'{row.seconds:.2f} s'}")
    return row


def write_tensors(folder: Path, data: Data, formats: Iterable[str]) -> None:
    """In a process of its own: whoever is started by a large process is counted as large from the start."""
    for name in formats:
        size = str(data.tensors), str(data.elements)
        done = call_comparers(Path(sys.executable), "write", name, str(folder / name / data.name), *size)
        if done.returncode:
            raise RuntimeError(f"the {name} of {data} could not be written:\n{done.stderr}")


def call_comparers(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command = [str(python), "-m", "benchmarks.comparers", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def one_run(tool: str, python: Path, folder: Path, data: Data) -> Row:
    here = folder / COMPARERS[tool].format
    done = call_comparers(python, "compare", tool, str(here / WARM.name), str(here / data.name), str(folder / "out"))
    try:
        figures = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        return Row(tool, data.name, error=f"ended with {done.returncode}: {lines[-1][:200]}")
    return Row(tool, data.name, gb=2 * data.tensors * data.elements * 4 / 1e9, **figures)


def costs_table(rows: Iterable[Row]) -> str:
    heads = ("tool", "tensors", "seconds", "cpu s", "GB/s", "rows/s", "peak MB")
    return layout([heads, *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    if row.error:
        return row.tool, row.data, f"failed: {row.error}"
    speed = f"{row.gb / row.seconds:.2f}" if row.data != "small" else "-"
    rate = f"{row.rows / row.seconds:.0f}"
    return row.tool, row.data, f"{row.seconds:.3f}", f"{row.cpu:.3f}", speed, rate, f"{row.peak_mb:.0f}"


def judge(rows: Iterable[Row]) -> list[Verdict]:
    """All targets against the rows of one run."""
    table = {row.key: row for row in rows if row.error is None}
    ours, theirs = table.get(("twintrace", "large")), table.get(("msprobe", "large"))
    share = ours.seconds / theirs.seconds if ours and theirs else None
    verdicts = [Verdict("large tensors: time / msprobe's", share, SHARE_OF_TIME)]
    kernel = table.get(("kernel", "large"))
    verdicts.append(
        Verdict("kernel: seconds per GB on one core", kernel.cpu / kernel.gb if kernel else None, SECONDS_PER_GB)
    )
    one, four = table.get(("twintrace", "large")), table.get(("twintrace", "larger"))
    verdicts.append(
        Verdict("peak memory: four times the data / once", four.peak_mb / one.peak_mb if one and four else None, GROWTH)
    )
    return verdicts


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="What comparing costs.")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours alone; builds no environment")
    parser.add_argument("--rounds", type=int, default=3, help="of every tool; the quickest counts")
    parser.add_argument("--size", choices=[*SIZES], default="full", help="tiny: to try the benchmark itself")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be read from; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
