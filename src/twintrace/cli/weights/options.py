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
left_trace = click.option(
    "--left-trace", type=ANY, help="A trace of LEFT's net: where layers are alike, the order of their use decides."
)
right_trace = click.option("--right-trace", type=ANY, help="A trace of RIGHT's net; with --left-trace.")


def traces(left: str | None, right: str | None) -> tuple[str, str] | None:
    """Both traces, or none."""
    if left is None and right is None:
        return None
    if left is None or right is None:
        raise click.UsageError("--left-trace and --right-trace belong together.")
    return left, right
