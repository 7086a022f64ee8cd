"""`msprobe.mindspore`: what scripts for MindSpore and MSAdapter import.

from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all

Where `torch` is MSAdapter it is MSAdapter that is recorded, otherwise MindSpore.
"""

from __future__ import annotations

from typing import ClassVar

from ... import api
from . import debugger

__all__ = ["PrecisionDebugger", "seed_all"]


class PrecisionDebugger(debugger.PrecisionDebugger):
    """Records what a network of MindSpore, or MSAdapter, computes into msprobe's files."""

    _frameworks: ClassVar[tuple[str, ...]] = ("msadapter", "mindspore")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed Python, numpy, MindSpore and MSAdapter; `mode` asks for deterministic kernels, `rm_dropout` takes dropout out."""
    api.seed_all(seed, deterministic=mode, disable_dropout=rm_dropout, frameworks=("mindspore",))
