"""`twintrace weights`: weights from one framework to the other.

    map       which weight is which            compare   shapes and values side by side
    convert   carry them over                  certify   proof that they arrived

In: files. Out: a summary, then what needs attention; exit code 0 yes, 1 no, 2 could not be done. Options that a command does not
name are those of its verb in `api`.
"""

from __future__ import annotations

from typing import Any

import click

from .. import api
from .outputs import bar, check_output, force

FILE = click.Path(dir_okay=False)
ANY = click.Path()

_trust = click.option(
    "--trust", is_flag=True, help="Load a .pth file that cannot be read otherwise. This runs code out of the file."
)
_key = click.option("--key", metavar="NAME", help="Where in a .pth file the state dict is, e.g. model.ema.")
_table = click.option("--table", is_flag=True, help="All rows, not only those that need attention.")
_map = click.option("--map", "map", type=FILE, help="A map made by `twintrace weights map -o`, or by TroubleShooter.")
_left_trace = click.option(
    "--left-trace", type=ANY, help="A trace of LEFT's net: where layers are alike, the order of their use decides."
)
_right_trace = click.option("--right-trace", type=ANY, help="A trace of RIGHT's net; with --left-trace.")


def _traces(left: str | None, right: str | None) -> tuple[str, str] | None:
    """Both traces, or none."""
    if left is None and right is None:
        return None
    if left is None or right is None:
        raise click.UsageError("--left-trace and --right-trace belong together.")
    return left, right


@click.group()
def weights() -> None:
    """Carry weights between PyTorch and MindSpore, and prove that they arrived."""


@weights.command("map")
@click.argument("left", type=ANY)
@click.argument("right", type=ANY, required=False)
@click.option("--left-net", metavar="FILE.py:NAME", help="Take LEFT's layers from this net; LEFT's names must be its.")
@click.option("--right-net", metavar="FILE.py:NAME", help="Map to this net instead of to a checkpoint.")
@click.option("--to", type=click.Choice(["mindspore", "torch"]), help="Without RIGHT: for which framework to predict.")
@click.option("--mint", is_flag=True, help="Without RIGHT: names of mindspore.mint.nn, not of mindspore.nn.")
@click.option("-o", "--output", type=FILE, help="Write the map, to be edited and given back with --map.")
@force
@_left_trace
@_right_trace
@_trust
@_key
@_table
def map_(
    left: str,
    right: str | None,
    left_net: str | None,
    right_net: str | None,
    output: str | None,
    force: bool,
    left_trace: str | None,
    right_trace: str | None,
    key: str | None,
    table: bool,
    **options: Any,
) -> None:
    """Say which weight of LEFT is which of RIGHT, how sure that is and why.

    LEFT and RIGHT are checkpoints (.pth, .ckpt, .safetensors, an index of shards). Without RIGHT the names in the other
    framework are predicted. Exit code: 0 everything has its place, 1 something is ambiguous or alone.
    """
    check_output(output, "--output", force=force)
    source = api.net_from(left_net, of=left) if left_net else left
    target = api.net_from(right_net) if right_net else right
    traces = _traces(left_trace, right_trace)
    weight_map = api.map_weights(source, target, traces=traces, key=None if left_net else key, **options)
    if output:
        api.write_weight_map(weight_map, output)
    click.echo(api.map_text(weight_map, table=table))
    raise click.exceptions.Exit(weight_map.code)


@weights.command()
@click.argument("source", type=ANY)
@click.argument("target", type=FILE)
@_map
@click.option("--like", type=ANY, help="A checkpoint of the net that TARGET is for: names are found, not predicted.")
@click.option("--like-net", metavar="FILE.py:NAME", help="The same, from the net itself.")
@click.option("--to", type=click.Choice(["mindspore", "torch"]), help="Whose names a .safetensors TARGET gets.")
@click.option("--mint", is_flag=True, help="Names of mindspore.mint.nn, not of mindspore.nn.")
@click.option("--partial", is_flag=True, help="Carry over what can be, although something stays behind.")
@force
@_left_trace
@_right_trace
@_trust
@_key
@_table
def convert(
    source: str,
    target: str,
    like: str | None,
    like_net: str | None,
    force: bool,
    left_trace: str | None,
    right_trace: str | None,
    table: bool,
    **options: Any,
) -> None:
    """Carry the weights in SOURCE over to TARGET, a file for the other framework.

    The format follows TARGET's name: .ckpt (MindSpore), .pth (PyTorch), .safetensors. It is written completely or not at all, and
    a file that is there already is not overwritten without --force.
    """
    check_output(target, "TARGET", force=force)
    template = api.net_from(like_net) if like_net else like
    traces = _traces(left_trace, right_trace)
    with bar() as progress:
        conversion = api.convert_weights(
            source, target, like=template, force=force, traces=traces, progress=progress, **options
        )
    click.echo(api.conversion_text(conversion, table=table))


@weights.command()
@click.argument("left", type=ANY)
@click.argument("right", type=ANY)
@_map
@click.option("--shapes", is_flag=True, help="Names and shapes only.")
@click.option("--rtol", type=float, default=1e-4, show_default=True, help="Allowed error relative to LEFT.")
@click.option("--atol", type=float, default=1e-4, show_default=True, help="Allowed error besides.")
@click.option("--equal-nan", is_flag=True, help="NaN is equal to NaN.")
@_trust
@_table
def compare(left: str, right: str, shapes: bool, table: bool, **options: Any) -> None:
    """Compare two checkpoints, of one framework or of two: names, shapes, values.

    Exit code: 0 they agree, 1 they differ.
    """
    with bar() as progress:
        comparison = api.compare_weights(left, right, values=not shapes, progress=progress, **options)
    click.echo(api.weight_comparison_text(comparison, table=table))
    raise click.exceptions.Exit(comparison.code)


@weights.command()
@click.argument("left", type=ANY)
@click.argument("right", type=ANY)
@_map
@click.option(
    "--left-net", metavar="FILE.py:NAME", help="The net that LEFT is a checkpoint of; with --right-net, to run both."
)
@click.option("--right-net", metavar="FILE.py:NAME", help="The net that RIGHT is a checkpoint of.")
@click.option(
    "--input", "inputs", multiple=True, metavar="SHAPE", help="An input for the nets: f32[2,3,8,8]; i64[2,5]<10."
)
@_left_trace
@_right_trace
@_trust
@_table
def certify(
    left: str,
    right: str,
    left_net: str | None,
    right_net: str | None,
    inputs: tuple[str, ...],
    left_trace: str | None,
    right_trace: str | None,
    table: bool,
    **options: Any,
) -> None:
    """Prove that every weight of LEFT arrived in RIGHT under its declared transform, or say what went wrong.

    With both nets and an input, one forward and backward pass is made in each framework and judged by what rounding can
    explain. Exit code: 0 certified, 1 not.
    """
    if (left_net is None) != (right_net is None):
        raise click.UsageError("--left-net and --right-net belong together.")
    nets = (api.net_from(left_net), api.net_from(right_net)) if left_net and right_net else None
    arrays = [api.random_input(text) for text in inputs] or None
    traces = _traces(left_trace, right_trace)
    with bar() as progress:
        certificate = api.certify_weights(
            left, right, nets=nets, inputs=arrays, traces=traces, progress=progress, **options
        )
    click.echo(api.certificate_text(certificate, table=table))
    raise click.exceptions.Exit(certificate.code)
