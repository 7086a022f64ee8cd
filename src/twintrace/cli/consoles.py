"""Where tables and trees are printed: as wide as the terminal, or as wide as they are."""

from __future__ import annotations

from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """For a file or a pipe nothing is folded: the next program wants whole names."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=1000)
