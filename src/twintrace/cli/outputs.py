"""The terminal and the files of a command: consoles, the bar for long work, paths looked at before the work and not after it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from ..api import progress_bar
from ..model.words import Progress

STDOUT = Path("-")

force = click.option("--force", is_flag=True, help="Overwrite what is there already.")


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; for a file or a pipe nothing is folded: the next program wants whole names."""
    screen = Console(stderr=stderr)
    return screen if screen.is_terminal else Console(stderr=stderr, width=1000)


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Progress | None]:
    """A bar on the terminal; where nothing is to be printed, none, and no notice of what takes long either."""
    if not quiet:
        with progress_bar() as shown:
            yield shown
        return
    log = logging.getLogger("twintrace")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield None
    finally:
        log.setLevel(before)


def check_output(path: str | Path | None, option: str, *, force: bool = True) -> None:
    """Refuse a path that cannot be written, and one that is there already unless `force` says that it may go."""
    if path is None or Path(path) == STDOUT:
        return
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise click.UsageError(f"{option} {target}: the folder {folder} does not exist. Make it, or give another path.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise click.UsageError(f"{option} {target}: the folder {folder} is not writable. Give another path.")
    if target.is_dir():
        raise click.UsageError(f"{option} {target}: that is a folder. Give the name of a file.")
    if not force and target.exists():
        raise click.UsageError(f"{option} {target}: is there already. Give another path, or --force to overwrite it.")
