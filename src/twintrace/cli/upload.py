"""`twintrace upload`: a trace, or what has not arrived of it, to another file system."""

from __future__ import annotations

import click

from .. import api
from .outputs import bar


@click.command()
@click.argument("trace", type=click.Path(), required=False)
@click.argument("address", required=False)
@click.option("--resume", is_flag=True, help="ADDRESS may hold earlier steps of the same run.")
def upload(trace: str | None, address: str | None, resume: bool) -> None:
    """Send a recorded run to another file system: s3://bucket/runs/a, or what else fsspec knows.

    TRACE is its folder here. ADDRESS may be left out where the run was recorded to one: what has not arrived is sent. Without
    TRACE everything is sent that waits in the default folder of such runs. Exit code: 0 all of it is there, 1 something is not.
    """
    folders = [trace] if trace is not None else api.waiting_uploads()
    if not folders:
        click.echo("nothing waits to be uploaded")
    missing = False
    for folder in folders:
        with bar() as progress:
            left = api.upload(folder, address, resume=resume, progress=progress)
        click.echo(f"{folder}: all of it is there" if left is None else str(left))
        missing = missing or left is not None
    raise click.exceptions.Exit(1 if missing else 0)
