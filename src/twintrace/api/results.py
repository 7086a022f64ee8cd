"""Results of the verbs as Python objects, with the reports as methods.

    found = tt.compare("runs/a", "runs/b")
    bool(found), found.code             True for exit code 0 alone
    print(found)                        the verdict
    found                               in a notebook: the verdict and the ribbon
    found.first, found.guilty           the first place where the runs part; all places where a difference arises
    found.worst(10)                     the pairs that differ most
    found.to_frame()                    pandas, polars or Arrow
    found.to_html("report.html")        also to_json, to_csv, to_xlsx; without a path, html, json and csv come back as text

The facts are the types of `model`, which know nothing of reports. Here each gets a subclass of the same name, without fields of
its own, whose methods enter the press when they are called; so imports go down only, and the files are those that the command line
writes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..model import results, weights

if TYPE_CHECKING:
    from ..report.tables import Table

Destination = str | os.PathLike[str]
Columns = Literal["main", "all"]
Library = Literal["pandas", "polars", "pyarrow"]

Kind = TypeVar("Kind")


def made_of(kind: type[Kind], plain: Any) -> Kind:
    """The same facts as a `kind`, which must have the fields of `plain`."""
    return kind(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})


class Written:
    """Reports of a result: each is written to a path, whole or not at all, or given back as text where there is no path."""

    __slots__ = ()

    @overload
    def to_html(self, path: None = None) -> str: ...
    @overload
    def to_html(self, path: Destination) -> None: ...
    def to_html(self, path: Destination | None = None) -> str | None:
        """One HTML file that works offline; the text of it where no path is given."""
        return _out(self._page(), path)

    @overload
    def to_json(self, path: None = None) -> str: ...
    @overload
    def to_json(self, path: Destination) -> None: ...
    def to_json(self, path: Destination | None = None) -> str | None:
        """Everything as JSON; the text of it where no path is given."""
        return _out(self._document(), path)

    @overload
    def to_csv(self, path: None = None) -> str: ...
    @overload
    def to_csv(self, path: Destination) -> None: ...
    def to_csv(self, path: Destination | None = None) -> str | None:
        """The table as CSV; the text of it where no path is given."""
        return _csv(self._table(), path)

    def to_xlsx(self, path: Destination) -> None:
        """The table as a spreadsheet."""
        from ..report import files, spreadsheet

        columns, rows = self._table()
        with files.placed(path) as temporary, spreadsheet.Spreadsheet(temporary) as book:
            book.add("rows", columns, ((None, row) for row in rows))

    def to_frame(self, library: Library | None = None) -> Any:
        """The table as a data frame: pandas' if it is installed, otherwise polars' or an Arrow table; or that of `library`."""
        from ..report import frames

        return frames.frame(self._table(), library)

    def _table(self) -> Table:
        raise NotImplementedError

    def _document(self) -> Iterable[str]:
        raise NotImplementedError

    def _page(self) -> Iterable[str]:
        raise NotImplementedError


def _out(pieces: Iterable[str], path: Destination | None) -> str | None:
    if path is None:
        return "".join(pieces)
    from ..report import files

    with files.written(path) as file:
        file.writelines(pieces)
    return None


def _csv(table: Table, path: Destination | None) -> str | None:
    from ..report import delimited

    if path is None:
        return delimited.text(*table)
    delimited.write_rows(path, *table)
    return None


class Comparison(Written, results.Comparison):
    """Two traces side by side. Printed it is the verdict; it is true if every result of the two runs agrees, and false otherwise.

    `results` are in the order of the left side's calls, by step and rank. The gradients of parameters, which belong to no call, are
    results with a match of no calls.
    """

    __slots__ = ()

    def __str__(self) -> str:
        from ..report import text

        return text.verdict(self)

    def _repr_html_(self) -> str:
        from ..report import notebook

        return notebook.comparison_html(self)

    @overload
    def to_csv(self, path: None = None, *, columns: Columns = "main") -> str: ...
    @overload
    def to_csv(self, path: Destination, *, columns: Columns = "main") -> None: ...
    def to_csv(self, path: Destination | None = None, *, columns: Columns = "main") -> str | None:
        """All pairs of tensors as CSV, with the main columns or all; the text of it where no path is given."""
        return _csv(self._table(columns), path)

    def to_xlsx(self, path: Destination) -> None:
        """A spreadsheet: the verdict, all pairs of tensors coloured by verdict, and what is alone."""
        from ..report import workbook

        workbook.write_xlsx(self, path)

    def to_frame(self, library: Library | None = None, *, columns: Columns = "main") -> Any:
        """All pairs of tensors as a data frame: pandas' if it is installed, otherwise polars' or an Arrow table.

        Args:
            library: "pandas", "polars" or "pyarrow"; None for the first of them that is installed.
            columns: "main" for the 25 that say where, how much and why; "all" for every number that was measured.

        Raises:
            MissingPackageError: it is not installed.
        """
        from ..report import frames

        return frames.frame(self._table(columns), library)

    def _table(self, columns: str = "main") -> Table:
        from ..report import tables

        return tables.table(self, columns)

    def _document(self) -> Iterable[str]:
        from ..report import document

        return document.comparison_json(self)

    def _page(self) -> Iterable[str]:
        from ..report.page import page_text
        from . import reporting

        return [page_text(reporting.comparison_page(self))[0]]


class _WeightReport(Written):
    """Reports on weights, all written alike."""

    __slots__ = ()

    def _repr_html_(self: Any) -> str:
        from ..report import notebook, weights

        return notebook.verdict_html(weights.weight_text(self), good=self.code == 0)

    def _table(self: Any) -> Table:
        from ..report import weights

        return weights.weight_table(self)

    def _document(self: Any) -> Iterable[str]:
        from ..report import weights

        return [weights.weight_json(self)]

    def _page(self: Any) -> Iterable[str]:
        from ..report import weights

        return [weights.weight_page(self)]


class WeightMap(_WeightReport, weights.WeightMap):
    """Weights that belong together, and leftovers. True if everything that matters has its partner."""

    __slots__ = ()


class Conversion(_WeightReport, weights.Conversion):
    """Weights that were written to a file, or loaded into a net."""

    __slots__ = ()


class WeightComparison(_WeightReport, weights.WeightComparison):
    """Two checkpoints side by side. True if every weight that matters has its partner, of the same shape, and close to it."""

    __slots__ = ()


class Certificate(_WeightReport, weights.Certificate):
    """Proof that weights arrived, or the list of those that did not. True if it is granted."""

    __slots__ = ()
