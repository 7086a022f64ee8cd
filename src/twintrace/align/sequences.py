"""Lay two sequences side by side by what their members have in common.

    left    a  b  b  c  d           pairs (0, 0) (1, 1) (3, 2) (4, 4)
    right   a  b  c  x  d           where b b against b is settled by other features than the letter

Members are described by features: numbers that are equal where two members agree, -1 where nothing is known. First come
anchors: members whose key (a combination of features) occurs once on each side of the stretch looked at, the longest chain of
them that runs forward on both sides (as in a patience diff). Calls between two anchors are looked at again, by the same
key and then by weaker ones. The rest is aligned by dynamic programming over the sum of the features' weights, in a band
along the diagonal where it is long. So the cost is close to linear wherever anything in the two sequences is recognisable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
_BAND = 192
_FULL = 1 << 21  # cells of a table that is filled whole
_FEW = 24  # cells of a table that is sooner filled than an array is made
_SLACK = 1e-3  # sums that differ by less are equal
_AGAIN = 6  # times that a key is tried again within the stretches that it left


Row = Sequence[int]
"""The features of one member."""
Worth = Sequence[tuple[float, float]]
"""Of each feature: what agreement adds to a sum, what disagreement takes off."""


class _Rows(NamedTuple):
    left: Numbers
    right: Numbers
    worth: Worth


class Link(NamedTuple):
    """A pair of members, by position; `sure` if a key singled them out, and not only a sum of features."""

    left: int
    right: int
    sure: bool


class _Stretch(NamedTuple):
    left: Numbers
    right: Numbers
    tier: int
    tries: int


def match_sequences(
    left: Sequence[Row], right: Sequence[Row], worth: Worth, tiers: Sequence[Sequence[int]], *, least: float
) -> list[Link]:
    """Pairs of positions, increasing on both sides. `tiers` are the keys, each a list of features, the surest first.

    `left` and `right` are the members to be aligned, a row of features each. Pairs that only the table of sums supports need
    a sum of at least `least`.
    """
    if not (left and right):
        return []
    if len(left) * len(right) <= _FEW:
        return [Link(i, j, False) for i, j in _few(left, right, worth, least)]
    rows = _Rows(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64), worth)
    keys = [_keys(rows, tier) for tier in tiers]
    found: list[Link] = []
    waiting = [_Stretch(np.arange(len(left)), np.arange(len(right)), 0, 0)]
    while waiting:
        stretch = waiting.pop()
        if len(stretch.left) * len(stretch.right) <= _FEW:
            ours, theirs = stretch.left.tolist(), stretch.right.tolist()
            pairs = _few([left[i] for i in ours], [right[j] for j in theirs], worth, least)
            found += [Link(ours[i], theirs[j], False) for i, j in pairs]
            continue
        if stretch.tier == len(tiers):
            found += _table(stretch.left, stretch.right, rows, least)
            continue
        anchors = _anchors(keys[stretch.tier][0][stretch.left], keys[stretch.tier][1][stretch.right])
        if not anchors:
            waiting.append(_Stretch(stretch.left, stretch.right, stretch.tier + 1, 0))
            continue
        found += [Link(int(stretch.left[i]), int(stretch.right[j]), True) for i, j in anchors]
        tier, tries = (stretch.tier, stretch.tries + 1) if stretch.tries < _AGAIN else (stretch.tier + 1, 0)
        ends = [*anchors, (len(stretch.left), len(stretch.right))]
        start = (0, 0)
        for i, j in ends:
            if i > start[0] and j > start[1]:
                waiting.append(_Stretch(stretch.left[start[0] : i], stretch.right[start[1] : j], tier, tries))
            start = i + 1, j + 1
    return sorted(found)


def _keys(rows: _Rows, tier: Sequence[int]) -> tuple[Numbers, Numbers]:
    """One number for each combination of the features' values; -1 where one of them is unknown."""
    both = np.concatenate((rows.left[:, tier], rows.right[:, tier]))
    _, numbers = np.unique(both, axis=0, return_inverse=True)
    numbers = np.where((both < 0).any(axis=1), -1, numbers.reshape(-1))
    return numbers[: len(rows.left)], numbers[len(rows.left) :]


def _anchors(left: Numbers, right: Numbers) -> list[tuple[int, int]]:
    """Positions of the members whose key occurs once on each side; the longest chain that runs forward on both."""
    if len(left) == len(right) and (left >= 0).all() and (left == right).all():
        return [(i, i) for i in range(len(left))]  # the same all along: repeated members are no riddle
    ours, theirs = _once(left), _once(right)
    common, at, there = np.intersect1d(ours[0], theirs[0], assume_unique=True, return_indices=True)
    if not len(common):
        return []
    pairs = sorted(zip(ours[1][at].tolist(), theirs[1][there].tolist(), strict=True))
    return longest_chain(pairs)


