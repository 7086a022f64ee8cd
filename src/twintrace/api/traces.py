"""A recorded run as Python holds it: the store's Trace, with reports as methods.

trace = tt.open("runs/a")
repr(trace)                        one line; reads names only
print(trace)                       its contents, and whether every value is finite: reads all records
trace.first, trace.guilty          where the first value that is not finite comes from
trace.worst(10)                    the calls whose results are nearest to the end of their type's range, or beyond it
trace.to_frame()                   a row for each tensor of each call; also to_html, to_json, to_csv, to_xlsx
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..model.nonfinite import NonfiniteReport, Origin
from ..model.records import Call
from ..model.tensors import LARGEST, Tensor
from ..store import trace as store
from .results import Written

if TYPE_CHECKING:
    from ..report.tables import Table


class Trace(Written, store.Trace):
    """A recorded run: `steps`, `ranks`, `journal(step, rank)`, `calls()`, and reports as methods."""

    def __str__(self) -> str:
        from ..report.findings import nonfinite_text

        calls = sum(len(journal) for journal in self.journals())
        return f"{self!r}, {calls} calls\n{nonfinite_text(self._nonfinite())}"

    def _repr_html_(self) -> str:
        from ..report import notebook
        from .viewing import sheet_journals

        return notebook.trace_html(str(self), sheet_journals(self), good=not self._nonfinite().code)

    @property
    def first(self) -> Origin | None:
        """The call that made the first value that is not finite, with its cause; None if there is none that counts."""
        return self._nonfinite().origin

    @property
    def guilty(self) -> tuple[Call, ...]:
        """The call of `first`, if a recorded call made it."""
        origin = self.first
        return () if origin is None or origin.call is None else (origin.call,)

    def worst(self, count: int = 10) -> tuple[Call, ...]:
        """The `count` calls with the most values that are not finite in their results, then those nearest to the end of their
        type's range.
        """
        return tuple(call for *_, call in heapq.nlargest(count, self._strained(), key=lambda item: item[:2]))

    def _strained(self) -> Iterator[tuple[int, float, Call]]:
        for journal in self.journals():
            for call in journal.calls():
                results = map(journal.tensor, call.returned.values())
                yield *max(map(_strain, results), default=(0, 0.0)), call

    def _nonfinite(self) -> NonfiniteReport:
        from . import diagnosing

        return diagnosing.first_nonfinite(self)

    def _table(self) -> Table:
        from ..report.trace_sheet import trace_table
        from .viewing import sheet_journals

        return trace_table(sheet_journals(self))

    def _document(self) -> Iterable[str]:
        from ..report.tree import listing_json
        from .opening import listing

        return [listing_json(listing(self))]

    def _page(self) -> Iterable[str]:
        from ..report.page import page_text
        from .viewing import trace_page_sheet

        return [page_text(trace_page_sheet(self))[0]]


def _strain(tensor: Tensor) -> tuple[int, float]:
    """Number of values that are not finite, and the largest magnitude as a share of the type's largest number."""
    known = tensor.statistics
    if known is None:
        return 0, 0.0
    ends = [abs(float(end)) for end in (known.min, known.max) if end is not None]
    largest = LARGEST.get(tensor.spec.dtype)
    return known.nonfinite, max(ends, default=0.0) / largest if largest else 0.0


def as_trace(trace: store.Trace) -> Trace:
    """The same trace, with the methods of this file."""
    return trace if isinstance(trace, Trace) else Trace(*trace.parts(), layout=trace.layout)
