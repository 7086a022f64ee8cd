"""All pairs of tensors as CSV, or any other table: for pandas, for grep, for whoever has no spreadsheet.

One header line, comma, UTF-8, CRLF as RFC 4180 has it. No value is an empty cell; numbers that are not finite are `nan`, `inf`
and `-inf`. A spreadsheet that opens a CSV takes a text that begins with `=`, `+`, `-` or `@` for a formula and runs it, so such a
text gets an apostrophe in front. Numbers are numbers: -1.5 stays -1.5.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ..model.results import Comparison
from ..model.verdicts import Outcome
from .files import written
from .tables import SHEET, Cell, rows

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_FORMULA = frozenset(FORMULA)


def write_csv(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the table of `tables.rows` to `path`, whole or not at all. Of two folders it has a row for every file, also for one
    that is alone.
    """
    alone = _alone(comparison) if comparison.saved else ()
    write_rows(path, [column.name for column in SHEET], chain(rows(comparison), alone))


def _alone(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    for side, found in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in found:
            known: dict[str, Cell] = {"step": step, "rank": rank, "outcome": str(Outcome.UNKNOWN)}
            known |= {"because": f"only on the {side}: {item.because}", f"{side}_site": str(item.call.site)}
            yield tuple(known.get(column.name) for column in SHEET)


def write_rows(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write any table to `path`, whole or not at all."""
    with written(path) as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(map(_harmless, rows))


def _harmless(row: Sequence[Cell]) -> Sequence[Cell]:
    return ["'" + value if value.__class__ is str and value[:1] in _FORMULA else value for value in row]
