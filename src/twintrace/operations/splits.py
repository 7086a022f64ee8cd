"""Parameters that hold several others: the rows of a whole that each part has, and what is beside them in the gradients.

split_of(whole, others)           Split(axis, {0: Rows(…), 2: Rows(…)}) of those that are parts of it; None if none is
split.of(0, gradient)             the rows of a part, of a tensor of the shape of the whole
split.as_laid(0, gradient)        the gradient of a part as it lies in the whole
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

Tensor = torch.Tensor

_TOLD = 32
"""Elements by which a row is known."""


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
    """Rows of `whole` that smaller tensors have, each row in one of them."""
    for axis in range(whole.ndim):
        places: dict[bytes, list[int]] = {}
        for place, row in enumerate(_rows(whole, axis)):
            places.setdefault(row, []).append(place)
        if len(places) < 2:
            continue  # rows of a constant tell nothing
        found = {
            number: rows
            for number, other in enumerate(others)
            if other.numel() < whole.numel() and (rows := _taken(other, whole, axis, places)) is not None
        }
        if found:
            return Split(axis, found)
    return None


def _taken(part: Tensor, whole: Tensor, axis: int, places: dict[bytes, list[int]]) -> Rows | None:
    """Rows of one part, which are no other's afterwards."""
    for turned in (False, True) if part.ndim == 2 else (False,):
        laid = part.T if turned else part
        other = [number for number in range(laid.ndim) if number != axis]
        if laid.ndim != whole.ndim or any(laid.shape[number] != whole.shape[number] for number in other):
            continue
        rows = _rows(laid, axis)
        if rows and all(len(places.get(row, ())) >= rows.count(row) for row in set(rows)):
            return Rows(tuple(places[row].pop(0) for row in rows), turned)
    return None


def _rows(tensor: Tensor, axis: int) -> list[bytes]:
    """Bytes of some elements of each row."""
    rows = tensor.detach().movedim(axis, 0).reshape(tensor.shape[axis], -1)
    step = max(rows.shape[1] // _TOLD, 1)
    return [row.tobytes() for row in rows[:, ::step].double().contiguous().numpy()]
