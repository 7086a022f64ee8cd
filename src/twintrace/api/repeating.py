"""Does a script repeat itself? It is run twice, and the two records are compared bit by bit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..collect.scripts import record_twice
from ..collect.selfcheck import Run, choose
from ..model.errors import TraceError, UsageError
from ..model.records import Level
from ..model.repetition import FirstDifference, Repetition, Unsteadiness
from ..model.words import LevelName
from ..store.registry import open_trace


def run_twice(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    level: LevelName | None = None,
    seed: int | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Repetition:
    """Run a script twice, each time in a process of its own, and name the first call in which the two runs differ.

    Args:
        script: a Python file. If it calls `tt.record`, its own selection is recorded; otherwise the whole script is, at level api.
        arguments: its arguments.
        level: record at this level, whatever the script says.
        seed: seed Python, numpy and the framework before each run, and PYTHONHASHSEED: shows the remaining differences.
        keep: a folder for the two traces; without it they are removed.

    Returns:
        The first difference and its cause, or that there is none.

    Raises:
        UsageError: there is no such script, or it imports no framework that can be recorded.
        SessionError: a run ended before it could be compared.
    """
    if level is not None:
        choose(Level, "level", level)
    if keep is not None and any((Path(keep) / name).exists() for name in ("first", "second")):
        raise UsageError(f"{keep}: has a `first` or `second` already. Give another folder.")
    with tempfile.TemporaryDirectory(prefix="twintrace-twice-") as directory:
        folder = Path(directory) if keep is None else Path(keep).absolute()
        runs = record_twice(os.fspath(script), arguments, folder, level=level, seed=seed)
        return _compared(os.fspath(script), folder, runs)


def _compared(script: str, folder: Path, runs: tuple[Run, Run]) -> Repetition:
    from ..diagnose.repetition import first_difference

    names = [sorted(item.name for item in (folder / side).iterdir() if item.is_dir()) for side in ("first", "second")]
    calls = compared = untold = 0
    first: FirstDifference | None = None
    for name in names[0] if names[0] == names[1] else sorted({*names[0]} & {*names[1]}):
        try:
            left, right = (open_trace(folder / side / name, tolerant=True) for side in ("first", "second"))
        except TraceError:
            continue
        difference, count = first_difference(left, right)
        calls, compared, untold = calls + count.calls, compared + count.values, untold + count.untold
        if difference is not None:
            first = difference
            break
    raised = runs[0].raised or runs[1].raised
    if first is None and runs[0].raised != runs[1].raised:
        what = f"one run ends with {runs[0].raised or 'no error'}, the other with {runs[1].raised or 'no error'}"
        first = FirstDifference(0, 0, Unsteadiness.OUTSIDE, what, "every recorded value is the same", "")
    differing = sorted(
        k for k in runs[0].values.keys() | runs[1].values.keys() if runs[0].values.get(k) != runs[1].values.get(k)
    )
    if first is None and differing:
        name = differing[0].removeprefix("result.")
        what = f"{len(differing)} of {len(runs[0].values)} variables differ at the end (first: {name})"
        why = "every recorded value is the same: it was made by code that was not recorded"
        first = FirstDifference(
            0, 0, Unsteadiness.OUTSIDE, what, why, "record with level='op', or look at what makes it"
        )
    remarks = (f"{untold:,} values could not be compared: they could not be read.",) if untold else ()
    return Repetition(script, first, calls, compared or (1 if first else 0), raised, remarks)
