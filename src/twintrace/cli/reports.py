"""What a comparison is shown and written as: the same options for every command that makes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .. import api
from .consoles import console

FILE = click.Path(dir_okay=False, path_type=Path)
_WRITERS = {"html": api.write_html, "xlsx": api.write_xlsx, "csv": api.write_csv, "json": api.write_json}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--table, --html, --xlsx, --csv and --json."""
    for option in (
        click.option("--json", type=FILE, help="Write everything as JSON; `twintrace view` opens it."),
        click.option("--csv", type=FILE, help="Write all pairs of tensors as CSV."),
        click.option("--xlsx", type=FILE, help="Write a spreadsheet, coloured by verdict."),
        click.option("--html", type=FILE, help="Write a report to look at: one file, works offline."),
        click.option("--table", is_flag=True, help="All pairs after the verdict, and what is alone."),
    ):
        command = option(command)
    return command


def show(found: api.Comparison, *, table: bool, **files: Path | None) -> None:
    """The verdict, the table if it is wanted, and the files that are."""
    click.echo(api.verdict(found))
    if table:
        click.echo()
        api.print_pairs(found, console())
    for name, write in _WRITERS.items():
        path = files.get(name)
        if path is not None:
            write(found, path)
            click.echo(f"  written: {path}")


def exit_code(found: api.Comparison) -> int:
    """0 they agree, 1 they part, 2 nothing could be compared."""
    return 0 if found.agree else 1 if found.comparable else 2
