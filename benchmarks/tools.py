"""Ours and the peers behind one small set of verbs, so that one loop runs them all.

    tool.open(nets)      construct, install          not timed
    tool.start(net)      ┐
      training step      │ one recorded step         timed as one
    tool.step()          │
    tool.stop()          ┘
    tool.close()         what was put off            timed apart, shared out over the steps

Levels and keeps have our names; each tool translates. A level that a tool does not have is not listed in `OFFERS`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeAlias

Net: TypeAlias = Any
"""A torch module or a MindSpore Cell."""


def is_cell(net: Net) -> bool:
    """Is this one of MindSpore's?"""
    return any(kind.__module__.startswith("mindspore.") for kind in type(net).__mro__)


class Tool(ABC):
    """Something that records a training step."""

    def __init__(self, folder: Path, level: str, keep: str) -> None:
        self.folder = folder
        self.level = level
        self.keep = keep

    @property
    def heavy(self) -> bool:
        """Whether whole tensors are written."""
        return self.keep == "tensor"

    @abstractmethod
    def open(self, nets: dict[str, Net]) -> None: ...

    @abstractmethod
    def start(self, net: Net) -> None: ...

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def finished(self) -> list[Path]:
        """Folders that the tool will neither read nor write again."""
        return []

    def calls(self) -> int | None:
        """Calls recorded in the last round (a step of each model), forward and backward; None where not told."""
        return None


class Twintrace(Tool):
    """Ours: a trace for each model."""

    def open(self, nets: dict[str, Net]) -> None:
        import twintrace

        self.names = list(nets)
        self.recorders = {
            id(net): twintrace.record(self.folder / name, net, level=self.level, keep=self.keep, overwrite=True)
            for name, net in nets.items()
        }

    def start(self, net: Net) -> None:
        self.current = self.recorders[id(net)]
        self.current.start()

    def step(self) -> None:
        self.current.step()

    def stop(self) -> None:
        self.current.stop()

    def close(self) -> None:
        for recorder in self.recorders.values():
            recorder.close()

    def calls(self) -> int | None:
        import twintrace

        traces = [twintrace.open(self.folder / name) for name in self.names]
        last = [call for trace in traces for call in trace.journal(trace.steps[-1]).calls()]
        return len(last) + sum(bool(call.gradients) for call in last)


class Stopped(Twintrace):
    """Ours, installed, started and stopped again: the steps that follow should cost what bare steps cost."""

    def open(self, nets: dict[str, Net]) -> None:
        super().open(nets)
        for recorder in self.recorders.values():
            recorder.start()
            recorder.stop()

    def start(self, net: Net) -> None:
        """Not started: that is the point."""

    def step(self) -> None:
        """No step was recorded."""

    def stop(self) -> None:
        """Stopped since `open`."""

    def calls(self) -> int | None:
        return None


class Msprobe(Tool):
    """MindStudio-Probe. A singleton that takes its settings from a file; its wrappers stay after `stop`."""

    LEVELS = {"module": "L0", "api": "L1", "mix": "mix"}  # noqa: RUF012 - never written

    def open(self, nets: dict[str, Net]) -> None:
        if all(map(is_cell, nets.values())):
            _give_mindspore_a_norm()
            from msprobe.mindspore import PrecisionDebugger
        else:
            from msprobe.pytorch import PrecisionDebugger

        task = "tensor" if self.heavy else "statistics"
        details: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"]}
        if self.keep == "fingerprint":
            details["summary_mode"] = "md5"
        settings = {
            "task": task,
            "dump_path": str(self.folder),
            "rank": [],
            "step": [],
            "level": self.LEVELS[self.level],
            task: details,
        }
        config = self.folder.with_suffix(".json")
        config.write_text(json.dumps(settings), encoding="utf-8")
        self.debugger = PrecisionDebugger(config_path=str(config))
        self.seen: list[int] = []

    def start(self, net: Net) -> None:
        self.debugger.start(model=net)

    def step(self) -> None:
        self.debugger.stop()  # its own order: stop, then step
        self.debugger.step()

    def stop(self) -> None:
        """Done in `step`."""

    def close(self) -> None:
        """Everything was written in `step`."""

    def finished(self) -> list[Path]:
        steps = [path for path in self.folder.glob("step*") if any(path.iterdir())]
        for dump in self.folder.glob("step*/*/dump.json"):
            names = json.loads(dump.read_text(encoding="utf-8"))["data"]
            self.seen.append(sum("parameters_grad" not in name for name in names))
        return steps

    def calls(self) -> int | None:
        return sum(self.seen[-2:])


class TroubleShooter(Tool):
    """TroubleShooter's api_dump. Wraps torch for good at `api_dump_init`, so both models go in as one."""

    CATEGORIES = {"fingerprint": ["md5"], "statistics": ["max", "min", "l2norm"], "tensor": ["max", "min", "l2norm"]}  # noqa: RUF012

    def open(self, nets: dict[str, Net]) -> None:
        import troubleshooter

        if all(map(is_cell, nets.values())):
            from mindspore.nn import CellList as Together
        else:
            from torch.nn import ModuleList as Together

        self.verbs = troubleshooter.migrator
        self.verbs.api_dump_init(Together(list(nets.values())), output_path=str(self.folder), retain_backward=True)

    def start(self, net: Net) -> None:
        kind = "all" if self.heavy else "statistics"
        self.verbs.api_dump_start(dump_type=kind, statistic_category=self.CATEGORIES[self.keep])

    def step(self) -> None:
        """It knows no steps: all land in one list."""

    def stop(self) -> None:
        self.verbs.api_dump_stop()

    def close(self) -> None:
        """Everything was written at once."""

    def finished(self) -> list[Path]:
        return list(self.folder.glob("rank0/*_api_dump")) if self.heavy else []


def _give_mindspore_a_norm() -> None:
    """MindSpore has no kernel for `mint.norm` on CPU, and msprobe dies without it: the same by operators that are there."""
    from mindspore import mint, ops

    square, total, root = ops.Square(), ops.ReduceSum(), ops.Sqrt()
    mint.norm = lambda value, *_, **__: root(total(square(value)))


TOOLS: dict[str, type[Tool]] = {
    "twintrace": Twintrace,
    "stopped": Stopped,
    "msprobe": Msprobe,
    "troubleshooter": TroubleShooter,
}

KEEPS = ("statistics", "fingerprint", "tensor")

OFFERS: dict[str, tuple[str, ...]] = {
    "twintrace": ("module", "api", "mix", "op"),
    "msprobe": ("module", "api", "mix"),
    "troubleshooter": ("api",),
}
