"""`msprobe.mindspore`: what scripts for MindSpore and MSAdapter import.

from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all

Where `torch` is MSAdapter it is MSAdapter that is recorded, otherwise MindSpore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from . import debugger
from .callbacks import init_step_class, step_class
from .compare import compare, compare_distributed
from .saving import save, save_grad, step
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


def __getattr__(name: str) -> Any:
    made = {"MsprobeStep": step_class, "MsprobeInitStep": init_step_class}.get(name)
    return made() if made is not None else refuse("mindspore", name)
