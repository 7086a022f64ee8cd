"""Numbers for values: tensors of both sides that hold the same, to rounding, get the same number.

    left 17   f32[2, 4, 6, 6]   norm 8.4132   max 2.1  …      →  31
    right 9   f32[2, 6, 6, 4]   norm 8.4133   max 2.1  …      →  31       the same elements in another order
    right 11  f32[4]            all zero                      →  -1       every second bias is: that tells nothing

Elements, not shapes: a reshaped, permuted or cast tensor has the number of what it was made of. Tensors are sorted by norm,
then by maximum, minimum and mean within what the norm leaves together, and cut where two neighbours lie further apart than
rounding can explain. That is one sort for each statistic, whatever the number of tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..model.tensors import Tensor
from .trees import CallTree
from .values import Fill, fill_of, is_constant, numel, rounding, scale_of

_Array = np.ndarray[Any, Any]


class Classes:
    """The numbers of the tensors of two trees."""

    def __init__(self, left: CallTree, right: CallTree, tensors: tuple[Iterable[int], Iterable[int]]) -> None:
        keys: tuple[list[int], list[int]] = [], []
        rows: list[tuple[float, ...]] = []
        for which, (tree, wanted) in enumerate(zip((left, right), tensors, strict=True)):
            for identity in dict.fromkeys(wanted):
                row = _row(tree.tensor(identity))
                if row is not None:
                    keys[which].append(identity)
                    rows.append(row)
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 8)
        numbers: list[int] = _clusters(table).tolist()
        ours, theirs = numbers[: len(keys[0])], numbers[len(keys[0]) :]
        self._numbers = dict(zip(keys[0], ours, strict=True)), dict(zip(keys[1], theirs, strict=True))
        self._shared = set(ours) & set(theirs)

    def of(self, which: int, identity: int) -> int:
        """The number of a tensor of side `which` (0 left, 1 right); -1 if its values tell nothing."""
        return self._numbers[which].get(identity, -1)

    @property
    def any_shared(self) -> bool:
        """Do both sides have anything in common that tells something?"""
        return bool(self._shared)

    def shared(self, number: int) -> bool:
        """Do both sides have such values?"""
        return number in self._shared


def _row(tensor: Tensor) -> tuple[float, ...] | None:
    """Size, what is not finite, tolerance, then norm, extremes and mean relative to what they are compared by."""
    found = tensor.statistics
    if found is None or is_constant(found, numel(tensor)) or found.norm is None or found.mean is None:
        return None
    fill = fill_of(found, numel(tensor))
    if fill is Fill.MIXED:
        return None  # its statistics are those of the mask
    assert found.min is not None
    assert found.max is not None
    tolerance = rounding(tensor)
    odd = float(found.nan + found.posinf + found.neginf) + (0.5 if fill is Fill.PURE else 0.0)
    scale = scale_of(found)
    return float(numel(tensor)), odd, tolerance, scale, found.norm, float(found.max), float(found.min), found.mean


def _clusters(table: _Array) -> _Array:
    count = len(table)
    if not count:
        return np.zeros(0, dtype=np.int64)
    _, group = np.unique(table[:, :2], axis=0, return_inverse=True)
    group = np.asarray(group).reshape(-1)
    for column in (4, 5, 6, 7, 4):
        values = table[:, column]
        bounds = table[:, 2] * (np.abs(values) if column == 4 else table[:, 3])
        order = np.lexsort((values, group))
        ordered = values[order]
        apart = np.diff(ordered) > np.maximum(bounds[order][1:], bounds[order][:-1])
        fresh = np.concatenate(([False], apart | (np.diff(group[order]) != 0)))
        numbers = np.cumsum(fresh)
        group = np.empty(count, dtype=np.int64)
        group[order] = numbers
    return group
