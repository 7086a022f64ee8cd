"""What a comparison is shown and written as: the same options for every command that makes one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from .. import api
from .consoles import console

FILE = click.Path(dir_okay=False, path_type=Path)
_WRITERS = {"html": api.write_html, "xlsx": api.write_xlsx, "csv": api.write_csv, "json": api.write_json}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--table, --html, --xlsx, --csv and --json; two of them with the same file are refused before anything is compared."""

    @functools.wraps(command)
    def checked(*args: Any, **given: Any) -> Any:
        _check_files({name: given.get(name) for name in (*_WRITERS, "write_map", "write_accept", "bundle")})
        return command(*args, **given)

    return _with_options(checked)


def _check_files(files: Mapping[str, Path | None]) -> None:
    options: dict[Path, str] = {}
    for name, path in files.items():
        if path is not None:
            option = f"--{name.replace('_', '-')}"
            other = options.setdefault(path.resolve(), option)
            if other != option:
                raise click.UsageError(f"{other} and {option} would both write {path}: give each a file of its own.")


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", type=FILE, help="Write everything as JSON; `twintrace view` opens it."),
        click.option("--csv", type=FILE, help="Write all pairs of tensors as CSV."),
        click.option("--xlsx", type=FILE, help="Write a spreadsheet, coloured by verdict."),
        click.option("--html", type=FILE, help="Write a report to look at: one file, works offline."),
        click.option("--table", is_flag=True, help="All pairs after the verdict, and what is alone."),
    ):
        command = option(command)
    return command


def show(found: api.Comparison, *, table: bool, everything: bool = False, **files: Path | None) -> None:
    """The verdict, the table if it is wanted, and the files that are."""
    screen = console()
    click.echo(api.verdict(found, width=screen.width if screen.is_terminal else None, everything=everything))
    if table:
        click.echo()
        api.print_pairs(found, screen)
    for name, write in _WRITERS.items():
        path = files.get(name)
        if path is not None:
            write(found, path)
            click.echo(f"  written: {path}")


def exit_code(found: api.Comparison) -> int:
    """0 the results agree, 1 they part, 2 nothing is in common, 3 something that counts could not be told."""
    return found.code
