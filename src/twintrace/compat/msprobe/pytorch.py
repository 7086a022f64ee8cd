"""`msprobe.pytorch`: what scripts for PyTorch import.

from twintrace.compat.msprobe.pytorch import PrecisionDebugger, seed_all
"""

from __future__ import annotations

from typing import ClassVar, NoReturn

from . import debugger
from .compare import compare, compare_distributed
from .debugger import module_dump, module_dump_end
from .stand_in import refuse

__all__ = ["PrecisionDebugger", "compare", "compare_distributed", "module_dump", "module_dump_end", "seed_all"]

# Makes this a package for `import`, which then asks for a missing name in a way that lets it be explained.
__path__: list[str] = []


class PrecisionDebugger(debugger.PrecisionDebugger):
    """Records what a network of PyTorch computes into msprobe's files."""

    _frameworks: ClassVar[tuple[str, ...]] = ("torch",)


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy and PyTorch; `mode` asks for deterministic kernels, `rm_dropout` takes dropout out."""
    debugger.seed_all(seed, mode=mode, rm_dropout=rm_dropout, framework="torch")


def __getattr__(name: str) -> NoReturn:
    refuse("pytorch", name)
