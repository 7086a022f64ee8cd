"""Results on paper: the press, fetched when it is asked for, because recording must not need its libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model.results import Comparison, Listing
    from ..report.progress import Tell
    from ..report.server import Server
    from ..report.sheets import Sheet
    from . import results


def print_tree(listing: Listing, console: Any) -> None:
    """A trace as a tree, one branch for each step and rank."""
    from ..report import tree

    tree.print_tree(listing, console)


def print_table(listing: Listing, console: Any) -> None:
    """A trace as a flat table."""
    from ..report import tree

    tree.print_table(listing, console)


def listing_json(listing: Listing) -> str:
    """A trace's listing for machines."""
    from ..report import tree

    return tree.as_json(listing)


def print_verdict(comparison: Comparison, console: Any, *, everything: bool = False) -> None:
    """A comparison's verdict, wrapped and coloured where the console is a terminal."""
    from ..report import pairs

    pairs.print_verdict(comparison, console, everything=everything)


def print_pairs(comparison: Comparison, console: Any) -> None:
    """All pairs of a comparison as a table, and what is alone."""
    from ..report import pairs

    pairs.print_pairs(comparison, console)


def growth_text(comparison: Comparison) -> str:
    """Sentence whether the difference of two runs is normal, and the calls that add most to it."""
    from ..report import growth

    return growth.growth_text(comparison)


def write_csv(comparison: Comparison, path: str | os.PathLike[str], *, columns: str = "all") -> None:
    """One row for each pair of tensors, as CSV: with all columns, or the "main" ones."""
    from ..report import delimited

    delimited.write_csv(comparison, path, columns=columns)


def comparison_json(comparison: Comparison) -> Iterator[str]:
    """Everything that the comparison found, as the text of a JSON document (docs/reference/report-json.md), piece by piece."""
    from ..report import document

    return document.pieces(comparison)


def write_xlsx(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """The same as a spreadsheet, coloured by verdict."""
    from ..report import workbook

    workbook.write_xlsx(comparison, path)


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


def write_json(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Everything that the comparison found, as JSON (docs/reference/report-json.md)."""
    from ..report import document

    document.write_json(comparison, path)


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


def view(path: str | os.PathLike[str], *, port: int = 0) -> Server:
    """A server of a report (JSON or HTML) or of a trace, for this machine's browser. Use it with `with`; `serve` answers."""
    from . import viewing

    return viewing.view(path, port=port)


def progress_bar() -> AbstractContextManager[Tell | None]:
    """A bar for the verbs that take `progress`: on a terminal only, and gone when the work is done."""
    from ..report import progress

    return progress.bar()
