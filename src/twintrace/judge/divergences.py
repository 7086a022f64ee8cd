"""Which of all the differences is the first, and whose is it?

    found = divergences(left, right, differences, differing, step, rank)    what two paired calls have to do with it
    earliest(found)                                                         where the two runs part

A difference is a call's own when what came in agrees; otherwise it is inherited, and the cause lies before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..model.records import Call
from ..model.results import Difference, Divergence
from ..model.sites import Phase
from .sameness import different_settings


def divergences(
    left: Call, right: Call, found: Sequence[Difference], differing: set[int], step: int, rank: int
) -> Iterator[Divergence]:
    """At most one for the values and one for the gradients. What came in decides whether the difference is the call's own.

    A module whose inputs agree, but which has something inside that differs, is not where the difference arose.
    """
    values = tuple(item for item in found if not item.role.startswith("gradient"))
    gradients = tuple(item for item in found if item.role.startswith("gradient"))
    settings = different_settings(left, right)
    if (values or left.id in differing) and left.parent is not None:
        differing.add(left.parent)
    if values:
        came_in = tuple(item for item in values if item.role in ("input", "parameter"))
        yield Divergence(step, rank, left, right, came_in or values, bool(came_in) or left.id in differing, settings)
    if gradients:
        came_in = tuple(item for item in gradients if item.role.startswith("gradient of the output"))
        yield Divergence(step, rank, left, right, came_in or gradients, bool(came_in), settings, backward=True)


def earliest(found: Iterable[Divergence]) -> Divergence | None:
    """Where the two runs part; None if they do not."""
    return min(found, key=_earliness, default=None)


def _earliness(item: Divergence) -> tuple[int, int, bool, int, int]:
    """The first step; in it forward, then backward, then the update; there the first that is not inherited, if there is one."""
    kind = 1 if item.backward else 2 if item.left.site.phase == Phase.UPDATE else 0
    orders = [gradient.order for gradient in item.left.gradients] if item.backward else []
    return item.step, kind, item.inherited, item.rank, min(orders, default=item.left.order)
