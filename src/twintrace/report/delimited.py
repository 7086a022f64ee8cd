"""All pairs of tensors as CSV, or any other table: for pandas, for grep, for whoever has no spreadsheet.

One header line, comma, UTF-8, CRLF as RFC 4180 has it. No value is an empty cell; numbers that are not finite are `nan`, `inf`
and `-inf`. A spreadsheet that opens a CSV takes a text that begins with `=`, `+`, `-` or `@` for a formula and runs it, so such a
text gets an apostrophe in front. Numbers are numbers: -1.5 stays -1.5.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from .files import written

if TYPE_CHECKING:
    from ..model.results import Comparison
    from .tables import Cell

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_BEGINNINGS = frozenset(FORMULA)


def write_csv(comparison: Comparison, path: str | os.PathLike[str], *, columns: str = "all") -> None:
    """Write `tables.table(comparison, columns)` to `path`, whole or not at all."""
    from .tables import table  # any other table is written without the words of ours

    write_rows(path, *table(comparison, columns))


def text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Any table as the text of such a file."""
    file = io.StringIO(newline="")
    csv.writer(file).writerows(map(_safe, chain((columns,), rows)))
    return file.getvalue()


def write_rows(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write any table to `path`, whole or not at all."""
    with written(path) as file:
        csv.writer(file).writerows(map(_safe, chain((columns,), rows)))


def _safe(row: Sequence[Cell]) -> list[Cell]:
    """The row with an apostrophe before each text that would be a formula."""
    return [f"'{cell}" if isinstance(cell, str) and cell[:1] in _BEGINNINGS else cell for cell in row]
