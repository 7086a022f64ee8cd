"""The grid in which the ranks of a run lie, as their process groups tell.

groups (0, 1) (2, 3) (0, 2) (1, 3)    ->  a mesh of 2 × 2: rank = 2·row + column
groups (0, 1, 2, 3)                   ->  a line of 4
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks in a grid, the last axis running fastest: the ranks in order are those of the grid, row by row."""

    shape: tuple[int, ...]
    micro: bool = False
    """True if the last axis is that of the micro-batches of each rank."""

    @classmethod
    def line(cls, count: int) -> Mesh:
        return cls((count,))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank_axes(self) -> tuple[int, ...]:
        """Axes along which the ranks lie."""
        return tuple(range(len(self.shape) - self.micro))

    def coordinates(self, place: int) -> tuple[int, ...]:
        """Indices of a position along the axes."""
        indices = []
        for length in reversed(self.shape):
            place, index = divmod(place, length)
            indices.append(index)
        return tuple(reversed(indices))

    def lines(self, axis: int) -> list[tuple[int, ...]]:
        """Positions of the ranks that differ along one axis alone."""
        stride = math.prod(self.shape[axis + 1 :])
        length = self.shape[axis]
        starts = [number for number in range(self.size) if (number // stride) % length == 0]
        return [tuple(start + step * stride for step in range(length)) for start in starts]

    def groups_along(self, axes: Sequence[int]) -> list[tuple[int, ...]]:
        """Positions of the ranks that differ along some axes alone."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for place in range(self.size):
            rest = tuple(index for axis, index in enumerate(self.coordinates(place)) if axis not in axes)
            groups.setdefault(rest, []).append(place)
        return [tuple(places) for places in groups.values()]

    def axes_of(self, ranks: Collection[int]) -> tuple[int, ...] | None:
        """Axes along which a group of ranks lies that holds the first of its line on all others; None if it lies otherwise."""
        if self.micro:
            return Mesh(self.shape[:-1]).axes_of(ranks)
        if len(ranks) == self.size:
            return tuple(range(len(self.shape)))
        axes = [axis for axis in range(len(self.shape)) if tuple(sorted(ranks)) in self.lines(axis)]
        return tuple(axes[:1]) if axes else None

    def __str__(self) -> str:
        return " × ".join(map(str, self.shape))


def mesh_of(count: int, groups: Iterable[Sequence[int]]) -> Mesh:
    """The mesh of `count` ranks by their process groups: those of one size and stride that hold every rank are an axis."""
    by_form: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for group in {tuple(sorted(group)) for group in groups}:
        if not 1 < len(group) < count:
            continue
        stride = group[1] - group[0]
        if all(two - one == stride for one, two in itertools.pairwise(group)):
            by_form.setdefault((stride, len(group)), set()).add(group)
    forms = sorted(form for form, members in by_form.items() if len({rank for one in members for rank in one}) == count)
    sizes: list[int] = []
    stride = 1
    for step, length in forms:
        if step % stride or step < stride:
            return Mesh.line(count)
        if step > stride:  # an axis that no group was made for
            sizes.append(step // stride)
        sizes.append(length)
        stride = step * length
    if count % stride:
        return Mesh.line(count)
    if stride < count:
        sizes.append(count // stride)
    return Mesh(tuple(reversed(sizes)))
