"""Reports and traces for this machine's browser.

view("report.json")                       a Server of the page that `write_html` writes, with the tensors of all rows
view("runs/a")                            a Server of one trace: its calls, statistics, and tensors when asked for
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..measure.pictures import picture
from ..model.errors import TraceError, TraceNotFoundError, UsageError
from ..model.pairs import Side
from ..model.results import Recording
from ..report.comparison_sheet import comparison_sheet
from ..report.document import read_json
from ..report.page import is_page, served
from ..report.server import Server
from ..report.sheets import Sheet
from ..report.sheets import picture as picture_sheet
from ..report.trace_sheet import Journal, trace_sheet
from ..store.arrays import as_float
from ..store.registry import open_trace
from .diagnosing import CURVED, curves_of, paired_curves

if TYPE_CHECKING:
    from ..store.trace import Trace


REMARKS = 20
"""Before the reader comes to the ribbon."""


def view(path: str | os.PathLike[str], *, port: int = 0) -> Server:
    """A server of a report (JSON or HTML) or of a trace, for this machine's browser. Use it with `with`; `serve` answers."""
    where = Path(path)
    if where.is_file():
        if where.suffix.lower() not in (".html", ".htm"):
            comparison = read_json(where)
            sides = {"left": comparison.left.path, "right": comparison.right.path}
            traces = {side: trace for side, name in sides.items() if (trace := _find_trace(name, where.parent))}
            curves = paired_curves(traces["left"], traces["right"]) if len(traces) == 2 else []
            sheet = comparison_sheet(comparison, values=bool(traces), curves=curves)
            return Server(served(sheet, _values(traces, sides)), port=port)
        page = where.read_bytes()
        if not is_page(page):
            raise UsageError(f"{where}: expected a report that twintrace wrote, or a trace, got another page.")
        return Server(lambda name: None if name else ("text/html", lambda _: page), port=port)
    trace = open_trace(where, tolerant=True)
    return Server(served(trace_page_sheet(trace), _values({"left": trace}, {"left": trace.path})), port=port)


def _find_trace(name: str, beside: Path) -> Trace | None:
    """The trace of a report: where it was, or where it is if report and traces were moved together."""
    for place in (Path(name), beside / name, beside / Path(name).name):
        try:
            return open_trace(place, tolerant=True)
        except (TraceError, ValueError):  # ValueError: a name that no file can have
            continue
    return None


def sheet_journals(trace: Trace) -> Iterator[Journal]:
    """The journals of a trace, as the press takes them."""
    for step, rank in trace.places:
        journal = trace.journal(step, rank)
        side = Side(trace.framework, list(journal.calls()), journal.tensor, list(journal.parameter_gradients()))
        yield Journal(step, rank, side)


def trace_page_sheet(trace: Trace) -> Sheet:
    """A trace for the page: its calls, and remarks."""
    remarks: list[str] = []
    journals = list(sheet_journals(trace))
    calls = sum(len(journal.side.calls) for journal in journals)
    for step, rank in trace.places:
        opened = trace.journal(step, rank)
        remarks += [f"{note.topic}: {note.text}" for note in opened.notes()]
        if not opened.complete:
            remarks.append(
                f"Step {step}, rank {rank}: the process ended before the step was closed; what it wrote is here."
            )
        remarks += [str(item) for item in opened.damage]
    recording = Recording(trace.path, trace.framework, trace.layout, trace.steps, trace.ranks, calls)
    told = list(dict.fromkeys(remarks))
    more = [f"And {len(told) - REMARKS} more remarks: twintrace show has them."] if len(told) > REMARKS else []
    steps = [step for step, rank in trace.places if rank == min(trace.ranks)]
    curves = curves_of(trace, steps=steps).curves if 1 < len(steps) <= CURVED else ()
    return trace_sheet(recording, journals, [*told[:REMARKS], *more], curves)


def _values(traces: Mapping[str, Trace], paths: Mapping[str, str]) -> Callable[[Mapping[str, str]], object]:
    """Finds the tensor that a query names: side, step, rank, id."""

    def find(query: Mapping[str, str]) -> object:
        side = query.get("side", "left")
        try:
            step, rank, identity = (int(query[name]) for name in ("step", "rank", "id"))
        except (KeyError, ValueError):
            raise UsageError("tensor: expected side, step, rank and id.") from None
        trace = traces.get(side)
        if trace is None:
            raise TraceNotFoundError(f"{paths.get(side, side)}: the trace is not there, so its values cannot be shown.")
        journal = trace.journal(step, rank)
        tensor = journal.tensor(identity)
        if tensor.payload is None:
            why = tensor.missing or "the trace was recorded without keep='tensor'"
            raise TraceNotFoundError(f"{tensor.spec}: its values were not kept: {why}.")
        dtype = tensor.spec.dtype
        return picture_sheet(tensor.spec, picture(journal.array(tensor), lambda block: as_float(block, dtype)))

    return find
