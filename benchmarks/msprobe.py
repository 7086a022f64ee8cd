"""What `msprobe compare` costs: the real tool's command line and ours, on the same dumps in the same run.

    python -m benchmarks.msprobe                 20,000 rows of statistics and 2 GB of tensors; about ten minutes, nearly all theirs
    python -m benchmarks.msprobe --quick         a tenth of it, to try the benchmark itself
    python -m benchmarks.msprobe --no-peers      ours alone
    python -m benchmarks.msprobe --json FILE     the figures as well

Whole commands are timed, start-up included, because that is what a user waits for. The status is 1 when a target was missed, a tool
failed, or the peer could not be had. README.md: how to read it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.compare import Row, quickest, tell
from benchmarks.record import layout
from benchmarks.targets import Verdict

ROOT = Path(__file__).resolve().parent.parent
SHARE_OF_TIME = 1 / 10  # of the real tool's
GROWTH = 1.10  # of our peak memory when there are four times as many tensors


@dataclass(frozen=True)
class Work:
    """Two dumps and how they are compared: so many rows of statistics, or so many tensors of so many elements."""

    name: str
    rows: int
    elements: int = 0
    options: tuple[str, ...] = ()
    peer: bool = True

    @property
    def gb(self) -> float:
        return 2 * self.rows * self.elements * 4 / 1e9

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "_")  # the real tool refuses paths with spaces


def works(quick: bool) -> tuple[Work, ...]:
    rows, tensors = (2_000, 100) if quick else (20_000, 1_000)
    return (
        Work("statistics", rows),
        Work("statistics xlsx", rows, options=("--xlsx",)),
        Work("tensors", tensors, 1 << 18),
        Work("a quarter", tensors // 4, 1 << 18, peer=False),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.perf_counter()
    commands, missing = tools(options.peers)
    folder = Path(tempfile.mkdtemp(prefix="twintrace-benchmark-", dir=options.dir))
    try:
        rows = list(run(folder, commands, works(options.quick), options.rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tell(rows, judge(rows), missing, costs_table(rows), began, options.json)


def tools(peers_wanted: bool) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The command of each tool, and a line for the peer if it cannot be run."""
    commands = {"twintrace": (sys.executable, "-m", "twintrace", "msprobe")}
    missing = []
    if peers_wanted:
        try:
            script = "import sys; from msprobe.msprobe import main; sys.exit(main())"
            commands["msprobe"] = (str(peers.environment("msprobe")), "-c", script)
        except peers.PeerUnavailable as reason:
            missing.append(f"msprobe was not measured: {reason}")
    return commands, missing


def run(folder: Path, commands: dict[str, tuple[str, ...]], works: Sequence[Work], rounds: int) -> Iterator[Row]:
    """Every tool at every work, in turns, so that a busy machine is busy for all of them."""
    for warm in (
        Work("warm", 10),
        Work("warm tensors", 2, 64),
    ):  # compiled files, caches of the disk: nobody's first time
        write(folder, warm)
        for tool, command in commands.items():
            if failed := one(tool, command, folder, warm).error:
                raise RuntimeError(f"{tool} cannot compare {warm}: {failed}")
    for work in works:
        write(folder, work)
        chosen = [tool for tool in commands if work.peer or tool == "twintrace"]
        found: dict[str, list[Row]] = {tool: [] for tool in chosen}
        for _ in range(rounds):
            for tool in chosen:
                found[tool].append(one(tool, commands[tool], folder, work))
        for tool in chosen:
            yield quickest(found[tool])
        shutil.rmtree(folder / work.folder)


def one(tool: str, command: Sequence[str], folder: Path, work: Work) -> Row:
    status, seconds, cpu, peak, said = once(command, folder, work)
    made = list((folder / "out").glob("compare_result_*"))
    if status or len(made) != 1:
        lines = said.strip().splitlines() or ["nothing was said"]
        return Row(tool, work.name, error=f"ended with {status}, {len(made)} files: {lines[-1][:200]}")
    return Row(tool, work.name, seconds, cpu, work.gb, work.rows, peak)


def once(command: Sequence[str], folder: Path, work: Work) -> tuple[int, float, float, float, str]:
    """One comparison: status, seconds, seconds of processor time, the most memory that a process of it held, what it said."""
    here, out = folder / work.folder, folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    paths = ("-tp", str(here / "left" / "dump.json"), "-gp", str(here / "right" / "dump.json"), "-o", str(out))
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    # What is installed is compiled; a checkout is not where an environment forbids it, and would compile itself in every run.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    log = folder / "said.txt"
    with log.open("w") as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "compare", *paths, *work.options],
            stdout=said, stderr=said, env=environment,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return process.returncode, seconds, cpu, usage.ru_maxrss / 1024, log.read_text(encoding="utf-8", errors="replace")


# The dumps ----------------------------------------------------------------------------------------------------------


