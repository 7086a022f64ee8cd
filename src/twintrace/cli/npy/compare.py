"""`twintrace npy compare`: two folders of arrays side by side."""

from __future__ import annotations

from pathlib import Path

import click

from ... import api
from .. import reports
from ..progress import bar


@click.command()
@click.argument("left", type=click.Path())
@click.argument("right", type=click.Path())
@click.option(
    "--by",
    type=click.Choice(["name", "number", "shape"]),
    help="How files are paired: by name; in the order of the numbers in their names; or as the longest "
    "sequence of shapes that both have.  [default: name]",
)
@click.option("--grads", is_flag=True, help="The files are gradients, whose names and numbers differ: --by shape.")
@click.option(
    "--rtol",
    type=float,
    default=1e-4,
    show_default=True,
    help="Allowed error relative to LEFT, the reference. (For compare_npy_dir it is the second folder.)",
)
@click.option("--atol", type=float, default=1e-4, show_default=True, help="Allowed error besides.")
@click.option("--equal-nan", is_flag=True, help="NaN is equal to NaN.")
@reports.options
@click.option("--workers", type=click.IntRange(min=1), help="Threads to measure with.  [default: all cores]")
def compare(
    left: str,
    right: str,
    by: str | None,
    grads: bool,
    rtol: float,
    atol: float,
    equal_nan: bool,
    table: bool,
    html: Path | None,
    xlsx: Path | None,
    csv: Path | None,
    json: Path | None,
    columns: str,
    quiet: bool,
    workers: int | None,
) -> None:
    """Compare the .npy files of two folders, element by element.

    A file that only one folder has, or that cannot be read, is told of; the others are compared. Nothing in a file is run. Exit
    code: 0 they agree, 1 they differ, 2 they could not be compared.
    """
    if grads and by not in (None, "shape"):
        raise click.UsageError(f"--grads means --by shape, but --by {by} was given as well.")
    with bar(quiet=quiet) as progress:
        found = api.compare_arrays(
            left,
            right,
            by=by or ("shape" if grads else "name"),
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            pictures=html is not None or json is not None,
            workers=workers,
            progress=progress,
        )
    reports.show(found, table=table, html=html, xlsx=xlsx, csv=csv, json=json, columns=columns, quiet=quiet)
    raise click.exceptions.Exit(reports.exit_code(found))
