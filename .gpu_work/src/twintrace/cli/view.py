"""`twintrace view`: look at a report or a trace in the browser."""

from __future__ import annotations

import contextlib
import webbrowser

import click

from .. import api


@click.command()
@click.argument("path", type=click.Path(exists=True), metavar="REPORT_OR_TRACE")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Use this port; without, any that is free.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def view(path: str, port: int, no_browser: bool) -> None:
    """Open a report or a trace in the browser.

    REPORT_OR_TRACE is what `twintrace compare --json` or `--html` wrote, or a trace. The page is served to this machine only,
    under an address that nobody can guess; tensors are loaded when they are asked for. Ctrl-C stops it.
    """
    with api.view(path, port=port) as server, contextlib.suppress(KeyboardInterrupt):
        click.echo(f"{server.url}   (Ctrl-C stops)")
        if not no_browser:
            webbrowser.open(server.url)
        server.serve()
