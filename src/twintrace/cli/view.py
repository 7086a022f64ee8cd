"""`twintrace view`: look at a report or a trace in the browser."""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path

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
        with contextlib.nullcontext() if no_browser else _handed_over(server.url) as door:
            if door is not None:
                webbrowser.open(door)
            server.serve()


@contextlib.contextmanager
def _handed_over(address: str) -> Iterator[str | None]:
    """The address of a file that leads to the page, readable by this user only.

    The page's own address has a secret in it, and what a browser is started with can be read by every user of the machine.
    """
    private = os.environ.get("XDG_RUNTIME_DIR")
    place = private if private and os.access(private, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="twintrace-", dir=place) as folder:  # mode 700
        file = Path(folder) / "view.html"
        goal = html.escape(address)
        file.write_text(
            f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={goal}"><title>twintrace</title><a href="{goal}">The page</a>\n',
            encoding="utf-8",
        )
        file.chmod(0o600)
        yield file.as_uri()
