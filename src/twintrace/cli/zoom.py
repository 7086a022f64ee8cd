"""`twintrace zoom`: what to record in a second run."""

from __future__ import annotations

from pathlib import Path

import click

from .. import api
from .outputs import check_output, force


@click.command()
@click.argument("left", type=click.Path())
@click.argument("right", type=click.Path(), required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("zoom.json"),
    show_default=True,
    help="File to write.",
)
@force
def zoom(left: str, right: str | None, output: Path, force: bool) -> None:
    """Write what to record in a second run: the step, and the calls around the place that the first run showed, with every value.

    LEFT is a report of `compare --json`, or one of two traces (fingerprints or statistics will do). A trace alone is looked at for
    the first value that is not finite. Record again with tt.record(..., zoom="zoom.json"), and compare the two new traces.

    Exit code: 0 written, 2 an error, 3 there is nothing to zoom into.
    """
    check_output(output, "--output", force=force)
    place = api.zoom(left, right, path=output)
    if place is None:
        click.echo(
            "nothing to zoom into: " + ("every value is finite" if right is None else "the two runs are the same")
        )
        raise click.exceptions.Exit(3)
    calls = sum(len(side.calls) for side in place.sides)
    click.echo(place.because)
    click.echo(f"  {output}: steps {', '.join(map(str, place.steps))}, {calls} calls, every value of them")
    click.echo(
        f'  next: tt.record(path, net, zoom="{output}") in the same script'
        + (", both runs; then compare the two" * (right is not None))
    )
