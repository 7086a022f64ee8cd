"""Files that a command is going to write: looked at before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path

import click

STDOUT = Path("-")

force = click.option("--force", is_flag=True, help="Overwrite what is there already.")


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
