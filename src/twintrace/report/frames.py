"""Any table as a data frame, with whichever library is installed: pandas, polars or Arrow.

    frame(table)                 pandas' if it is installed, otherwise polars', otherwise an Arrow table
    frame(table, "polars")       that library's, or MissingPackageError

Cells that have no value are missing in the way of the library. A column of numbers in which some value is not finite stays a column
of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model.errors import MissingPackageError, UsageError
from .tables import Cell, Table

LIBRARIES = ("pandas", "polars", "pyarrow")


def frame(table: Table, library: str | None = None) -> Any:
    """The table as a frame of `library`, or of the first of LIBRARIES that is installed."""
    if library is not None and library not in LIBRARIES:
        raise UsageError(f"library: expected one of {', '.join(map(repr, LIBRARIES))} or None, got {library!r}.")
    wanted = LIBRARIES if library is None else (library,)
    columns, troubles = _columns(table), []
    for name in wanted:
        try:
            return _MAKERS[name](columns)
        except ImportError as error:  # not installed, or not for this numpy
            troubles.append(str(error))
    raise MissingPackageError(
        f"to_frame needs {' or '.join(wanted)}, and cannot import any of them ({'; '.join(troubles)}). "
        "Install one: pip install pandas; to_csv needs none."
    )


def _columns(table: Table) -> dict[str, list[Cell]]:
    columns = dict(zip(table.columns, map(_alike, zip(*table.rows, strict=True)), strict=False))
    return {name: columns.get(name, []) for name in table.columns}


def _pandas(columns: dict[str, list[Cell]]) -> Any:
    import pandas

    return pandas.DataFrame(columns)


def _polars(columns: dict[str, list[Cell]]) -> Any:
    import polars

    return polars.DataFrame(columns, strict=False)


def _pyarrow(columns: dict[str, list[Cell]]) -> Any:
    import pyarrow

    return pyarrow.table(columns)


_MAKERS = dict(zip(LIBRARIES, (_pandas, _polars, _pyarrow), strict=True))


def _alike(cells: Sequence[Cell]) -> list[Cell]:
    """Cells of one type: whole numbers beside floating-point ones, or too large for 64 bits, become floating-point ones, and
    anything beside a text becomes a text.
    """
    kinds = {type(cell) for cell in cells if cell is not None}
    large = kinds == {int} and any(cell is not None and abs(int(cell)) >= 2**63 for cell in cells)
    if kinds == {int, float} or large:
        return [None if cell is None else float(cell) for cell in cells]
    if len(kinds) > 1:
        return [None if cell is None else str(cell) for cell in cells]
    return list(cells)
