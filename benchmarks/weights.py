"""What carrying weights over costs: a state dict of a gigabyte, ours and TroubleShooter's, in one run.

    python -m benchmarks.weights                 1 GB; about two minutes
    python -m benchmarks.weights --megabytes 64  to try it
    python -m benchmarks.weights --no-peers      ours alone
    python -m benchmarks.weights --json FILE     the figures as well

Each figure is from a process of its own: seconds of the call alone, once what it needs is imported, and the most memory that
the process ever held; `cpu` is processor time, which a busy machine does not stretch. The tools take turns, and the best of the
rounds is shown. Files are in the page cache for both: they were just written. TroubleShooter needs about 5 GB to compare.

The status is 1 when a target was missed or the peer could not be had.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import peers

ROOT = Path(__file__).resolve().parent.parent
SPEED, MEMORY = 3.0, 0.5
# Run with the folder as its argument; prints seconds and kilobytes. `ts` is either tool's module of TroubleShooter's names.
TASKS = {
    "convert": "ts.migrator.convert_weight(f'{d}/map.json', f'{d}/net.pth', f'{d}/{who}.ckpt', print_conv_info=False)",
    "compare": "ts.migrator.compare_pth_and_ckpt(f'{d}/map.json', f'{d}/net.pth', f'{d}/net.ckpt', print_level=0)",
}
TOOLS = {"twintrace": "import twintrace.compat.troubleshooter as ts", "troubleshooter": "import troubleshooter as ts"}
SCRIPT = """
import resource, sys, time
d, who = sys.argv[1:3]
{imports}
begin, spent = time.perf_counter(), time.process_time()
try:
    {task}
except TypeError as error:
    # The real tool compares, and then joins the two tables that it was told not to make.
    if "NoneType" not in str(error): raise
seconds, cpu = time.perf_counter() - begin, time.process_time() - spent
print("FIGURES", seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MAKE = """
import sys, torch
import twintrace.compat.troubleshooter as ts
d, megabytes = sys.argv[1], int(sys.argv[2])
width, count = 1024, max(1, megabytes // 48)
layer = lambda: torch.nn.TransformerEncoderLayer(width, 8, 4 * width)
torch.manual_seed(0)
net = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8000, width), "conv": torch.nn.Conv1d(width, 256, 3),
                           "norm": torch.nn.BatchNorm1d(width), "layers": torch.nn.ModuleList(layer() for _ in range(count))})
ts.migrator.get_weight_map(net, d + "/map.json")
torch.save(net.state_dict(), d + "/net.pth")
ts.migrator.convert_weight(d + "/map.json", d + "/net.pth", d + "/net.ckpt", print_conv_info=False)
"""


class ToolFailed(RuntimeError):
    """A process that ended badly; its last words."""


@dataclass(frozen=True)
class Figure:
    """The best of one tool's rounds at one task."""

    tool: str
    task: str
    seconds: float
    cpu: float
    megabytes: float


@dataclass(frozen=True)
class Verdict:
    """A target, and what was found."""

    target: str
    found: float | None
    wanted: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.found is not None and (self.found >= self.wanted if self.at_least else self.found <= self.wanted)


def judge(figures: Sequence[Figure], tasks: Sequence[str] = tuple(TASKS)) -> list[Verdict]:
    """Whether the targets were met; what was not measured is not met."""
    table = {(figure.tool, figure.task): figure for figure in figures}
    verdicts = []
    for task in tasks:
        ours, theirs = table.get(("twintrace", task)), table.get(("troubleshooter", task))
        faster = theirs.seconds / ours.seconds if ours and theirs else None
        smaller = ours.megabytes / theirs.megabytes if ours and theirs else None
        verdicts.append(Verdict(f"{task}: times as fast as TroubleShooter", faster, SPEED, at_least=True))
        verdicts.append(Verdict(f"{task}: peak memory / TroubleShooter's", smaller, MEMORY, at_least=False))
    return verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    pythons = {"twintrace": Path(sys.executable)}
    missing = ""
    if options.peers:
        try:
            pythons["troubleshooter"] = peers.environment("troubleshooter")
        except peers.PeerUnavailable as error:
            missing = f"TroubleShooter could not be had: {error}"
    folder = Path(tempfile.mkdtemp(prefix="twintrace-weights-", dir=options.dir))
    try:
        call(Path(sys.executable), MAKE, str(folder), str(options.megabytes))
        say(f"net.pth: {(folder / 'net.pth').stat().st_size / 1e6:.0f} MB\n")
        figures = [
            figure for task in options.only or TASKS for figure in measure(task, pythons, folder, options.rounds)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"\n{'task':10}{'tool':16}{'seconds':>10}{'cpu':>8}{'peak MB':>10}")
    for figure in figures:
        say(f"{figure.task:10}{figure.tool:16}{figure.seconds:10.2f}{figure.cpu:8.2f}{figure.megabytes:10.0f}")
    verdicts = judge(figures, options.only or tuple(TASKS))
    say("")
    for verdict in verdicts:
        found = "-" if verdict.found is None else f"{verdict.found:.2f}"
        wanted = f"{'>=' if verdict.at_least else '<='} {verdict.wanted:g}"
        say(f"{verdict.target:45}{found:>8}  {wanted}  {'met' if verdict.met else 'MISSED'}")
    if missing:
        say(missing)
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n", encoding="utf-8")
    return 0 if not options.peers or all(verdict.met for verdict in verdicts) else 1


def measure(task: str, pythons: dict[str, Path], folder: Path, rounds: int) -> list[Figure]:
    """The tools in turns; of each the least time and the least peak."""
    found: dict[str, list[tuple[float, float, float]]] = {tool: [] for tool in pythons}
    for number in range(rounds):
        for tool, python in pythons.items():
            script = SCRIPT.format(imports=TOOLS[tool], task=TASKS[task])
            try:
                output = call(python, script, str(folder), f"{tool}{number}")
            except ToolFailed as error:
                say(f"  {task}, round {number + 1}: {tool} failed: {error}")
                continue
            line = next(line for line in output.splitlines() if line.startswith("FIGURES"))
            seconds, cpu, kilobytes = map(float, line.split()[1:])
            found[tool].append((seconds, cpu, kilobytes * 1024 / 1e6))
            written = folder / f"{tool}{number}.ckpt"
            if written.exists():
                written.chmod(0o600)
                written.unlink()
        say(
            f"  {task}, round {number + 1}: "
            + ", ".join(f"{tool} {turns[-1][0]:.2f} s" for tool, turns in found.items() if turns)
        )
    return [
        Figure(tool, task, *(min(turn[at] for turn in turns) for at in range(3)))
        for tool, turns in found.items()
        if turns
    ]


def call(python: Path, script: str, *arguments: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(python), "-c", script, *arguments], capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no word"]
        raise ToolFailed(f"ended with {done.returncode}: {lines[-1]:.300}")
    return done.stdout


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.weights", description="What carrying weights over costs."
    )
    parser.add_argument("--megabytes", type=int, default=1000, help="about how large the state dict is")
    parser.add_argument("--only", action="append", choices=TASKS, help="this task; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours alone; builds no environment")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be written to; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
