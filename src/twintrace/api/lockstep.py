"""A run beside the trace of another: what `record(against=…)` compares with, and the judge at the end of a step."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ..collect.lockstep import Lockstep
from ..model.errors import UsageError
from ..model.records import Keep, Level
from ..store.registry import open_trace
from ..store.trace import Trace


def lockstep_with(
    against: Trace | str | os.PathLike[str], path: Path, *, framework: str, level: Level, keep: Keep, on_difference: str
) -> Lockstep:
    """The other run's trace, for a recorder of this framework, level and keep that writes to `path`.

    Raises:
        UsageError: the two would not be recorded alike, or have no fingerprints.
        TraceNotFoundError: there is no such trace.
    """
    if on_difference not in ("stop", "raise"):
        raise UsageError(f"on_difference: expected 'stop' or 'raise', got {on_difference!r}.")
    other = open_trace(against, tolerant=True)
    if Path(other.path).absolute() == path:
        raise UsageError(f"against: {other.path} is what is being recorded. Give the trace of the other run.")
    settings = other.manifest.get("settings", {})
    for name, there, here in (
        ("framework", other.framework, framework),
        ("level", settings.get("level"), level.value),
    ):
        if there != here:
            raise UsageError(
                f"against: {other.path} was recorded with {name} {there}, and this run with {here}. Calls are compared one by one, "
                f"so both must be recorded alike; tt.compare lays any two traces side by side afterwards."
            )
    if other.layout != "twintrace" or Keep.STATISTICS in (settings.get("keep"), keep.value):
        raise UsageError(
            f"against: runs are compared by fingerprint, and {other.path} or this run has none. "
            f"Record both with keep='fingerprint' or keep='tensor'."
        )
    return Lockstep(other, functools.partial(_judge_step, other), raises=on_difference == "raise")


def _judge_step(left: Trace, path: Path, step: int, rank: int) -> str:
    from ..diagnose.repetition import difference_in_step

    right = open_trace(path, tolerant=True)
    difference = difference_in_step(left, right, (step, rank))
    if difference is None:
        return ""
    where = "" if difference.call is None else f", {difference.call.site}"
    line = difference.call.stack[0] if difference.call is not None and difference.call.stack else None
    place = f" ({line.place})" if line else ""
    way = ", backward" if difference.backward else ""
    return f"step {step}{where}{way}{place} is the first that differs from {left.path}: {difference.what}"
