"""`msprobe.mindspore`: what scripts for MindSpore and MSAdapter import.

from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all

Where `torch` is MSAdapter it is MSAdapter that is recorded, otherwise MindSpore.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from ... import api
from ..troubleshooter import saving
from . import debugger
from .compare import compare, compare_distributed
from .stand_in import refuse

if TYPE_CHECKING:  # made when they are asked for
    MsprobeInitStep: type
    MsprobeStep: type

__all__ = [
    "MsprobeInitStep",
    "MsprobeStep",
    "PrecisionDebugger",
    "compare",
    "compare_distributed",
    "save",
    "save_grad",
    "seed_all",
    "step",
]

# Makes this a package for `import`, which then asks for a missing name in a way that lets it be explained.
__path__: list[str] = []


class PrecisionDebugger(debugger.PrecisionDebugger):
    """Records what a network of MindSpore, or MSAdapter, computes into msprobe's files."""

    _frameworks: ClassVar[tuple[str, ...]] = ("msadapter", "mindspore")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy, MindSpore and MSAdapter; `mode` asks for deterministic kernels, `rm_dropout` takes dropout out."""
    debugger.seed_all(seed, mode=mode, rm_dropout=rm_dropout, framework="mindspore")


# --- values out of a network, also one that MindSpore compiles: the files are TroubleShooter's ------------------------


# MindSpore compiles both: they are in words that its compiler knows.
def save(save_dir: str, name: str, data: Any) -> None:
    """Write a tensor, or each tensor of a nested list, tuple or dict, to a file of its own."""
    return saving.save(save_dir + "/{step}/{rank}/" + name, data)


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """The tensor to go on with; when a backward pass comes by, its gradient is written."""
    return saving.save_grad(save_dir + "/{step}/{rank}/" + name, data, "grad")


def step() -> None:
    """The step is over: what is saved from here on goes to the folder of the next."""
    saving.next_step()


# --- callbacks of Model.train: of MindSpore's own class, so they are made when they are asked for -----------------------


@functools.cache
def _callbacks() -> dict[str, type]:
    base: Any = api.callback_class()

    class MsprobeStep(base):  # type: ignore[misc]  # a class that is known when it runs
        """Records each step of a training: `debugger` is started before it, and told of its end."""

        def __init__(self, debugger: Any) -> None:
            super().__init__()
            self.debugger = debugger

        def on_train_step_begin(self, run_context: Any) -> None:
            self.debugger.start()

        def on_train_step_end(self, run_context: Any) -> None:
            self.debugger.stop()
            self.debugger.step()

    class MsprobeInitStep(base):  # type: ignore[misc]
        """Counts steps on from where a training is taken up again."""

        def on_train_begin(self, run_context: Any) -> None:
            debugger.begin_at(int(run_context.original_args().cur_step_num))

    return {"MsprobeStep": MsprobeStep, "MsprobeInitStep": MsprobeInitStep}


def __getattr__(name: str) -> Any:
    return _callbacks()[name] if name in ("MsprobeStep", "MsprobeInitStep") else refuse("mindspore", name)
