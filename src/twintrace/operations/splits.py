"""Parameters that hold several others: the rows of a whole that each part has, and what is beside them in the gradients.

split_of(whole, others)           Split(axis, {0: Rows(…), 2: Rows(…)}) of those that are parts of it; None if none is
split.of(0, gradient)             the rows of a part, of a tensor of the shape of the whole
split.as_laid(0, gradient)        the gradient of a part as it lies in the whole
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

Tensor = torch.Tensor

_TOLD = 32
"""Elements by which a row is known."""
_NEAR = 0.1
"""Relative distance of two rows of weights, at most, that were one before some steps in 16 bits."""
_AT_ONCE = 256
"""Rows that are looked for at once."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Places of a part's rows in the whole; `turned`: the part is the transpose of these."""

    places: tuple[int, ...]
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of a whole along an axis, by the places of the parts among the tensors that were looked at."""

    axis: int
    parts: Mapping[int, Rows]

    def of(self, part: int, tensor: Tensor) -> Tensor:
        """The rows of a part, of a tensor that has the whole's."""
        return tensor.index_select(self.axis, torch.tensor(self.parts[part].places))

    def as_laid(self, part: int, tensor: Tensor) -> Tensor:
        """A tensor of the shape of a part as its rows lie in the whole."""
        return tensor.T if self.parts[part].turned else tensor

    def rest(self, tensor: Tensor) -> Tensor:
        """The rows that are in no part."""
        taken = {place for part in self.parts.values() for place in part.places}
        free = [place for place in range(tensor.shape[self.axis]) if place not in taken]
        return tensor.index_select(self.axis, torch.tensor(free, dtype=torch.long))


def split_of(whole: Tensor, others: Sequence[Tensor]) -> Split | None:
    """Rows of `whole` that smaller tensors have, each row in one of them: with the same bits, or near as after some steps."""
    for axis in range(whole.ndim):
        rows = _Rows(_told(whole, axis))
        if len(rows.places) < 2:
            continue  # rows of a constant tell nothing
        found: dict[int, Rows] = {}
        for find in (rows.equal, rows.nearest):  # none is taken as near that has the bits of another
            for number, other in enumerate(others):
                taken = _taken(other, whole, axis, find) if number not in found else None
                if taken is not None:
                    found[number] = taken
        if found:
            return Split(axis, dict(sorted(found.items())))
    return None


class _Rows:
    """Rows of a whole, each of which is taken once."""

    def __init__(self, told: Tensor) -> None:
        self._told = told
        self._free = set(range(len(told)))
        self.places: dict[bytes, list[int]] = {}
        for place, row in enumerate(told.numpy()):
            self.places.setdefault(row.tobytes(), []).append(place)

    def equal(self, told: Tensor) -> tuple[int, ...] | None:
        """Places of rows with the same bits; None if there are too few."""
        free = {key: [place for place in places if place in self._free] for key, places in self.places.items()}
        found = [own.pop(0) for row in told.numpy() if (own := free.get(row.tobytes()))]
        return self._take(found, len(told))

    def nearest(self, told: Tensor) -> tuple[int, ...] | None:
        """Places of the rows that are nearest, if each is near."""
        if told.shape[1] < 2:
            return None
        found: list[int] = []
        for part in told.split(_AT_ONCE):
            distances, places = torch.cdist(part, self._told).min(1)
            if bool((distances > _NEAR * part.norm(dim=1)).any()):
                return None
            found += places.tolist()
        return self._take(found, len(told))

    def _take(self, found: Sequence[int], size: int) -> tuple[int, ...] | None:
        if not size or len(found) != size or len(set(found)) != size or not self._free.issuperset(found):
            return None
        self._free.difference_update(found)
        return tuple(found)


def _taken(part: Tensor, whole: Tensor, axis: int, find: Callable[[Tensor], tuple[int, ...] | None]) -> Rows | None:
    """Rows of one part, which are no other's afterwards."""
    for turned in (False, True) if part.ndim == 2 else (False,):
        laid = part.T if turned else part
        other = [number for number in range(laid.ndim) if number != axis]
        if laid.ndim != whole.ndim or part.numel() >= whole.numel():
            continue
        if all(laid.shape[number] == whole.shape[number] for number in other):
            places = find(_told(laid, axis))
            if places is not None:
                return Rows(places, turned)
    return None


def _told(tensor: Tensor, axis: int) -> Tensor:
    """Some elements of each row."""
    rows = tensor.detach().movedim(axis, 0).reshape(tensor.shape[axis], -1)
    return rows[:, :: max(rows.shape[1] // _TOLD, 1)].double().contiguous()
