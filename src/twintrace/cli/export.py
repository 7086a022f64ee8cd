"""`twintrace export` and `twintrace import`: a trace as another tool's dump, and a dump as a trace."""

from __future__ import annotations

import click

from .. import api
from .outputs import bar, force

_SHOWN = 10


@click.command()
@click.argument("trace", type=click.Path())
@click.option("--to", "layout", required=True, type=click.Choice(list(api.exporters())), help="Whose dump.")
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="Where the dump goes; there must be nothing yet."
)
@force
def export(trace: str, layout: str, output: str, force: bool) -> None:
    """Write a recorded run as the dump of another tool.

    TRACE is a trace in any layout that `twintrace doctor` lists. The dump is there when it is complete, and not at all if it could
    not be written. Nothing is overwritten without --force, and never a folder that is no trace of twintrace's. Calls that the
    other layout has no place for are told. Exit code: 0 written, 1 what could be read of a damaged trace.
    """
    _convert(trace, output, layout, force)


@click.command(name="import")
@click.argument("dump", type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="Where the trace goes; there must be nothing yet."
)
@force
def import_(dump: str, output: str, force: bool) -> None:
    """Make a trace out of the dump of another tool.

    DUMP is whatever `twintrace show` opens; a dump is known by its files. `compare`, `show` and `view` take dumps as they are: a
    trace of its own is for keeping, it needs the dump no more. It is there when it is complete, and not at all if it could not
    be written; nothing is overwritten without --force. Exit code: 0 all of it, 1 what could be read of a damaged dump.
    """
    _convert(dump, output, "twintrace", force)


def _convert(path: str, output: str, layout: str, force: bool) -> None:
    source = api.open(path, tolerant=True)
    with bar() as progress:
        made = api.convert_trace(source, output, to=layout, force=force, progress=progress)
    click.echo(api.conversion_line(made))
    lost = api.not_carried(source, made)
    if lost:
        click.echo(f"  not carried over, as {layout} has no place for it: {', '.join(lost)}")
    damaged = api.damage_of(source)
    for text in damaged[:_SHOWN]:
        click.echo(f"  damaged: {text}")
    if len(damaged) > _SHOWN:
        click.echo(f"  and {len(damaged) - _SHOWN} places more")
    raise click.exceptions.Exit(1 if damaged else 0)
