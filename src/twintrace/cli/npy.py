"""`twintrace npy`: folders of .npy files, whoever wrote them. Exit codes and reports are those of `twintrace compare`."""

from __future__ import annotations

from typing import Any

import click

from .. import api
from . import reports
from .outputs import bar


@click.group()
def npy() -> None:
    """Folders of .npy files: what `save` of this tool or of TroubleShooter, or np.save, wrote."""


@npy.command()
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
def compare(left: str, right: str, by: str | None, grads: bool, report: reports.ReportOptions, **options: Any) -> None:
    """Compare the .npy files of two folders, element by element.

    A file that only one folder has, or that cannot be read, is told of; the others are compared. Nothing in a file is run. Exit
    code: 0 they agree, 1 they differ, 2 they could not be compared.
    """
    if grads and by not in (None, "shape"):
        raise click.UsageError(f"--grads means --by shape, but --by {by} was given as well.")
    by = by or ("shape" if grads else "name")
    pictures = report.html is not None or report.json is not None
    with bar(quiet=report.quiet) as progress:
        comparison = api.compare_arrays(left, right, by=by, pictures=pictures, progress=progress, **options)
    report.show(comparison)
    raise click.exceptions.Exit(comparison.code)
