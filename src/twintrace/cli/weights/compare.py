"""`twintrace weights compare`: two checkpoints side by side."""

from __future__ import annotations

import click

from ... import api
from ..progress import bar
from . import options


@click.command()
@click.argument("left", type=options.ANY)
@click.argument("right", type=options.ANY)
@options.given_map
@click.option("--shapes", is_flag=True, help="Names and shapes only.")
@click.option("--rtol", type=float, default=1e-4, show_default=True, help="Allowed error relative to LEFT.")
@click.option("--atol", type=float, default=1e-4, show_default=True, help="Allowed error besides.")
@click.option("--equal-nan", is_flag=True, help="NaN is equal to NaN.")
@options.trust
@options.table
def compare(
    left: str,
    right: str,
    map_file: str | None,
    shapes: bool,
    rtol: float,
    atol: float,
    equal_nan: bool,
    trust: bool,
    table: bool,
) -> None:
    """Compare two checkpoints, of one framework or of two: names, shapes, values.

    Exit code: 0 they agree, 1 they differ.
    """
    with bar() as progress:
        found = api.compare_weights(
            left,
            right,
            map=map_file,
            values=not shapes,
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            trust=trust,
            progress=progress,
        )
    click.echo(api.weight_comparison_text(found, table=table))
    raise click.exceptions.Exit(0 if found.agree else 1)
