"""A comparison as a spreadsheet: summary, all pairs of tensors, calls without a partner.

    verdict     name and value: agree, counts, the first difference
    pairs       a row for each pair of tensors, coloured by verdict. Past a million rows: pairs 2, …
    alone       calls and tensors without a partner, and why

It is written row by row, so memory does not grow with it. `spreadsheet.py` says what becomes of odd texts and numbers.
"""

from __future__ import annotations

import os

from ..model.results import Comparison
from ..model.verdicts import Outcome
from .files import placed
from .spreadsheet import Spreadsheet
from .tables import ALONE, SHEET, alone, rows, summary

COLOURS = {
    Outcome.SAME: "CFE2F3",
    Outcome.ROUNDING: "EAF3FA",
    Outcome.UNKNOWN: "ECEFF1",
    Outcome.DIFFERENT: "F9D9B5",
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
    names = tuple(column.name for column in SHEET)
    outcome = names.index("outcome")
    fills = {str(each): colour for each, colour in COLOURS.items()}
    with placed(path) as temporary, Spreadsheet(temporary, fills) as book:
        book.add("verdict", ("name", "value"), ((None, row) for row in summary(comparison)), [36, 90])
        widths = [_WIDE.get(name, max(10, len(name) + 3)) for name in names]
        book.add("pairs", names, ((str(row[outcome]), row) for row in rows(comparison)), widths)
        book.add("alone", ALONE, ((None, row) for row in alone(comparison)), [8, 8, 8, 48, 32, 20, 10, 60, 48])
