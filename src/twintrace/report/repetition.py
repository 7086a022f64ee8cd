"""Verdict on a run that was made twice, as text."""

from __future__ import annotations

from ..model.repetition import Repetition
from .text import legible, single_place


def repetition_text(found: Repetition) -> str:
    """One sentence if the two runs are the same; otherwise the first call that differs, and why."""
    first = found.first
    lines = []
    if first is not None:
        when = "backward" if first.backward else "update" if _updates(found) else "forward"
        where = "" if first.call is None else f" at {single_place(first.call)}"
        rank = f", rank {first.rank}" if first.rank else ""
        lines = [
            f"{found.script} does not repeat itself: two runs differ first{where}, step {first.step}{rank}, {when}",
            "",
        ]
        if first.call is not None and first.call.stack:
            lines.append(f"  where   {first.call.stack[0]}")
        lines += [f"  what    {first.what}", f"  cause   {first.cause}: {first.why}"]
        lines += [f"  next    {first.advice}"] if first.advice else []
        lines += ["", f"  {found.compared:,} values were compared up to there, of {found.calls:,} calls."]
    elif not found.compared:
        lines = [f"{found.script}: could not be told: no call was recorded that has values."]
    else:
        lines = [
            f"{found.script} repeats itself: {found.compared:,} values of {found.calls:,} calls are the same, bit by bit."
        ]
    if found.raised:
        lines.append(f"  The script ended with {found.raised}")
    lines += [f"  {remark}" for remark in found.remarks]
    return "\n".join(legible(line) for line in lines)


def _updates(found: Repetition) -> bool:
    return found.first is not None and found.first.call is not None and found.first.call.site.phase == "update"
