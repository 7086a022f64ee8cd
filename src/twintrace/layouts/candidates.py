"""Placements that a group of tensors may have, beside a whole of a given shape, and which of them its values speak for.

fitting(wholes, 7, (16, 8))                     [(shard(0),)]: the pieces make up this shape along axis 0
distance(wholes, 7, parts, reference)           relative distance of the whole from the reference
in_blocks(wholes, 7, parts, reference, 1.4)     shard(0) in 3 blocks: queries, keys and values in one weight
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..store.arrays import as_float
from .placements import REPLICATE, Array, Part, Placements, cut_apart, put_together, shard, whole_shape
from .wholes import Wholes, relative

NEAR = 0.02
"""Relative error up to which a value is taken for the one that a call computes: bf16 has three digits, and its sums fewer."""
_CLOSER = 4.0
"""Times by which the nearest of several candidates must be nearer than the next where none is near."""
_BLOCKS = 64
"""Most blocks into which an axis is cut before the pieces of a rank are taken from each."""


def sharded(wholes: Wholes, group: int) -> list[tuple[Placements, tuple[int, ...]]]:
    """Copies and pieces that the tensors may be, along each axis of the mesh, and the shapes of the wholes."""
    shapes = wholes.shapes(group)
    candidates = []
    for axes in itertools.product((None, *range(len(shapes[0]))), repeat=len(wholes.mesh.shape)):
        parts = tuple(REPLICATE if axis is None else shard(axis) for axis in axes)
        shape = whole_shape(shapes, wholes.mesh, parts)
        if shape is not None:
            candidates.append((parts, shape))
    return candidates


def possible_shapes(wholes: Wholes, group: int) -> list[tuple[int, ...]]:
    """Shapes of all wholes that the tensors of the ranks may be pieces of."""
    return list(dict.fromkeys(shape for _, shape in sharded(wholes, group)))


def fitting(wholes: Wholes, group: int, shape: tuple[int, ...]) -> tuple[list[Placements], bool]:
    """Placements that give a whole of this shape, and True if the ranks differ along an axis that is not cut.

    Along as few axes as possible are copies taken for pieces, then along as few as possible what differs for copies.
    """
    copies = wholes.copies(group)
    ranked = []
    for parts, got in sharded(wholes, group):
        if got == tuple(shape):
            cut_copies = sum(item != REPLICATE and copies[axis] for axis, item in enumerate(parts))
            uncut = sum(item == REPLICATE and not copies[axis] for axis, item in enumerate(parts))
            ranked.append(((cut_copies, uncut), parts))
    if not ranked:
        return [], False
    best = min(rank for rank, _ in ranked)
    return [parts for rank, parts in ranked if rank == best], bool(best[1])


def distance(wholes: Wholes, group: int, parts: Placements, reference: Callable[[], Any]) -> float | None:
    """Relative distance of the whole from the reference; None where either has no values."""
    arrays, wanted = wholes.arrays(group), reference()
    if arrays is None or wanted is None:
        return None
    spec = wholes.ranks_of(group)[0].spec
    return relative(as_float(put_together(arrays, spec, wholes.mesh, parts), spec.dtype), wanted)


def in_blocks(
    wholes: Wholes, group: int, parts: Placements, reference: Callable[[], Any], plain: float
) -> Placements | None:
    """The same cut from several blocks of the axis, where that is nearer."""
    axes = [axis for axis, item in enumerate(parts) if item.part is Part.SHARD]
    if len({parts[axis] for axis in axes}) != 1:
        return None
    item = parts[axes[0]]
    lengths = {shape[item.axis] for shape in wholes.shapes(group)}
    if len(lengths) > 1:  # blocks are cut evenly
        return None
    local = lengths.pop()
    best, nearest = plain, None
    for blocks in range(2, min(local, _BLOCKS) + 1):
        if local % blocks:
            continue
        tried = tuple(shard(item.axis, blocks) if axis in axes else other for axis, other in enumerate(parts))
        apart = distance(wholes, group, tried, reference)
        if apart is not None and apart * _CLOSER < best:
            best, nearest = apart, tried
    return nearest if best <= NEAR else None


def order_of(wholes: Wholes, group: int, parts: Placements, reference: Callable[[], Any]) -> tuple[int, ...]:
    """Piece of the reference that each rank has, where they have the pieces in another order; else nothing."""
    arrays = wholes.arrays(group)
    pieces: list[Array] | None = cut_apart(np.asarray(reference()), wholes.mesh, parts)
    if arrays is None or pieces is None:
        return ()
    dtype = wholes.ranks_of(group)[0].spec.dtype
    order: list[int] = []
    for array in arrays:
        values = as_float(array, dtype)
        same = [place for place, piece in enumerate(pieces) if np.array_equal(values, piece)]
        if not same:
            return ()
        order.append(len(order) if len(order) in same else same[0])
    return tuple(order) if order != list(range(len(order))) else ()
