"""What the project's own alignment finds in two dumps, by the names of their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....model.pairs import Layout
from ..dumps import Dump

__all__ = ["AlignedItems", "Found", "aligned"]


@dataclass(frozen=True, slots=True)
class AlignedItems:
    """Two items that belong together."""

    npu: str
    bench: str
    because: str
    layout: Layout = field(default_factory=Layout)


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs, and why the rest has no partner, by the names of items."""

    items: tuple[AlignedItems, ...]
    alone_npu: Mapping[str, str]
    alone_bench: Mapping[str, str]


def aligned(npu: Dump, bench: Dump, modules: Mapping[str, str]) -> Found:
    """Align two dumps; `modules` are paths that belong together for sure."""
    raise NotImplementedError
