"""What one configuration costs, measured in turns.

    bare worker       ▁▁▁        ▁▁▁ ▁▁▁        ▁▁▁ ▁▁▁        ▁▁▁       never imports a tool
    ours                  ▇▇▇▇▇                         ▇▇▇▇▇            the tool is installed before its first turn
    a peer                               ▇▇▇▇▇
                                         time ──▶

Each recorded step is divided by the mean of the bare steps before and after it; a row shows the median over the
rounds. So a machine that slows down for a minute slows both sides of the quotient. What is compared with each other, ours and
the peer's, takes turns as well: a machine that is slow for memory and quick for the rest would otherwise be slow for one of them.

The two sides sit in two processes because the peers cannot be taken out again: msprobe and TroubleShooter leave their
wrappers on torch after `stop`, and a "bare" step in their process would be neither bare nor recorded. What holds for
them holds for us. One exception: `inside` plans take the bare step in the tool's own process, with the tool constructed
anew for every round. So "installed but stopped" is measured, where one percent matters and two processes differ by two.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple, TypeAlias, TypeVar

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("transformer", "cnn")
T = TypeVar("T")
GROWTH_ROUNDS = 9  # thirds of fewer rounds say nothing


class WorkerFailed(RuntimeError):
    """A worker answered with an error, or ended."""


@dataclass(frozen=True)
class Plan:
    """One configuration and how often it is measured."""

    tool: str
    level: str
    keep: str
    rounds: int
    inside: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tool, self.level, self.keep

    def __str__(self) -> str:
        return " ".join(self.key)


class Seconds(NamedTuple):
    wall: float
    cpu: float


@dataclass(frozen=True)
class Round:
    """One recorded step of each model, and the bare steps around it."""

    bare: dict[str, Seconds]
    recorded: dict[str, Seconds]

    def ratio(self, models: tuple[str, ...] = MODELS, clock: str = "wall") -> float:
        recorded: float = sum(getattr(self.recorded[model], clock) for model in models)
        bare: float = sum(getattr(self.bare[model], clock) for model in models)
        return recorded / bare


@dataclass(frozen=True)
class Row:
    """What is told about one configuration. Ratios are to the bare step; `both` is the two models' steps together.

    `extra` is what recording adds to a bare step of both, its share of `close` included: the targets are about this.
    """

    tool: str
    level: str
    keep: str
    steps: int = 0
    both: float = 0.0
    low: float = 0.0
    high: float = 0.0
    transformer: float = 0.0
    cnn: float = 0.0
    cpu: float = 0.0
    first: float = 0.0
    growth: float | None = None
    close_s: float = 0.0
    extra: float = 0.0
    bytes_per_step: float = 0.0
    files: int = 0
    calls: int | None = None
    peak_mb: float = 0.0
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tool, self.level, self.keep


@dataclass
class Process:
    """A worker as the parent sees it: `ask` and wait for the answer."""

    handle: subprocess.Popen[str]
    log: Path
    folder: Path

    def ask(self, do: str, model: str | None = None) -> dict[str, Any]:
        assert self.handle.stdin
        assert self.handle.stdout
        command = {"do": do} | ({"model": model} if model else {})
        try:
            self.handle.stdin.write(json.dumps(command) + "\n")
            self.handle.stdin.flush()
        except BrokenPipeError:
            pass  # it ended: the empty line below says so, and the log says why
        line = self.handle.stdout.readline()
        if not line:
            raise WorkerFailed(f"the worker ended with {self.handle.wait()}: {self.last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerFailed(reply["error"])
        return reply

    def seconds(self, do: str, model: str | None = None) -> Seconds:
        reply = self.ask(do, model)
        return Seconds(reply["wall"], reply["cpu"])

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"


@contextmanager
def worker(
    python: Path, folder: Path, size: str, plan: Plan | None = None, framework: str = "torch"
) -> Iterator[Process]:
    """A worker process that writes below `folder`; without a plan it does bare steps only."""
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    output = folder / "output"
    # By its path, not with -m: TroubleShooter dies on the stack frames of runpy, which have no source.
    command = [str(python), str(Path(__file__).with_name("work.py")), "--size", size, "--folder", str(output)]
    command += ["--framework", framework]
    if plan:
        command += ["--tool", plan.tool, "--level", plan.level, "--keep", plan.keep]
    with log.open("w", encoding="utf-8") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=surroundings()
    ) as handle:  # fmt: skip
        try:
            yield Process(handle, log, output)
        finally:
            assert handle.stdin
            handle.stdin.close()  # the worker's loop ends with its input
            try:
                handle.wait(timeout=30)
            except subprocess.TimeoutExpired:
                handle.kill()


def surroundings() -> dict[str, str]:
    """The environment of every worker: one thread, one instruction set, and the package from this checkout."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "GLOG_v": "3",  # MindSpore warns of every other thing
        "MKL_NUM_THREADS": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    }


