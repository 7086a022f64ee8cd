"""Which saved array belongs to which: by name, by number, by shape.

    by_name      loss.npy  | loss.npy          the same name
    by_number    3_x.npy   | x_float32_3.npy   the first beside the first, the second beside the second …
    by_shape     f32[5, 10], f32[5], f32[3]    the longest sequence of shapes that both have, in their order
                 f32[5, 10],         f32[3]

In: names, or shapes, in the order in which they were saved. Out: positions of both sides; None where there is no partner, so every
one of either side is there exactly once. Nothing is opened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest

__all__ = ["by_name", "by_number", "by_shape"]

Positions = list[tuple[int | None, int | None]]


def by_name(left: Sequence[str], right: Sequence[str]) -> Positions:
    """The same name; then what only the right has."""
    there = {name: position for position, name in enumerate(right)}
    pairs: Positions = [(position, there.pop(name, None)) for position, name in enumerate(left)]
    return [*pairs, *((None, position) for position in there.values())]


def by_number(left: Sequence[object], right: Sequence[object]) -> Positions:
    """One after the other."""
    return list(zip_longest(range(len(left)), range(len(right))))


def by_shape(
    left: Sequence[Hashable], right: Sequence[Hashable], *, drop: float = 1, add: float = 1, change: float = 5
) -> tuple[Positions, float]:
    """The cheapest way to make the left sequence of shapes out of the right one, and what it costs.

    drop, add   what it costs that one of the left, or of the right, has no partner
    change      what it costs that two of different shapes are partners; dearer than both by themselves, unless told otherwise
    """
    if list(left) == list(right):
        return by_number(left, right), 0.0
    costs, ways = _tables(left, right, drop, add, change)
    return [*_back(ways, len(left), len(right))][::-1], costs


_PAIR, _DROP, _ADD = 0, 1, 2


def _tables(
    left: Sequence[Hashable], right: Sequence[Hashable], drop: float, add: float, change: float
) -> tuple[float, list[bytearray]]:
    """The costs, and the way back from each pair of positions."""
    above = [add * position for position in range(len(right) + 1)]
    ways = [bytearray([_ADD]) * (len(right) + 1)]
    for number, shape in enumerate(left, 1):
        row, way = [drop * number], bytearray([_DROP]) * (len(right) + 1)
        for position, other in enumerate(right, 1):
            dropped, added = above[position] + drop, row[-1] + add
            if shape == other:  # of equal ways the one that has the earlier of the left beside it
                cost, step = above[position - 1], _PAIR
                if dropped == cost:
                    step = _DROP
            else:
                cost, step = min(
                    (dropped, _DROP), (added, _ADD), (above[position - 1] + change, _PAIR), key=lambda item: item[0]
                )
            row.append(cost)
            way[position] = step
        above = row
        ways.append(way)
    return above[-1], ways


def _back(ways: Sequence[bytearray], number: int, position: int) -> Iterator[tuple[int | None, int | None]]:
    while number or position:
        step = _DROP if not position else _ADD if not number else ways[number][position]
        number, position = number - (step != _ADD), position - (step != _DROP)
        yield (number if step != _ADD else None, position if step != _DROP else None)
