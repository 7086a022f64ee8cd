"""`twintrace compare`: where two runs part."""

from __future__ import annotations

import click

from .. import api


@click.command()
@click.argument("left", type=click.Path())
@click.argument("right", type=click.Path())
def compare(left: str, right: str) -> None:
    """Say where two runs of the same program first part.

    LEFT and RIGHT are traces. Calls are paired by their addresses and values by their bits. Exit code: 0 they agree, 1 they
    part, 2 they could not be compared.
    """
    found = api.compare(left, right)
    click.echo(api.verdict(found))
    raise click.exceptions.Exit(0 if found.agree else 1)
