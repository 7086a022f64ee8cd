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
    cells = [_alike(column) for column in zip(*table.rows, strict=True)] or [[] for _ in table.columns]
    columns, troubles = dict(zip(table.columns, cells, strict=True)), []
    for name in wanted:
        try:
            return _made(name, columns)
        except ImportError as error:  # not installed, or not for this numpy
            troubles.append(str(error))
    raise MissingPackageError(
        f"to_frame needs {' or '.join(wanted)}, and cannot import any of them ({'; '.join(troubles)}). "
        "Install one: pip install pandas; to_csv needs none."
    )


def _made(library: str, columns: dict[str, list[Cell]]) -> Any:
    match library:
        case "pandas":
            import pandas

            return pandas.DataFrame(columns)
        case "polars":
            import polars

            return polars.DataFrame(columns, strict=False)
    import pyarrow

    return pyarrow.table(columns)


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
