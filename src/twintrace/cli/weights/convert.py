"""`twintrace weights convert`: carry weights over."""

from __future__ import annotations

import click

from ... import api
from ..outputs import check_output, force
from ..progress import bar
from . import options


@click.command()
@click.argument("source", type=options.ANY)
@click.argument("target", type=options.FILE)
@options.given_map
@click.option(
    "--like", type=options.ANY, help="A checkpoint of the net that TARGET is for: names are found, not predicted."
)
@click.option("--like-net", metavar="FILE.py:NAME", help="The same, from the net itself.")
@click.option("--to", type=click.Choice(["mindspore", "torch"]), help="Whose names a .safetensors TARGET gets.")
@click.option("--mint", is_flag=True, help="Names of mindspore.mint.nn, not of mindspore.nn.")
@click.option("--partial", is_flag=True, help="Carry over what can be, although something stays behind.")
@force
@options.left_trace
@options.right_trace
@options.trust
@options.key
@options.table
def convert(
    source: str,
    target: str,
    map_file: str | None,
    like: str | None,
    like_net: str | None,
    to: str | None,
    mint: bool,
    partial: bool,
    force: bool,
    left_trace: str | None,
    right_trace: str | None,
    trust: bool,
    key: str | None,
    table: bool,
) -> None:
    """Carry the weights in SOURCE over to TARGET, a file for the other framework.

    The format follows TARGET's name: .ckpt (MindSpore), .pth (PyTorch), .safetensors. It is written completely or not at all, and
    a file that is there already is not overwritten without --force.
    """
    check_output(target, "TARGET", force=force)
    template = api.net_from(like_net) if like_net else like
    with bar() as progress:
        found = api.convert_weights(
            source,
            target,
            map=map_file,
            like=template,
            to=to,
            mint=mint,
            partial=partial,
            force=force,
            traces=options.traces(left_trace, right_trace),
            trust=trust,
            key=key,
            progress=progress,
        )
    click.echo(api.conversion_text(found, table=table))
