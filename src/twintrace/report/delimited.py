"""All pairs of tensors as CSV, or any other table: for pandas, for grep, for whoever has no spreadsheet.

One header line, comma, UTF-8, CRLF as RFC 4180 has it. No value is an empty cell; numbers that are not finite are `nan`, `inf`
and `-inf`. A spreadsheet that opens a CSV takes a text that begins with `=`, `+`, `-` or `@` for a formula and runs it, so such a
text gets an apostrophe in front. Numbers are numbers: -1.5 stays -1.5.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from .files import written

if TYPE_CHECKING:
    from ..model.results import Comparison
    from .tables import Cell

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_ODD = re.compile(r"^[=+\-@\t\r\n]|[\",\r\n]").search
_QUOTED = re.compile(r"[\",\r\n]").search


def write_csv(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the table of `tables.rows` to `path`, whole or not at all. Of two folders it has a row for every file, also for one
    that is alone.
    """
    from .tables import SHEET, rows  # any other table is written without the words of ours

    alone = _alone(comparison) if comparison.saved else ()
    write_rows(path, [column.name for column in SHEET], chain(rows(comparison), alone))


def _alone(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    from ..model.verdicts import Outcome
    from .tables import SHEET

    for side, found in (("left", comparison.only_left), ("right", comparison.only_right)):
        for step, rank, item in found:
            known: dict[str, Cell] = {"step": step, "rank": rank, "outcome": str(Outcome.UNKNOWN)}
            known |= {"because": f"only on the {side}: {item.because}", f"{side}_site": str(item.call.site)}
            yield tuple(known.get(column.name) for column in SHEET)


def write_rows(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write any table to `path`, whole or not at all."""
    write_texts(path, columns, map(_line, rows))


def write_texts(path: str | os.PathLike[str], columns: Sequence[str], texts: Iterable[str]) -> None:
    """The same, of rows that `as_text` has made into lines."""
    with written(path) as file:
        file.write(_line(columns))
        file.writelines(texts)


def as_text(rows: Iterable[Sequence[Cell]]) -> str:
    """Rows as lines."""
    return "".join(map(_line, rows))


def _line(row: Sequence[Cell]) -> str:
    # Twice as fast as the csv module, which looks at each character twice; a test holds the two together.
    return (
        ",".join([_text(cell) if isinstance(cell, str) else "" if cell is None else str(cell) for cell in row]) + "\r\n"
    )


@lru_cache(maxsize=1 << 12)  # names stand twice in a row, types and verdicts in all of them
def _text(text: str) -> str:
    if not _ODD(text):
        return text
    if text.startswith(FORMULA):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if _QUOTED(text) else text
