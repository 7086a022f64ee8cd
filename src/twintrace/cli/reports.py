"""Reports of a comparison, on the terminal and in files: the same options for every command that makes one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .. import api
from .outputs import STDOUT, check_output, console

FILE = click.Path(dir_okay=False, path_type=Path)
FILE_OR_STDOUT = click.Path(dir_okay=False, path_type=Path, allow_dash=True)
_FILES = ("html", "xlsx", "csv", "json")
_OPTIONS = (
    click.option("--table", is_flag=True, help="All pairs after the verdict, and what is alone."),
    click.option("--html", type=FILE, help="Write a report to look at: one file, works offline."),
    click.option("--xlsx", type=FILE, help="Write a spreadsheet, coloured by verdict."),
    click.option("--csv", type=FILE, help="Write all pairs of tensors as CSV."),
    click.option(
        "--columns", type=click.Choice(["main", "all"]), default="main", show_default=True, help="Columns of the CSV."
    ),
    click.option(
        "--json",
        type=FILE_OR_STDOUT,
        help="Write everything as JSON, which `twintrace view` opens; - is standard output.",
    ),
    click.option("--quiet", "-q", is_flag=True, help="Print nothing: files and the exit code say it."),
)


@dataclass(frozen=True)
class ReportOptions:
    """Reports that the options ask for. Beside JSON on standard output, everything else is on stderr."""

    table: bool
    html: Path | None
    xlsx: Path | None
    csv: Path | None
    columns: str
    json: Path | None
    quiet: bool

    def echo(self, text: str) -> None:
        """A line for people."""
        if not self.quiet:
            click.echo(text, err=self.json == STDOUT)

    def show(self, comparison: api.Comparison, *, everything: bool = False) -> None:
        """The verdict, the table if it is wanted, and the files that are. `everything`: all mistakes after the verdict."""
        piped = self.json == STDOUT
        if not self.quiet:
            screen = console(stderr=piped)
            api.print_verdict(comparison, screen, everything=everything)
            if self.table and not piped:
                click.echo()
                api.print_pairs(comparison, screen)
        for name in _FILES:
            path = getattr(self, name)
            if path is None:
                continue
            if path == STDOUT:
                for piece in api.comparison_json(comparison):
                    click.echo(piece, nl=False)
                continue
            chosen = {"columns": self.columns} if name == "csv" else {}
            getattr(api, f"write_{name}")(comparison, path, **chosen)
            self.echo(f"  written: {path}")


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--table, --html, --xlsx, --csv, --columns, --json and --quiet, as the argument `report`. What could not be written is refused
    before anything is compared: a file in a folder that is not there, one file for two reports.
    """

    @functools.wraps(command)
    def checked(*args: Any, **given: Any) -> Any:
        paths: dict[Path, str] = {}
        for name in (*_FILES, "write_map", "write_accept", "bundle"):
            path = given.get(name)
            if path is not None:
                option = f"--{name.replace('_', '-')}"
                check_output(path, option)
                other = paths.setdefault(path.resolve(), option)
                if other != option:
                    raise click.UsageError(
                        f"{other} and {option} would both write {path}: give each a file of its own."
                    )
        if given["columns"] == "all" and given["csv"] is None:
            raise click.UsageError("--columns says what the file of --csv has: give --csv as well.")
        report = ReportOptions(**{name: given.pop(name) for name in ReportOptions.__dataclass_fields__})
        return command(*args, report=report, **given)

    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), checked)
