"""Options that several of the commands have."""

from __future__ import annotations

import click

FILE = click.Path(dir_okay=False)
ANY = click.Path()

trust = click.option(
    "--trust", is_flag=True, help="Load a .pth file that cannot be read otherwise. This runs code out of the file."
)
key = click.option("--key", metavar="NAME", help="Where in a .pth file the state dict is, e.g. model.ema.")
table = click.option("--table", is_flag=True, help="All rows, not only those that need attention.")
given_map = click.option(
    "--map", "map_file", type=FILE, help="A map made by `twintrace weights map -o`, or by TroubleShooter."
)
