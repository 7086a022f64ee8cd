"""A comparison as a spreadsheet: what was found, all pairs of tensors, and what is alone.

    verdict     name and value: agree, counts, the first difference
    pairs       a row for each pair of tensors, coloured by verdict; header frozen, filters on. Past a million rows: pairs 2, …
    alone       what has no partner, and why

It is written row by row, so memory does not grow with it. Texts are written as texts whatever they begin with: nothing in the
file is a formula or a link. Needs XlsxWriter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..model.errors import MissingPackageError, ReportError
from ..model.results import Comparison
from ..model.verdicts import Outcome
from .files import placed
from .tables import ALONE, SHEET, Cell, alone, rows, summary

MAX_ROWS = 1_048_575  # of a sheet, below its header
_MAX_TEXT = 32_767  # of a cell
_EXACT = 1 << 53  # beyond that a spreadsheet rounds whole numbers

COLOURS = {
    Outcome.SAME: "#E6F4EA",
    Outcome.ROUNDING: "#F1F8E9",
    Outcome.UNKNOWN: "#ECEFF1",
    Outcome.DIFFERENT: "#FCE4E4",
}
_WIDE = {
    "because": 48,
    "left_site": 40,
    "right_site": 40,
    "left_source": 40,
    "right_source": 40,
    "settings": 30,
    "paired": 40,
}


def write_xlsx(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the workbook to `path`, whole or not at all."""
    try:
        import xlsxwriter
        import xlsxwriter.exceptions
    except ImportError as error:
        raise MissingPackageError(
            "A spreadsheet needs XlsxWriter, which is not installed: pip install 'twintrace[xlsx]'"
        ) from error
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with placed(path) as temporary:
        book = xlsxwriter.Workbook(temporary, options)
        try:
            _fill(book, comparison)
        finally:
            try:
                book.close()
            except xlsxwriter.exceptions.XlsxWriterException as error:
                raise ReportError(
                    f"{path}: cannot be written ({error}). What was there before is unchanged."
                ) from error


def _fill(book: Any, comparison: Comparison) -> None:
    header = book.add_format({"bold": True, "bottom": 1})
    fills = {str(outcome): book.add_format({"bg_color": colour}) for outcome, colour in COLOURS.items()}
    _sheet(book, "verdict", ("name", "value"), summary(comparison), header, {}, [36, 90])
    names = tuple(column.name for column in SHEET)
    widths = [_WIDE.get(name, max(10, len(name) + 3)) for name in names]
    for number, part in enumerate(_pieces(rows(comparison), MAX_ROWS), 1):
        _sheet(book, "pairs" if number == 1 else f"pairs {number}", names, part, header, fills, widths)
    for number, part in enumerate(_pieces(alone(comparison), MAX_ROWS), 1):
        title = "alone" if number == 1 else f"alone {number}"
        _sheet(book, title, ALONE, part, header, {}, [8, 8, 8, 48, 32, 20, 10, 60, 48])


def _pieces(rows: Iterator[tuple[Cell, ...]], size: int) -> Iterator[Iterable[tuple[Cell, ...]]]:
    """At most `size` rows at a time, read as they are needed. The first piece is there even if it is empty."""
    first: tuple[Cell, ...] | None = next(rows, None)
    if first is None:
        yield ()
    while first is not None:
        yield _piece(first, islice(rows, size - 1))
        first = next(rows, None)


def _piece(first: tuple[Cell, ...], rest: Iterator[tuple[Cell, ...]]) -> Iterator[tuple[Cell, ...]]:
    yield first
    yield from rest


def _sheet(
    book: Any,
    name: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    header: Any,
    fills: dict[str, Any],
    widths: Sequence[int],
) -> None:
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    for at, width in enumerate(widths):
        sheet.set_column(at, at, width)
    for at, column in enumerate(columns):
        sheet.write_string(0, at, column, header)
    outcome = columns.index("outcome") if "outcome" in columns else None
    last = 0
    for last, row in enumerate(rows, 1):
        if outcome is not None:
            sheet.set_row(last, None, fills[str(row[outcome])])
        for at, value in enumerate(row):
            _write(sheet, last, at, value)
    sheet.autofilter(0, 0, last, len(columns) - 1)


def _write(sheet: Any, row: int, column: int, value: Cell) -> None:
    if value is None or value == "":
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, str):
        text = value.encode("utf-8", "replace").decode("utf-8")
        sheet.write_string(row, column, text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")
    elif not math.isfinite(value) or (isinstance(value, int) and abs(value) > _EXACT):
        sheet.write_string(row, column, str(value))
    else:
        sheet.write_number(row, column, value)
