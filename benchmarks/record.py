"""What recording costs: each level and keep of ours, and the peers on the same work in the same run.

    python -m benchmarks.record                  all of it, about twelve minutes
    python -m benchmarks.record --quick          what the targets need, about four
    python -m benchmarks.record --no-peers       ours alone
    python -m benchmarks.record --framework mindspore       about six; with --quick, about two
    python -m benchmarks.record --only twintrace:api --only msprobe:api:statistics
    python -m benchmarks.record --json FILE      the figures as well, for keeping

The status is 1 when a target was missed, a tool failed, or a peer could not be had. README.md: how to read it.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import MODELS, Plan, Process, Row, in_turns, measure, worker
from benchmarks.targets import Verdict, judge
from benchmarks.tools import KEEPS, OFFERS
from benchmarks.work import FRAMEWORKS

OURS = ("twintrace", "stopped")
QUICK = {  # what the targets need, and one row of TroubleShooter
    ("twintrace", "module", "statistics"),
    ("twintrace", "module", "fingerprint"),
    ("twintrace", "api", "statistics"),
    ("twintrace", "api", "fingerprint"),
    ("twintrace", "api", "tensor"),
    ("twintrace", "mix", "statistics"),
    ("twintrace", "mix", "fingerprint"),
    ("msprobe", "module", "statistics"),
    ("msprobe", "api", "statistics"),
    ("msprobe", "api", "tensor"),
    ("msprobe", "mix", "statistics"),
    ("troubleshooter", "api", "statistics"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.perf_counter()
    pythons, missing = interpreters(options)
    plans = [plan for plan in all_plans(options) if plan.tool in pythons]
    rows = run(plans, pythons, options)
    verdicts = judge(rows)
    say("")
    say(costs_table(rows))
    say("")
    say(targets_table(verdicts))
    for line in missing:
        say(line)
    say(f"\n{time.perf_counter() - began:.0f} s on {platform.machine()}, Python {platform.python_version()}")
    if options.json:
        figures = {
            "rows": [asdict(row) for row in rows],
            "targets": [asdict(each) | {"met": each.met} for each in verdicts],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    failed = any(row.error for row in rows) or any(verdict.met is False for verdict in verdicts)
    return int(failed or bool(missing))


def interpreters(options: argparse.Namespace) -> tuple[dict[str, Path], list[str]]:
    """Who runs each tool, and a line for each peer that cannot be run."""
    pythons = dict.fromkeys(OURS, Path(sys.executable))
    missing = []
    for name in peers.PEERS if options.peers else ():
        try:
            pythons[name] = peers.environment(name)
        except peers.PeerUnavailable as reason:
            missing.append(f"{name} was not measured: {reason}")
    return pythons, missing


def all_plans(options: argparse.Namespace) -> list[Plan]:
    """Ours first, then the peers; tensors are measured less often, because they take long and vary little."""
    plans = []
    for tool, levels in OFFERS.items():
        for level in levels:
            for keep in KEEPS:
                if not options.quick or (tool, level, keep) in QUICK:
                    plans.append(Plan(tool, level, keep, _rounds(options, tool, level, keep)))
    plans.append(
        Plan(
            "stopped",
            "api",
            "statistics",
            options.rounds or (15 if options.framework == "mindspore" else 40),
            inside=True,
        )
    )
    return [plan for plan in plans if _wanted(plan, options.only)]


def _rounds(options: argparse.Namespace, tool: str, level: str, keep: str) -> int:
    if options.rounds:
        return int(options.rounds)
    if tool == "troubleshooter":
        return 3  # each of its steps takes longer than the one before: more rounds would only make it look worse
    if keep == "tensor":
        return 2 if _few(options) else 4
    if level == "api":
        return 16 if _few(options) else 24  # where the limits are closest, and growth is watched
    return 4 if _few(options) else 8


def _few(options: argparse.Namespace) -> bool:
    """In MindSpore a worker alone takes as long to start as torch needs for ten rounds."""
    return bool(options.quick or options.framework == "mindspore")


def _wanted(plan: Plan, only: list[str]) -> bool:
    name = f"{plan.tool}:{plan.level}:{plan.keep}:"
    return not only or any(name.startswith(each.rstrip(":") + ":") for each in only)


def run(plans: Sequence[Plan], pythons: dict[str, Path], options: argparse.Namespace) -> list[Row]:
    """Measure every plan against one bare worker that lives as long as the run. All files are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="twintrace-benchmark-", dir=options.dir))
    rows = []
    try:
        with worker(Path(sys.executable), folder / "bare", options.size, framework=options.framework) as bare:
            for model in MODELS * 2:
                bare.ask("bare", model)
            for number, together in enumerate(in_groups(plans)):
                rows += _in_turns(together, bare, pythons, folder / str(number), options)
            rows.sort(key=lambda row: [plan.key for plan in plans].index(row.key))
            rows.insert(0, _bare_row(bare))
            seconds = {model: min(bare.seconds("bare", model).wall for _ in range(3)) for model in MODELS}
            say("a bare step: " + ", ".join(f"{model} {1000 * each:.0f} ms" for model, each in seconds.items()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def in_groups(plans: Iterable[Plan]) -> list[list[Plan]]:
    """What is compared with each other: the same level, with tensors or without."""
    groups: dict[object, list[Plan]] = {}
    for plan in plans:
        groups.setdefault((plan.level, plan.keep == "tensor", plan.inside), []).append(plan)
    return list(groups.values())


def _in_turns(
    plans: Sequence[Plan], bare: Process, pythons: dict[str, Path], folder: Path, options: argparse.Namespace
) -> list[Row]:
    with ExitStack() as workers:
        tasks = []
        for number, plan in enumerate(plans):
            place = folder / str(number)
            tool = workers.enter_context(worker(pythons[plan.tool], place, options.size, plan, options.framework))
            tasks.append(measure(plan, bare, tool))
        rows = in_turns(tasks)
    shutil.rmtree(folder, ignore_errors=True)
    for plan, row in zip(plans, rows, strict=True):
        say(f"  {plan}: {row.error or f'{row.both:.2f}'}")
    return rows


def _bare_row(bare: Process) -> Row:
    peak_mb = bare.ask("finish")["peak_mb"]
    return Row("bare", "", "", both=1, low=1, high=1, transformer=1, cnn=1, cpu=1, first=1, peak_mb=peak_mb)


def costs_table(rows: Iterable[Row]) -> str:
    """Ratios to the bare step."""
    heads = ("tool", "level", "keep", "both", "low-high", "transformer", "cnn", "cpu", "first",
             "extra", "close ms", "MB/step", "files/steps", "calls", "peak MB")  # fmt: skip
    return layout([heads, *(_cells(row) for row in rows)])


def _cells(row: Row) -> tuple[str, ...]:
    if row.error:
        return row.tool, row.level, row.keep, f"failed: {row.error}"
    return (
        *row.key,
        f"{row.both:.2f}",
        f"{row.low:.2f}-{row.high:.2f}",
        f"{row.transformer:.2f}",
        f"{row.cnn:.2f}",
        f"{row.cpu:.2f}",
        f"{row.first:.2f}",
        f"{row.extra:.2f}",
        f"{1000 * row.close_s:.0f}",
        f"{row.bytes_per_step / 1e6:.2f}",
        f"{row.files}/{row.steps}",
        "-" if row.calls is None else str(row.calls),
        f"{row.peak_mb:.0f}",
    )


def targets_table(verdicts: Iterable[Verdict]) -> str:
    heads = ("target", "found", "wanted", "")
    return layout(
        [heads]
        + [
            (each.target, "-" if each.found is None else f"{each.found:.3f}", f"<= {each.wanted:.3f}", each.word)
            for each in verdicts
        ]
    )


def layout(lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last cell of a line may hang over."""
    columns = max(len(line) for line in lines)
    widths = [max((len(line[at]) for line in lines if at < len(line) - 1), default=0) for at in range(columns)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines
    )


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description="What recording costs.")
    parser.add_argument("--quick", action="store_true", help="only what the targets need, fewer rounds")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="ours alone; builds no environment")
    parser.add_argument("--only", action="append", default=[], metavar="TOOL[:LEVEL[:KEEP]]", help="may be repeated")
    parser.add_argument("--rounds", type=int, help="rounds of every configuration, whatever it is")
    parser.add_argument("--size", choices=("full", "tiny"), default="full", help="tiny: to try the benchmark itself")
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch", help="whose models; default: torch")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to be written to; default: the temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
