"""`twintrace weights certify`: proof that weights arrived."""

from __future__ import annotations

import click

from ... import api
from ..progress import bar
from . import options


@click.command()
@click.argument("left", type=options.ANY)
@click.argument("right", type=options.ANY)
@options.given_map
@click.option(
    "--left-net", metavar="FILE.py:NAME", help="The net that LEFT is a checkpoint of; with --right-net, to run both."
)
@click.option("--right-net", metavar="FILE.py:NAME", help="The net that RIGHT is a checkpoint of.")
@click.option(
    "--input", "inputs", multiple=True, metavar="SHAPE", help="An input for the nets: f32[2,3,8,8]; i64[2,5]<10."
)
@options.left_trace
@options.right_trace
@options.trust
@options.table
def certify(
    left: str,
    right: str,
    map_file: str | None,
    left_net: str | None,
    right_net: str | None,
    inputs: tuple[str, ...],
    left_trace: str | None,
    right_trace: str | None,
    trust: bool,
    table: bool,
) -> None:
    """Prove that every weight of LEFT arrived in RIGHT under its declared transform, or say what went wrong.

    With both nets and an input, one forward and backward pass is made in each framework and judged by what rounding can
    explain. Exit code: 0 certified, 1 not.
    """
    if (left_net is None) != (right_net is None):
        raise click.UsageError("--left-net and --right-net belong together.")
    nets = (api.net_from(left_net), api.net_from(right_net)) if left_net and right_net else None
    arrays = [api.random_input(text) for text in inputs] or None
    traces = options.traces(left_trace, right_trace)
    with bar() as progress:
        found = api.certify_weights(
            left, right, map=map_file, nets=nets, inputs=arrays, traces=traces, trust=trust, progress=progress
        )
    click.echo(api.certificate_text(found, table=table))
    raise click.exceptions.Exit(0 if found.granted else 1)
