"""Results on paper: the press, fetched when it is asked for, because recording must not need its libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model.results import Comparison
    from ..report.sheets import Sheet
    from . import results


def write_table(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    rows: Iterable[tuple[str | None, Sequence[str | float | int | bool | None]]],
    *,
    fills: Mapping[str, str] | None = None,
    widths: Sequence[float] = (),
) -> None:
    """A table that is not ours, whole or not at all: a spreadsheet where `path` ends in .xlsx, CSV otherwise.

    A row is the name of its colour in `fills`, or None, and its cells. In a CSV there are no colours.
    """
    from ..report import delimited, files

    if Path(path).suffix != ".xlsx":
        delimited.write_rows(path, columns, (cells for _, cells in rows))
        return
    from ..report import spreadsheet

    with files.placed(path) as temporary, spreadsheet.Spreadsheet(temporary, fills) as book:
        book.add("Sheet1", columns, rows, widths)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """A text file, whole or not at all."""
    from ..report import files

    with files.written(path) as file:
        file.write(text)


def read_report(path: str | os.PathLike[str]) -> results.Comparison:
    """A comparison that was written with `write_json`."""
    from ..report import document
    from .results import Comparison, made_of

    return made_of(Comparison, document.read_json(path))


def write_html(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """A comparison as one HTML file that works offline; beyond 10 MB the least telling tensors are left out."""
    from ..report.page import write_page

    write_page(comparison_page(comparison), path)


def comparison_page(comparison: Comparison) -> Sheet:
    """The comparison for the page, with the curves of both runs where their traces are."""
    from ..report.comparison_sheet import comparison_sheet
    from .diagnosing import page_curves

    return comparison_sheet(comparison, curves=page_curves(comparison))
