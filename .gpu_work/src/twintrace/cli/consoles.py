"""Where tables and trees are printed: as wide as the terminal, or as wide as they are."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """For a file or a pipe nothing is folded: the next program wants whole names."""
    found = Console()
    return found if found.is_terminal else Console(width=1000)
