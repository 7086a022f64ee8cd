"""A recorded run: opened, and as rows for people."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping

from ..model.errors import TraceNotFoundError
from ..model.listings import Listing, Row
from ..model.pairs import Part
from ..model.records import Call
from ..model.tensors import LARGEST, Tensor
from ..store.registry import open_trace
from ..store.trace import Journal
from ..store.trace import Trace as StoredTrace
from .traces import Trace, as_trace


def open(path: str | os.PathLike[str], *, tolerant: bool = False) -> Trace:
    """Open a trace, or a dump of another tool.

        trace = tt.open("runs/a")
        print(trace, trace.steps, trace.first)

    Args:
        path: its directory or, for some tools, its file.
        tolerant: skip damaged records and list them, instead of raising when one is reached.

    Returns:
        The trace. Nothing is read but its manifest; records are read when they are asked for.

    Raises:
        TraceNotFoundError: nothing is there, or no trace.
        TraceFormatError: a version that this release does not know, or a manifest that is damaged.
    """
    return as_trace(open_trace(path, tolerant=tolerant))


def listing(
    path: str | os.PathLike[str] | StoredTrace,
    *,
    step: int | None = None,
    rank: int | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    limit: int | None = None,
    nonfinite: bool = False,
) -> Listing:
    """A trace for people: one row for each call, indented by the modules around it. Of some steps or ranks, if these are given.

    nonfinite   only calls with NaN or infinities in their results or gradients
    """
    trace = open_trace(path, tolerant=True)
    steps = steps if step is None else (step,)
    ranks = ranks if rank is None else (rank,)
    for name, asked, there in (("step", steps, trace.steps), ("rank", ranks, trace.ranks)):
        for wanted in asked or ():
            if wanted not in there:
                raise TraceNotFoundError(
                    f"{trace.path} has no {name} {wanted}: it has {', '.join(map(str, there)) or 'none'}."
                )
    rows: list[Row] = []
    calls = tensors = 0
    notes: list[str] = []
    damage: list[str] = []
    for place in trace.places:
        if (steps is not None and place[0] not in steps) or (ranks is not None and place[1] not in ranks):
            continue
        journal = trace.journal(*place)
        calls_here = list(journal.calls()) if nonfinite or limit is None or len(rows) < limit else []
        made = _rows(journal, calls_here)
        if nonfinite:
            bad = ("NaN", "Inf")
            rows.extend(row for row in made if any(mark.removeprefix(_GRADIENT).startswith(bad) for mark in row.marks))
        else:  # no further than is shown: a row reads the values of a dump without statistics
            rows.extend(made if limit is None else itertools.islice(made, max(limit - len(rows), 0)))
        calls += len(journal)
        tensors += sum(1 for _ in journal.tensors())
        notes += [f"{note.topic}: {note.text}" for note in journal.notes()]
        if not journal.complete:
            damage.append(
                f"step {place[0]}, rank {place[1]}: the process ended before the step was closed; what it wrote is here"
            )
        damage += [str(item) for item in journal.damage]
    shown = tuple(rows if limit is None else rows[:limit])
    settings = trace.manifest.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    head = (trace.path, trace.layout, trace.framework, trace.steps, trace.ranks, settings, calls, tensors, shown)
    hidden = (len(rows) if nonfinite else calls) - len(shown)
    return Listing(*head, hidden, tuple(dict.fromkeys(notes)), tuple(damage))


def _rows(journal: Journal, calls: list[Call]) -> Iterator[Row]:
    """Calls in the order in which they began: a module before the calls inside it, although its line comes after."""
    depths: dict[int, int] = {}

    for call in sorted(calls, key=lambda call: call.id):  # a module has a lower number than what it calls
        depths[call.id] = depths.get(call.parent, -1) + 1 if call.parent is not None else 0
        site = call.site
        name = f"{site.name or '(model)'}#{site.call}" if site.call or site.kind != "module" else site.name or "(model)"
        frame = call.stack[0].place if call.stack else ""
        remark = call.raised or "; ".join(call.missing)
        phase = "" if site.phase == "forward" else f"{site.phase}/"
        held = (Part.PARAMETER, Part.BUFFER)  # not shown, and so not read
        tensors = [(part, journal.tensor(number)) for part, _, _, number in call.tensors() if part not in held]
        inputs = [tensor for part, tensor in tensors if part is Part.INPUT]
        outputs = [tensor for part, tensor in tensors if part in _RESULTS]
        marks = [
            f"{_GRADIENT if part.backward else ''}{text}"
            for part, tensor in tensors
            if part is not Part.INPUT
            for text in _oddities(tensor)
        ]
        place = (journal.header.step, journal.header.rank, depths[call.id], phase + name, str(site.kind), site.type)
        flow = (tuple(map(_spec, inputs)), tuple(map(_spec, outputs)), len(call.gradients))
        yield Row(*place, *flow, frame, remark, tuple(map(_range, outputs)), tuple(marks))


_RESULTS = (Part.OUTPUT, Part.AFTER)
_GRADIENT = "∂ "
"""Begins the mark of a gradient."""
_LARGEST = {dtype: LARGEST[dtype] for dtype in ("f16", "bf16", "f32", "f64")}
"""The largest finite number of each type that overflows by accident; those of eight bits and less are scaled to their ends."""
_END_OF_RANGE = 0.5
"""Of the largest number that a type has: one doubling more overflows."""


def _range(tensor: Tensor) -> str:
    """`-1.2 … 3.4, norm 5.6`; of a tensor with one element its value."""
    known = tensor.statistics
    if known is None or known.min is None or known.max is None:
        return ""
    if known.min == known.max:
        return f"all {known.min:.4g}" if math.prod(tensor.spec.shape) > 1 else f"{known.min:.6g}"
    norm = "" if known.norm is None else f", norm {known.norm:.4g}"
    return f"{known.min:.4g} … {known.max:.4g}{norm}"


def _oddities(tensor: Tensor) -> Iterator[str]:
    known, total = tensor.statistics, math.prod(tensor.spec.shape)
    if known is None:
        return
    if known.nan:
        yield f"NaN {known.nan} of {total}"
    if known.posinf or known.neginf:
        yield f"Inf {known.posinf + known.neginf} of {total}"
    largest = _LARGEST.get(tensor.spec.dtype)
    ends = [abs(end) for end in (known.min, known.max) if end is not None]
    if largest and ends and max(ends) > _END_OF_RANGE * largest:
        yield f"at the end of {tensor.spec.dtype}'s range"


def _spec(tensor: Tensor) -> str:
    return str(tensor.spec) + (
        " (missing)" if tensor.missing and tensor.payload is None and not tensor.statistics else ""
    )
