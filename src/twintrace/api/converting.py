"""A copy of a trace in another layout: own traces for other tools, other tools' dumps for this one.

convert_trace("runs/a", "dump", to="msprobe")       a dump for msprobe
convert_trace("dump", "runs/a")                     a trace of our own

The copy is there when it is complete, and not at all if it could not be made: it is written beside its place, under another name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from pathlib import Path

from ..model.choices import Progress
from ..model.errors import TraceError, TraceExistsError, TraceWriteError, UsageError
from ..model.records import Call
from ..model.sites import Kind, Phase
from ..model.words import counted
from ..store.manifests import remove_trace, trace_entries
from ..store.registry import exporters, open_trace, write_trace
from ..store.trace import Trace
from .traces import Trace as OpenedTrace
from .traces import as_trace


def convert_trace(
    source: Trace | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str = "twintrace",
    force: bool = False,
    progress: Progress | None = None,
) -> OpenedTrace:
    """Write a copy of a trace in another layout, and open it.

        tt.convert_trace("runs/a", "dump", to="msprobe")

    Damaged parts of `source` are left out, and told: as notes in a trace of our own, as `missing` of a tensor.

    Args:
        source: a trace, or the path of one: our own, or a dump in any layout that is known (`twintrace doctor` lists them).
        target: where the copy goes.
        to: the layout to write: "twintrace", "torch_npu", "msprobe", "troubleshooter".
        force: overwrite a file, or a trace of our own, that is at `target` already, once the copy is complete. A folder that
            is no trace of ours, or has something else in it, is never overwritten.
        progress: called with (task, calls done, calls in all).

    Returns:
        The copy, opened.

    Raises:
        UsageError: a layout that is not known or cannot be written.
        TraceExistsError: a target that must not be overwritten.
        TraceNotFoundError: `source` is not there, or no trace.
    """
    if to not in exporters():
        raise UsageError(f"to={to!r}: expected a layout that can be written, {', '.join(exporters())}.")
    place = Path(target)
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        if not force:
            raise TraceExistsError(
                f"{place} is there already. Choose another path, or overwrite it with --force (in Python force=True)."
            )
        if place.is_dir() and not trace_entries(place):
            raise TraceExistsError(f"{place} is a folder that is no trace of twintrace's. Remove it yourself.")
    trace = open_trace(source, tolerant=True)
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        write_trace(trace, draft, to, tell=progress)
        if place.is_dir():
            remove_trace(place)
            place.rmdir()  # it is empty; a file could not take its place
        draft.rename(place)
    except OSError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceWriteError(
            f"{place} could not be written ({error.strerror}). Nothing of it is left behind."
        ) from error
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
    return as_trace(open_trace(place, tolerant=True))


def conversion_line(trace: Trace) -> str:
    """One line that says where the copy is and how much it holds."""
    parts = ((len(trace.steps), "step"), (len(trace.ranks), "rank"), (len(trace), "call"))
    counts = ", ".join(counted(count, noun) for count, noun in parts)
    return f"written: {trace.path} ({trace.layout}): {counts}"


def not_carried(source: Trace, made: Trace) -> list[str]:
    """Kinds of calls that a copy in another layout has fewer of: that layout has no place for them."""
    if made.layout == source.layout:
        return []
    before, after = (Counter(_kind_of(call) for call in trace.calls()) for trace in (source, made))
    lost = {kind: before[kind] - after[kind] for kind in before if after[kind] < before[kind]}
    return [f"{counted(count, 'call')} of {kind}" for kind, count in sorted(lost.items())]


def _kind_of(call: Call) -> str:
    site = call.site
    if site.phase is Phase.UPDATE:
        return "the update (optimizers' steps)"
    if site.phase is Phase.RECOMPUTE:
        return "a recomputation"
    if site.kind is Kind.MODULE:
        return "modules" if site.name else "the model itself"
    return {Kind.API: "functions", Kind.OP: "kernels", Kind.SAVE: "values that were saved by name"}[site.kind]


def damage_of(trace: Trace) -> list[str]:
    """Unreadable parts of a trace that was opened with `tolerant=True`, as far as it was looked at."""
    return [str(damage) for journal in trace.journals() for damage in journal.damage]
