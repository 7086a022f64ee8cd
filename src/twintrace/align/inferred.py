"""Pair calls whose names say little: by operation, values, parameters, shapes and order.

First the units of both sides are laid along each other (`sequences.weave`), between calls that belong together already.
Then come those that stand in another order on the two sides and are known by their values alone, and those that the flow of
data singles out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..model.sites import Phase
from .features import Numbering
from .sequences import Feature, longest_chain, sums, weave
from .strands import Strand
from .units import COLUMNS, describe, features, units
from .webs import Web

_LEAST = 3.0
"""Less than this sum of evidence is no pair: an operation alone, or a shape alone."""
_COLUMN = {name: number for number, name in enumerate(COLUMNS)}
_TIERS = (
    ("operation", "out", "weight"),
    ("operation", "weight", "out shape"),
    ("operation", "out", "in", "exact shape"),
    ("operation", "out", "in"),
    ("operation", "out", "out shape"),
    ("type", "out", "out shape"),
)
_BECAUSE = (
    "the same parameters and the same values out",
    "the same parameters",
    "the same values in and out",
    "the same values in and out",
    "the same values out",
    "the same values out",
)
_IN_LINE = "the same operation on the same shapes, in the same place between others"


class Inference:
    """Finds bonds in a web, stretch by stretch."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._numbering = Numbering()
        self.shared_weights = _shares_weights(web)

    def lay_out(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Pair the free units among these calls, stretch by stretch between those that are paired."""
        for ours, theirs in _stretches(
            self._web, units(self._web.strands[0], left), units(self._web.strands[1], right)
        ):
            for phase in Phase:
                self._stretch(*(_of_phase(self._web.strands[w], side, phase) for w, side in ((0, ours), (1, theirs))))

    def _stretch(self, left: list[int], right: list[int]) -> None:
        if not left or not right:
            return
        columns = self._columns(left, right)
        tiers = [[_COLUMN[name] for name in tier] for tier in _TIERS]
        places = np.arange(len(left)), np.arange(len(right))
        links = weave(*places, columns, tiers, least=_LEAST)
        for link in links:
            one, two = left[link.left], right[link.right]
            if link.tier >= 0:
                self._web.pair(one, two, _BECAUSE[link.tier], 0.95)
            else:
                total = float(
                    sums(places[0][link.left : link.left + 1], places[1][link.right : link.right + 1], columns)[0, 0]
                )
                self._web.pair(one, two, _IN_LINE, round(min(0.9, 0.5 + total / 30), 2))
        self._out_of_order([i for i in left if self._web.is_free(0, i)], [j for j in right if self._web.is_free(1, j)])

    def _columns(self, left: Sequence[int], right: Sequence[int]) -> list[Feature]:
        strands, classes = self._web.strands, self._web.classes
        ours = describe(strands[0], left, classes, 0, self._numbering)
        theirs = describe(strands[1], right, classes, 1, self._numbering)
        return features(ours, theirs, self.shared_weights)

    def _out_of_order(self, left: list[int], right: list[int]) -> None:
        """Calls that are known by their values alone, wherever they stand."""
        for tier, because in zip(_TIERS, _BECAUSE, strict=True):
            left = [index for index in left if self._web.is_free(0, index)]
            right = [index for index in right if self._web.is_free(1, index)]
            if not left or not right:
                return
            columns = self._columns(left, right)
            keys = [_COLUMN[name] for name in tier]
            ours, theirs = (
                _once([tuple(int(getattr(columns[k], side)[n]) for k in keys) for n in range(count)])
                for side, count in (("left", len(left)), ("right", len(right)))
            )
            for key in ours.keys() & theirs.keys():
                self._web.pair(left[ours[key]], right[theirs[key]], f"{because}, in another order", 0.9)


def _once(keys: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return {key: number for number, key in enumerate(keys) if counts[key] == 1 and min(key) >= 0}


def _of_phase(strand: Strand, members: Iterable[int], phase: Phase) -> list[int]:
    return [index for index in members if strand.calls[index].site.phase is phase]


def _stretches(web: Web, left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The free members between those that are paired with each other."""
    there = {index: number for number, index in enumerate(right)}
    fixed = []
    for number, index in enumerate(left):
        partner = web.partner(0, index)
        if partner is not None and partner in there:
            fixed.append((number, there[partner]))
    start = (0, 0)
    for i, j in [*longest_chain(fixed), (len(left), len(right))]:
        ours = [index for index in left[start[0] : i] if web.is_free(0, index)]
        theirs = [index for index in right[start[1] : j] if web.is_free(1, index)]
        if ours and theirs:
            yield ours, theirs
        start = i + 1, j + 1


def _shares_weights(web: Web) -> bool:
    """Were the parameters of one side copied from the other? Then units with other parameters are other units."""
    seen: tuple[set[int], set[int]] = set(), set()
    for which, strand in enumerate(web.strands):
        for call in strand.calls:
            for tensor in call.parameters.values():
                number = web.classes.of(which, tensor)
                if number >= 0:
                    seen[which].add(number)
    fewest = min(map(len, seen))
    return fewest > 0 and len(seen[0] & seen[1]) > 0.5 * fewest
