"""The process that does the work that is measured (nets_torch.py, nets_mindspore.py).

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
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks.sizes import NAMES
from benchmarks.tools import TOOLS, Tool

FRAMEWORKS = ("torch", "mindspore")


class Training(Protocol):
    """One model in training."""

    net: Any

    def step(self) -> None: ...


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


def leave_own_folder() -> None:
    """A script that is started by its path has its own folder first: `import msprobe` would then find benchmarks/msprobe.py."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]


def main() -> None:
    leave_own_folder()
    options = _options()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # tools talk on stdout; the answers have a way of their own
    nets = import_module(f"benchmarks.nets_{options.framework}")
    nets.prepare()
    work = nets.trainings(options.size)
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
    parser.add_argument("--size", choices=NAMES, default="full")
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch")
    parser.add_argument("--tool", choices=TOOLS, help="without it the worker does bare steps only")
    parser.add_argument("--level", default="api")
    parser.add_argument("--keep", default="statistics")
    return parser.parse_args()


if __name__ == "__main__":
    main()