def write(folder: Path, work: Work) -> None:
    """Both dumps, by a process of its own: whoever is started by a large process is counted as large from the start."""
    here = folder / work.folder
    if not work.elements:
        write_statistics(here, work.rows)
        return
    command = [
        sys.executable,
        "-m",
        "benchmarks.comparers",
        "write",
        "dumps",
        str(here),
        str(work.rows),
        str(work.elements),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"the dumps of {work} could not be written:\n{done.stderr}")


def write_statistics(folder: Path, rows: int) -> None:
    """As a recording of a training step has them: three rows to a record, forward and backward, stacks of twelve lines."""
    for side, noise in (("left", 1e-4), ("right", 0.0)):
        draw = random.Random(3)
        records = dict(_records(draw, noise, rows))
        frames = [
            f"File /site-packages/torch/nn/modules/module{number}.py, line {number}, in forward, \n y = self.inner(*args)"
            for number in range(12)
        ]
        forward = [name for name in records if name.endswith(".forward")]
        stacks = {str(at): [forward[at : at + 10], frames] for at in range(0, len(forward), 10)}
        dump = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": records}
        (folder / side).mkdir(parents=True)
        for file, content in (("dump", dump), ("stack", stacks), ("construct", {})):
            (folder / side / f"{file}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def _records(draw: random.Random, noise: float, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Layers of 15 rows: a product, a sum and an activation with their gradients; the last is cut to fit."""
    large, weight, bias = (4, 128, 256), (256, 256), (256,)
    tensor = lambda *shape: _tensor(draw, noise, *shape)  # noqa: E731
    left = rows
    for layer in itertools.count():
        if not left:
            return
        for name, given, made in (
            (f"Functional.linear.{layer}.forward", (large, weight, bias), (large,)),
            (f"Tensor.__add__.{layer}.forward", (large, large), (large,)),
            (f"Functional.gelu.{layer}.forward", (large,), (large,)),
            (f"Functional.gelu.{layer}.backward", (large,), (large,)),
            (f"Functional.linear.{layer}.backward", (large,), (bias, large, weight)),
        ):
            given = given[: max(left - 1, 0)]
            if len(given) + len(made) > left:
                made = made[: left - len(given)]
            left -= len(given) + len(made)
            if given or made:
                inputs, outputs = [tensor(*shape) for shape in given], [tensor(*shape) for shape in made]
                forward = {"input_args": inputs, "input_kwargs": {}, "output": outputs}
                yield name, forward if name.endswith("forward") else {"input": inputs, "output": outputs}
        if layer % 4 == 0 and left:  # and what is no tensor
            left -= 1
            scalar = {"type": "float", "value": 0.125}
            yield f"Tensor.mul.{layer}.forward", {"input_args": [scalar], "input_kwargs": {}, "output": []}


def _tensor(draw: random.Random, noise: float, *shape: int) -> dict[str, Any]:
    """Statistics as training has them; the same draw on both sides, with noise on one."""
    numbers = [draw.gauss(0, 1) * (1 + noise * draw.gauss(0, 1)) for _ in range(4)]
    return {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape),
        "Max": abs(numbers[0]) + 1, "Min": -abs(numbers[1]), "Mean": numbers[2] / 100, "Norm": 100 * abs(numbers[3]),
        "requires_grad": True,
    }  # fmt: skip


# Reading it ---------------------------------------------------------------------------------------------------------


def costs_table(rows: Iterable[Row]) -> str:
    heads = ("tool", "work", "seconds", "cpu s", "GB/s", "rows/s", "peak MB")
    return layout([heads, *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    if row.error:
        return row.tool, row.data, f"failed: {row.error}"
    speed = f"{row.gb / row.seconds:.3f}" if row.gb else "-"
    rate = f"{row.rows / row.seconds:.0f}"
    return row.tool, row.data, f"{row.seconds:.2f}", f"{row.cpu:.2f}", speed, rate, f"{row.peak_mb:.0f}"


def judge(rows: Iterable[Row]) -> list[Verdict]:
    """All targets against the rows of one run."""
    table = {row.key: row for row in rows if row.error is None}
    verdicts = []
    for name in ("statistics", "statistics xlsx", "tensors"):
        ours, theirs = table.get(("twintrace", name)), table.get(("msprobe", name))
        share = ours.seconds / theirs.seconds if ours and theirs else None
        verdicts.append(Verdict(f"{name}: time / msprobe's", share, SHARE_OF_TIME))
    some, all_ = table.get(("twintrace", "a quarter")), table.get(("twintrace", "tensors"))
    growth = all_.peak_mb / some.peak_mb if some and all_ else None
    return [*verdicts, Verdict("peak memory: four times the tensors / once", growth, GROWTH)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.msprobe", description="What msprobe's comparison costs."
    )
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours alone; builds no environment")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to try the benchmark itself")
    parser.add_argument("--rounds", type=int, default=2, help="of every tool; the quickest counts")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be read from; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
