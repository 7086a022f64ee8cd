"""`msprobe.mindspore`: what scripts for MindSpore and MSAdapter import.

from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all

Where `torch` is MSAdapter it is MSAdapter that is recorded, otherwise MindSpore.
"""

from __future__ import annotations

from typing import ClassVar

from . import debugger, seeds
from .compare import compare, compare_distributed

__all__ = ["PrecisionDebugger", "compare", "compare_distributed", "seed_all"]


class PrecisionDebugger(debugger.PrecisionDebugger):
    """Records what a network of MindSpore, or MSAdapter, computes into msprobe's files."""

    _frameworks: ClassVar[tuple[str, ...]] = ("msadapter", "mindspore")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy, MindSpore and MSAdapter; `mode` asks for deterministic kernels, `rm_dropout` takes dropout out."""
    seeds.seed_all(seed, mode=mode, rm_dropout=rm_dropout, framework="mindspore")
