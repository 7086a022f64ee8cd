"""All pairs of tensors as CSV, or any other table: for pandas, for grep, for whoever has no spreadsheet.

One header line, comma, UTF-8, CRLF as RFC 4180 has it. No value is an empty cell; numbers that are not finite are `nan`, `inf`
and `-inf`. A spreadsheet that opens a CSV takes a text that begins with `=`, `+`, `-` or `@` for a formula and runs it, so such a
text gets an apostrophe in front. Numbers are numbers: -1.5 stays -1.5.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .files import written

if TYPE_CHECKING:
    from ..model.results import Comparison
    from .tables import Cell

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_BEGINNINGS = frozenset(FORMULA)
_REMEMBERED = 1 << 12
# The first texts, as cells: types, shapes and verdicts are soon among them, and stand in all rows.
_KNOWN: dict[str, str] = {}


def write_csv(comparison: Comparison, path: str | os.PathLike[str], *, columns: str = "all") -> None:
    """Write `tables.table(comparison, columns)` to `path`, whole or not at all."""
    from .tables import table  # any other table is written without the words of ours

    write_rows(path, *table(comparison, columns))


def text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Any table as the text of such a file."""
    return "".join(map(_line, (columns, *rows)))


def write_rows(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write any table to `path`, whole or not at all."""
    with written(path) as file:
        file.write(_line(columns))
        file.writelines(map(_line, rows))


def _line(row: Sequence[Cell]) -> str:
    # Nearly twice as fast as the csv module, which looks at each character twice; a test holds the two together. Exact types are
    # asked for because most cells are plain floats and texts, and that is the quickest question.
    known = _KNOWN
    cells = [
        f"{cell!r}" if type(cell) is float else known.get(cell) or _text(cell) if type(cell) is str else _other(cell)
        for cell in row
    ]
    return ",".join(cells) + "\r\n"


def _other(cell: Cell) -> str:
    return _text(cell) if isinstance(cell, str) else "" if cell is None else str(cell)


def _text(text: str) -> str:
    made = "'" + text if text[:1] in _BEGINNINGS else text
    if "," in text or '"' in text or "\n" in text or "\r" in text:  # twice as fast as a pattern
        made = '"' + made.replace('"', '""') + '"'
    if len(_KNOWN) < _REMEMBERED:
        _KNOWN[text] = made
    return made
