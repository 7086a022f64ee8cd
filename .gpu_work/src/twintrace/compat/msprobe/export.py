"""Any trace as a dump of msprobe's: its journals replayed into the writer that recordings go through.

    dump/step0/rank/dump.json …        each rank of each step; with values if the trace has them

A dump has no place for the root module, the optimizer's step, buffers, configurations and devices: they are left out, as msprobe
leaves them out. SURFACE.md lists what an export and a reading of it keep.
"""

from __future__ import annotations

from pathlib import Path

from ...store.native import Tell, write_rank
from ...store.trace import Trace
from .config import Settings
from .writer import DumpWriter

_LEVELS = {"module": "L0", "api": "L1"}


def write(trace: Trace, path: Path, *, tell: Tell | None = None) -> None:
    """Write a dump: all steps of all ranks."""
    told = trace.manifest.get("settings")
    settings = told if isinstance(told, dict) else {}
    task = "tensor" if settings.get("keep") == "tensor" else "statistics"
    level = _LEVELS.get(str(settings.get("level")), "mix")
    for rank in trace.ranks:
        write_rank(DumpWriter(Settings(path, task, level), portable=True), trace, rank, tell=tell)
