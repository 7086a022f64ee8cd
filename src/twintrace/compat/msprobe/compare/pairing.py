"""Which item of one dump stands beside which of the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....model.pairs import Layout
from ..dumps import Item


@dataclass(frozen=True, slots=True)
class ItemPair:
    """A row: two items that belong together, or one that has no partner, and why.

    `layout` is how the bench's tensor is to be laid to lie on the npu's: as it is, unless the pair was found by values.
    """

    npu: Item | None
    bench: Item | None
    because: str = ""
    layout: Layout = field(default_factory=Layout)
