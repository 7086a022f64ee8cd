"""A trace as one flat table: a row for each tensor of each call, and for each gradient of a parameter.

    step  rank  call                         part    slot  tensor     min    max   mean  norm  nan  …  source
    0     0     forward/module:encoder.0#0   output        f32[4, 16] -2.1   3.4   0.01  8.2   0       model.py:21

The tensors are those of the page of a trace, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .sheets import place
from .tables import Cell, Table
from .trace_sheet import Journal, tensors_of

COLUMNS = (
    "step", "rank", "call", "kind", "path", "type", "part", "slot", "pass", "tensor", "min", "max", "mean", "norm", "nan", "posinf",
    "neginf", "zero", "fingerprint", "device", "missing", "source",
)  # fmt: skip


def trace_table(journals: Iterable[Journal]) -> Table:
    """The tensors of some journals."""
    return Table(COLUMNS, _rows(journals))


def _rows(journals: Iterable[Journal]) -> Iterator[tuple[Cell, ...]]:
    for journal in journals:
        for call, values in tensors_of(journal):
            site = None if call is None else call.site
            source = place(call.stack[0]) if call is not None and call.stack else ""
            address: tuple[Cell, ...] = (
                ("", "parameter", "", "") if site is None else (str(site), str(site.kind), site.path, site.type)
            )
            for part, slot, count, item in values:
                known = item.statistics
                numbers: tuple[Cell, ...] = (
                    (None,) * 8
                    if known is None
                    else (
                        known.min,
                        known.max,
                        known.mean,
                        known.norm,
                        known.nan,
                        known.posinf,
                        known.neginf,
                        known.zero,
                    )
                )
                yield (
                    journal.step,
                    journal.rank,
                    *address,
                    str(part),
                    slot,
                    count,
                    str(item.spec),
                    *numbers,
                    item.fingerprint,
                    item.device,
                    item.missing,
                    source,
                )