def _once(keys: Numbers) -> tuple[Numbers, Numbers]:
    values, first, counts = np.unique(keys, return_index=True, return_counts=True)
    once = (counts == 1) & (values >= 0)
    return values[once], first[once]


def longest_chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of pairs, sorted by their first, whose seconds increase as well."""
    tails: list[int] = []
    ends: list[int] = []
    back = [-1] * len(pairs)
    for index, (_, value) in enumerate(pairs):
        at = bisect_left(tails, value)
        if at == len(tails):
            tails.append(value)
            ends.append(index)
        else:
            tails[at], ends[at] = value, index
        back[index] = ends[at - 1] if at else -1
    chain = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chain.append(pairs[index])
        index = back[index]
    return chain[::-1]


def _sums(left: Numbers, right: Numbers, rows: _Rows) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The evidence for each pair, as a table."""
    total = np.zeros((len(left), len(right)), dtype=np.float32)
    for feature, (weight, against) in enumerate(rows.worth):
        ours, theirs = rows.left[left, feature][:, None], rows.right[right, feature][None, :]
        known = (ours >= 0) & (theirs >= 0)
        total += np.where(known & (ours == theirs), np.float32(weight), np.float32(0))
        if against:
            total -= np.where(known & (ours != theirs), np.float32(against), np.float32(0))
    return total


def _table(left: Numbers, right: Numbers, rows: _Rows, least: float) -> list[Link]:
    """The forward chain of pairs with the largest sum."""
    if len(left) * len(right) > _FULL:
        return _banded(left, right, rows, least)
    worth = _sums(left, right, rows) - np.float32(least)
    best = np.zeros((len(left) + 1, len(right) + 1), dtype=np.float32)
    for i in range(len(left)):
        row = np.maximum(best[i, 1:], best[i, :-1] + worth[i])
        np.maximum.accumulate(row, out=best[i + 1, 1:])
    return [Link(int(left[i]), int(right[j]), False) for i, j in _settled(best.tolist(), worth.tolist())]


def _settled(best: list[list[float]], worth: list[list[float]]) -> list[tuple[int, int]]:
    """The pairs that the best chains of a table agree in: the one that runs as early as it can, and the one as late.

    One call beside two that are just like it may belong to either. That is for the flow of data to say, not for a coin.
    """
    ways: list[set[tuple[int, int]]] = []
    for late in (False, True):
        way = set()
        i, j = len(best) - 1, len(best[0]) - 1
        while i and j:
            here, up, back = best[i][j], best[i - 1][j], best[i][j - 1]
            pays = worth[i - 1][j - 1] > 0 and best[i - 1][j - 1] + worth[i - 1][j - 1] >= here - _SLACK
            if pays and (late or (here - up > _SLACK and here - back > _SLACK)):
                i, j = i - 1, j - 1
                way.add((i, j))
            elif here - up <= _SLACK:
                i -= 1
            else:
                j -= 1
        ways.append(way)
    return sorted(ways[0] & ways[1])


def _few(left: Sequence[Row], right: Sequence[Row], worth: Worth, least: float) -> list[tuple[int, int]]:
    """The same for a handful of members."""
    sums = [[_sum(one, two, worth) - least for two in right] for one in left]
    if len(left) == len(right) == 1:
        return [(0, 0)] if sums[0][0] > _SLACK else []
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, row in enumerate(sums):
        for j, speaks in enumerate(row):
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], best[i][j] + speaks)
    return _settled(best, sums)


def _sum(left: Row, right: Row, worth: Worth) -> float:
    total = 0.0
    for one, two, (weight, against) in zip(left, right, worth, strict=True):
        if one >= 0 and two >= 0:
            total += weight if one == two else -against
    return total


def _banded(left: Numbers, right: Numbers, rows: _Rows, least: float) -> list[Link]:
    """The same in pieces along the diagonal: long stretches without anything recognisable are cut into short ones."""
    pieces = max(2, -(-max(len(left), len(right)) // (4 * _BAND)))
    found: list[Link] = []
    cuts = [np.linspace(0, len(side), pieces + 1).astype(int) for side in (left, right)]
    for piece in range(pieces):
        ours = left[cuts[0][piece] : cuts[0][piece + 1]]
        theirs = right[cuts[1][piece] : cuts[1][piece + 1]]
        found += _table(ours, theirs, rows, least)
    return found
