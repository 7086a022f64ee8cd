"""Pair calls whose names say little: by operation, values, parameters, shapes and order.

First the units of both sides are laid along each other (`sequences.match_sequences`), between calls that belong together already.
Then come those that stand in another order on the two sides and are known by their values alone, and those that the flow of
data singles out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..model.sites import Phase
from .features import Numbering
from .pairing import Pairing
from .sequences import longest_chain, match_sequences
from .trees import CallTree
from .units import COLUMNS, describe, worth

_LEAST = 3.0
"""Less than this sum of evidence is no pair: an operation alone, or a shape alone."""
_COLUMN = {name: number for number, name in enumerate(COLUMNS)}
_TIERS = (
    ("operation", "out", "weight"),
    ("operation", "weight", "out there", "out shape"),
    ("operation", "out", "in", "exact shape"),
    ("operation", "out", "in"),
    ("operation", "out", "out shape"),
    ("type", "out", "out shape"),
)
# Features that two calls share, the words for them, and the confidence that they give; the first that fits counts.
_SAYING = (
    (("weight", "out"), "the same parameters and the same values out", 0.95),
    (("in", "out"), "the same values in and out", 0.95),
    (("out",), "the same values out", 0.9),
    (("weight",), "the same parameters", 0.9),
    (("operation", "in"), "the same operation on the same values", 0.8),
    (("operation", "out shape"), "the same operation on the same shapes, in the same place between others", 0.7),
    (("type", "out shape"), "the same kind of module on the same shapes, in the same place between others", 0.7),
    ((), "the best that its place in the sequence offers", 0.5),
)
_KEYS = [[_COLUMN[name] for name in tier] for tier in _TIERS]
_Row = tuple[int, ...]


class Inference:
    """Finds links in a pairing, stretch by stretch."""

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing
        self._numberings = tuple(Numbering() for _ in COLUMNS)
        self._rows: tuple[dict[int, _Row], dict[int, _Row]] = {}, {}
        self.shared_weights = _shares_weights(pairing)
        self._worth = worth(self.shared_weights)

    def lay_out(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Pair the free units among these calls, stretch by stretch between those that are paired."""
        for stretch in _stretches(self._pairing, left, right):
            ours, theirs = map(_by_phase, self._pairing.trees, stretch)
            for phase in Phase:
                if phase in ours and phase in theirs:
                    self._stretch(ours[phase], theirs[phase])

    def _stretch(self, left: list[int], right: list[int]) -> None:
        rows = self._described(0, left), self._described(1, right)
        for link in match_sequences(*rows, self._worth, _KEYS, least=_LEAST):
            one, two = left[link.left], right[link.right]
            if not (self._pairing.is_free(0, one) and self._pairing.is_free(1, two)):
                continue  # a pair before it was completed with one of them
            if not self._pairing.conflict(one, two) and self._pairing.is_supported(one, two):
                self._pairing.pair(one, two, *_saying(rows[0][link.left], rows[1][link.right]))
        self._out_of_order(left, right)

    def _described(self, which: int, members: Sequence[int]) -> list[_Row]:
        known, pairing = self._rows[which], self._pairing
        for index in members:
            if index not in known:
                handing = pairing.hands_on(which, index)
                known[index] = describe(pairing.trees[which], index, handing, pairing.classes, which, self._numberings)
        return [known[index] for index in members]

    def _out_of_order(self, left: list[int], right: list[int]) -> None:
        """Calls that are known by their values alone, wherever they stand."""
        for key in _KEYS:
            left = [index for index in left if self._pairing.is_free(0, index)]
            right = [index for index in right if self._pairing.is_free(1, index)]
            if not left or not right:
                return
            rows = self._described(0, left), self._described(1, right)
            ours, theirs = (_once([tuple(row[column] for column in key) for row in side]) for side in rows)
            for common in ours.keys() & theirs.keys():
                one, two = ours[common], theirs[common]
                if not self._pairing.conflict(left[one], right[two]) and not self._gives_shuffled(
                    left[one], right[two]
                ):
                    because, confidence = _saying(rows[0][one], rows[1][two])
                    self._pairing.pair(left[one], right[two], f"{because}, in another order", confidence - 0.05)

    def _gives_shuffled(self, left: int, right: int) -> bool:
        trees = self._pairing.trees
        pairs = zip(trees[0].outputs(left), trees[1].outputs(right), strict=False)
        return any(self._pairing.is_shuffled(one.tensor, two.tensor) for one, two in pairs)


def _saying(left: _Row, right: _Row) -> tuple[str, float]:
    for names, because, confidence in _SAYING:
        if all(left[_COLUMN[name]] == right[_COLUMN[name]] >= 0 for name in names):
            return because, confidence
    raise AssertionError("the last saying fits everything")


def _once(keys: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return {key: number for number, key in enumerate(keys) if counts[key] == 1 and min(key) >= 0}


def _by_phase(tree: CallTree, members: Iterable[int]) -> dict[Phase, list[int]]:
    found: dict[Phase, list[int]] = {}
    for index in members:
        found.setdefault(tree.calls[index].site.phase, []).append(index)
    return found


def _stretches(pairing: Pairing, left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The free members between those that are paired with each other."""
    there = {index: number for number, index in enumerate(right)}
    fixed = []
    for number, index in enumerate(left):
        partner = pairing.partner(0, index)
        if partner is not None and partner in there:
            fixed.append((number, there[partner]))
    start = (0, 0)
    for i, j in [*longest_chain(fixed), (len(left), len(right))]:
        ours = [index for index in left[start[0] : i] if pairing.is_free(0, index)]
        theirs = [index for index in right[start[1] : j] if pairing.is_free(1, index)]
        if ours and theirs:
            yield ours, theirs
        start = i + 1, j + 1


def _shares_weights(pairing: Pairing) -> bool:
    """Were the parameters of one side copied from the other? Then units with other parameters are other units."""
    seen: tuple[set[int], set[int]] = set(), set()
    for which, tree in enumerate(pairing.trees):
        for call in tree.calls:
            for tensor in call.parameters.values():
                number = pairing.classes.of(which, tensor)
                if number >= 0:
                    seen[which].add(number)
    fewest = min(map(len, seen))
    return fewest > 0 and len(seen[0] & seen[1]) > 0.5 * fewest
