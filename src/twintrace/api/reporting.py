"""Results on paper: the press, fetched when it is asked for, because recording must not need its libraries."""

from __future__ import annotations

from typing import Any

from ..model.results import Comparison, Listing


def print_tree(listing: Listing, console: Any) -> None:
    """A trace as a tree, one branch for each step and rank."""
    from ..report import tree

    tree.print_tree(listing, console)


def print_table(listing: Listing, console: Any) -> None:
    """A trace as a flat table."""
    from ..report import tree

    tree.print_table(listing, console)


def listing_json(listing: Listing) -> str:
    """A trace's listing for machines."""
    from ..report import tree

    return tree.as_json(listing)


def print_pairs(comparison: Comparison, console: Any) -> None:
    """All pairs of a comparison as a table, and what is alone."""
    from ..report import pairs

    pairs.print_pairs(comparison, console)