Turns: TypeAlias = "Generator[None, None, T]"
"""Something that stops after each of its turns, and has a result in the end."""


def in_turns(tasks: Iterable[Turns[T]]) -> list[T]:
    """A turn of each, again and again until all have ended; their results."""
    waiting, results = dict(enumerate(tasks)), {}
    while waiting:
        for number, task in list(waiting.items()):
            try:
                next(task)
            except StopIteration as end:
                results[number] = end.value
                del waiting[number]
    return [results[number] for number in sorted(results)]


def measure(plan: Plan, bare: Process, tool: Process) -> Turns[Row]:
    """Run the plan's rounds, a turn each, and sum them up. A tool that fails has a row that says so."""
    try:
        for model in MODELS:
            tool.ask("bare", model)  # the framework's own first-time costs are not the tool's
        if plan.inside:
            first, close = None, Seconds(0.0, 0.0)
            rounds = yield from _rounds_inside(tool, plan.rounds)
        else:
            tool.ask("open")
            first, *rounds = yield from _rounds_apart(bare, tool, plan.rounds + 1)
            close = tool.seconds("close")
        return _sum_up(plan, first, rounds, close, tool.ask("finish"))
    except WorkerFailed as failure:
        return Row(plan.tool, plan.level, plan.keep, error=str(failure))


def _rounds_apart(bare: Process, tool: Process, count: int) -> Turns[list[Round]]:
    rounds = []
    for _ in range(count):
        recorded, around = {}, {}
        for model in MODELS:
            before = bare.seconds("bare", model)
            recorded[model] = tool.seconds("recorded", model)
            around[model] = _mean(before, bare.seconds("bare", model))
        rounds.append(Round(around, recorded))
        yield
    return rounds


def _rounds_inside(tool: Process, count: int) -> Turns[list[Round]]:
    rounds = []
    for _ in range(count):
        before = {model: tool.seconds("bare", model) for model in MODELS}
        tool.ask("open")
        recorded = {model: tool.seconds("recorded", model) for model in MODELS}
        tool.ask("close")
        after = {model: tool.seconds("bare", model) for model in MODELS}
        rounds.append(Round({model: _mean(before[model], after[model]) for model in MODELS}, recorded))
        yield
    return rounds


def _mean(one: Seconds, other: Seconds) -> Seconds:
    return Seconds(mean((one.wall, other.wall)), mean((one.cpu, other.cpu)))


def _sum_up(plan: Plan, first: Round | None, rounds: list[Round], close: Seconds, end: dict[str, Any]) -> Row:
    ratios = [each.ratio() for each in rounds]
    steps = len(rounds) + (first is not None)
    bare = median(sum(each.bare[model].wall for model in MODELS) for each in rounds)
    extra = median(ratios) - 1 + close.wall / steps / bare
    return Row(
        plan.tool,
        plan.level,
        plan.keep,
        steps=steps,
        both=median(ratios),
        low=min(ratios),
        high=max(ratios),
        transformer=median(each.ratio(("transformer",)) for each in rounds),
        cnn=median(each.ratio(("cnn",)) for each in rounds),
        cpu=median(each.ratio(clock="cpu") for each in rounds),
        first=first.ratio() if first else 0.0,
        growth=_growth(ratios),
        close_s=close.wall,
        extra=extra,
        bytes_per_step=end["bytes"] / steps,
        files=end["files"],
        calls=end["calls"],
        peak_mb=end["peak_mb"],
    )


def _growth(ratios: list[float]) -> float | None:
    """What the last third of the steps cost, measured in what the first third cost."""
    third = len(ratios) // 3
    if len(ratios) < GROWTH_ROUNDS:
        return None
    return median(ratios[-third:]) / median(ratios[:third])
