"""Reports of a comparison, on the terminal and in files: the same options for every command that makes one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from .. import api
from .consoles import console
from .outputs import STDOUT, check_output

FILE = click.Path(dir_okay=False, path_type=Path)
FILE_OR_STDOUT = click.Path(dir_okay=False, path_type=Path, allow_dash=True)
_WRITERS = {"html": api.write_html, "xlsx": api.write_xlsx, "csv": api.write_csv, "json": api.write_json}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--table, --html, --xlsx, --csv, --columns, --json and --quiet. What could not be written is refused before anything is
    compared: a file in a folder that is not there, one file for two reports.
    """

    @functools.wraps(command)
    def checked(*args: Any, **given: Any) -> Any:
        _check_files({name: given.get(name) for name in (*_WRITERS, "write_map", "write_accept", "bundle")})
        if given.get("columns") == "all" and given.get("csv") is None:
            raise click.UsageError("--columns says what the file of --csv has: give --csv as well.")
        return command(*args, **given)

    return _with_options(checked)


def _check_files(files: Mapping[str, Path | None]) -> None:
    options: dict[Path, str] = {}
    for name, path in files.items():
        if path is not None:
            option = f"--{name.replace('_', '-')}"
            check_output(path, option)
            other = options.setdefault(path.resolve(), option)
            if other != option:
                raise click.UsageError(f"{other} and {option} would both write {path}: give each a file of its own.")


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="Print nothing: files and the exit code say it."),
        click.option(
            "--json",
            type=FILE_OR_STDOUT,
            help="Write everything as JSON, which `twintrace view` opens; - is standard output.",
        ),
        click.option(
            "--columns",
            type=click.Choice(["main", "all"]),
            default="main",
            show_default=True,
            help="Columns of the CSV.",
        ),
        click.option("--csv", type=FILE, help="Write all pairs of tensors as CSV."),
        click.option("--xlsx", type=FILE, help="Write a spreadsheet, coloured by verdict."),
        click.option("--html", type=FILE, help="Write a report to look at: one file, works offline."),
        click.option("--table", is_flag=True, help="All pairs after the verdict, and what is alone."),
    ):
        command = option(command)
    return command


def show(
    found: api.Comparison,
    *,
    table: bool,
    everything: bool = False,
    quiet: bool = False,
    columns: str = "main",
    **files: Path | None,
) -> None:
    """The verdict, the table if it is wanted, and the files that are. Beside JSON on standard output, the rest is on stderr."""
    piped = files.get("json") == STDOUT
    if not quiet:
        screen = console(stderr=piped)
        api.print_verdict(found, screen, everything=everything)
        if table and not piped:
            click.echo()
            api.print_pairs(found, screen)
    for name, write in _WRITERS.items():
        path = files.get(name)
        if path is None:
            continue
        if path == STDOUT:
            for piece in api.comparison_json(found):
                click.echo(piece, nl=False)
            continue
        if name == "csv":
            api.write_csv(found, path, columns=columns)
        else:
            write(found, path)
        if not quiet:
            click.echo(f"  written: {path}", err=piped)


def exit_code(found: api.Comparison) -> int:
    """0 the results agree, 1 they part, 2 nothing is in common, 3 something that counts could not be told."""
    return found.code
