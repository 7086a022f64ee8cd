"""`twintrace weights map`: which weight is which."""

from __future__ import annotations

import click

from ... import api
from ..outputs import check_output, force
from . import options


@click.command("map")
@click.argument("left", type=options.ANY)
@click.argument("right", type=options.ANY, required=False)
@click.option("--left-net", metavar="FILE.py:NAME", help="Take LEFT's layers from this net; LEFT's names must be its.")
@click.option("--right-net", metavar="FILE.py:NAME", help="Map to this net instead of to a checkpoint.")
@click.option("--to", type=click.Choice(["mindspore", "torch"]), help="Without RIGHT: for which framework to predict.")
@click.option("--mint", is_flag=True, help="Without RIGHT: names of mindspore.mint.nn, not of mindspore.nn.")
@click.option("-o", "--output", type=options.FILE, help="Write the map, to be edited and given back with --map.")
@force
@options.left_trace
@options.right_trace
@options.trust
@options.key
@options.table
def map_(
    left: str,
    right: str | None,
    left_net: str | None,
    right_net: str | None,
    to: str | None,
    mint: bool,
    output: str | None,
    force: bool,
    left_trace: str | None,
    right_trace: str | None,
    trust: bool,
    key: str | None,
    table: bool,
) -> None:
    """Say which weight of LEFT is which of RIGHT, how sure that is and why.

    LEFT and RIGHT are checkpoints (.pth, .ckpt, .safetensors, an index of shards). Without RIGHT the names in the other
    framework are predicted. Exit code: 0 everything has its place, 1 something is ambiguous or alone.
    """
    check_output(output, "--output", force=force)
    source = api.net_from(left_net, of=left) if left_net else left
    target = api.net_from(right_net) if right_net else right
    traces = options.traces(left_trace, right_trace)
    found = api.map_weights(source, target, to=to, mint=mint, traces=traces, trust=trust, key=None if left_net else key)
    if output:
        api.write_weight_map(found, output)
    click.echo(api.map_text(found, table=table))
    raise click.exceptions.Exit(0 if found.complete else 1)
