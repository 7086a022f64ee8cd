"""Pair the gradients of parameters: they go where their parameters go.

norm.weight     norm.gamma        the parameters of two modules that belong together
head.bias       head.bias         the same name, where no module says anything
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..model.pairs import Match, Part, Stray, TensorPair
from ..model.records import Gradient
from ..model.sites import Kind


class Gradients(NamedTuple):
    """What an Alignment says of them."""

    pairs: tuple[TensorPair, ...]
    only_left: tuple[Stray, ...]
    only_right: tuple[Stray, ...]


def pair_gradients(left: Iterable[Gradient], right: Iterable[Gradient], matches: Sequence[Match]) -> Gradients:
    """The gradients of parameters that belong together, and those that only one side has."""
    names = _partners(matches)
    theirs = {(item.slot, count): item for count, item in _counted(right)}
    pairs, strays = [], []
    for count, item in _counted(left):
        partner = names.get(item.slot, item.slot)
        other = theirs.pop((partner, count), None)
        if other is None:
            strays.append(Stray(Part.PARAMETER_GRADIENT, item.slot, item.tensor, _WHY))
        else:
            because = "" if partner == item.slot else "their parameters belong together"
            pairs.append(
                TensorPair(
                    Part.PARAMETER_GRADIENT, item.slot, partner, item.tensor, other.tensor, because=because, count=count
                )
            )
    left_over = [Stray(Part.PARAMETER_GRADIENT, item.slot, item.tensor, _WHY) for item in theirs.values()]
    return Gradients(tuple(pairs), tuple(strays), tuple(left_over))


_WHY = "the other side has no gradient of such a parameter"


def _counted(gradients: Iterable[Gradient]) -> Iterator[tuple[int, Gradient]]:
    counts: dict[str, int] = {}
    for item in gradients:
        counts[item.slot] = counts.get(item.slot, -1) + 1
        yield counts[item.slot], item


def _partners(matches: Sequence[Match]) -> dict[str, str]:
    """Full names of parameters on the left, and what they are called on the right."""
    names: dict[str, str] = {}
    for match in matches:
        if (
            len(match.left) == len(match.right) == 1
            and match.left[0].site.kind is match.right[0].site.kind is Kind.MODULE
        ):
            one, two = match.left[0].site.name, match.right[0].site.name
            for pair in match.tensors:
                if pair.part is Part.PARAMETER:
                    names.setdefault(_full(one, pair.left_slot), _full(two, pair.right_slot))
    return names


def _full(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name
