"""Pieces, sums and copies of a tensor, and how they are put together.

    shard(0) over 2 ranks     f32[8, 8] f32[8, 8]    ->  f32[16, 8]    one below the other
    replicate                 f32[8]    f32[8]       ->  f32[8]        the first
    sum, mean                 f32[4, 8] f32[4, 8]    ->  f32[4, 8]     added up in float64, rounded once

A tensor has one placement for each axis of the mesh. The last axis is put together first, as PyTorch's DTensor cuts along the first
axis first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..model.tensors import Spec
from ..model.words import Word
from ..store.arrays import as_float
from .meshes import Mesh

Array = np.ndarray[Any, Any]
_Item = TypeVar("_Item")


class Part(Word):
    """Part that the tensor of a rank is of the whole, along one axis of the mesh."""

    REPLICATE = "replicate"
    SHARD = "shard"
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement along one axis of the mesh. `blocks`: the piece of a rank is cut from each of so many blocks of the axis, as the
    fused weight of queries, keys and values is.
    """

    part: Part
    axis: int = 0
    blocks: int = 1

    def __str__(self) -> str:
        if self.part is not Part.SHARD:
            return str(self.part)
        return f"shard({self.axis})" + (f" in {self.blocks} blocks" if self.blocks > 1 else "")


REPLICATE, SUM, MEAN = Placement(Part.REPLICATE), Placement(Part.SUM), Placement(Part.MEAN)
Placements = tuple[Placement, ...]


def shard(axis: int, blocks: int = 1) -> Placement:
    return Placement(Part.SHARD, axis, blocks)


def told(placements: Placements) -> str:
    """`shard(0)`; on a mesh of two axes `replicate × shard(0)`."""
    return " × ".join(map(str, placements))


def read(text: str) -> Placement | None:
    """A placement as PyTorch's DTensor writes it (`S(0)`, `R`, `P(sum)`, `Shard(dim=0)`) or as `Placement` does (`sum`, `shard(0)
    in 3 blocks`); None where it is another.
    """
    short = text.replace(" ", "").lower()
    if short in ("sum", "mean"):
        return SUM if short == "sum" else MEAN
    short, _, blocks = short.removesuffix("blocks").partition("in")
    if blocks:
        inner = read(short)
        fits = inner is not None and inner.part is Part.SHARD and blocks.isdigit()
        return shard(inner.axis, int(blocks)) if fits and inner is not None else None
    if short in ("r", "replicate", "replicate()"):
        return REPLICATE
    for begin in ("s(", "shard("):
        if short.startswith(begin) and short.endswith(")"):
            number = short[len(begin) : -1].removeprefix("dim=")
            return shard(int(number)) if number.lstrip("-").isdigit() else None
    for begin in ("p", "partial", "_partial"):
        rest = short.removeprefix(begin)
        if short.startswith(begin) and rest in ("", "()", "(sum)", "sum"):
            return SUM
        if short.startswith(begin) and rest in ("(avg)", "(mean)", "avg", "mean"):
            return MEAN
    return None


def whole_shape(shapes: Sequence[tuple[int, ...]], mesh: Mesh, placements: Placements) -> tuple[int, ...] | None:
    """Shape of the whole; None where the pieces do not fit together."""

    def joined(parts: Sequence[tuple[int, ...] | None], placement: Placement) -> tuple[int, ...] | None:
        first = parts[0]
        if first is None:
            return None
        if placement.part is not Part.SHARD:
            return first if all(part == first for part in parts) else None
        axis = placement.axis
        if axis >= len(first):
            return None
        rest = {None if part is None else (*part[:axis], *part[axis + 1 :]) for part in parts}
        if len(rest) > 1:
            return None
        sizes = [part[axis] for part in parts if part is not None]
        if placement.blocks > 1 and any(size % placement.blocks for size in sizes):
            return None
        return (*first[:axis], sum(sizes), *first[axis + 1 :])

    shape: tuple[int, ...] | None = _reduced(list(shapes), mesh, placements, joined)
    return shape


def put_together(arrays: Sequence[Array], spec: Spec, mesh: Mesh, placements: Placements, factor: float = 1.0) -> Array:
    """The whole, in the storage type of `spec`. Pieces are moved as they are; what is added up or scaled is rounded once."""
    computes = factor != 1.0 or any(item.part in (Part.SUM, Part.MEAN) for item in placements)

    def joined(parts: Sequence[Array], placement: Placement) -> Array:
        if placement.part is Part.REPLICATE:
            return parts[0]
        if placement.part is Part.SHARD:
            if placement.blocks == 1:
                return np.concatenate(parts, axis=placement.axis)
            cut = [np.split(part, placement.blocks, axis=placement.axis) for part in parts]
            return np.concatenate([item for row in zip(*cut, strict=True) for item in row], axis=placement.axis)
        total = parts[0].copy()
        with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs
            for part in parts[1:]:
                total = total + part
        return total / len(parts) if placement.part is Part.MEAN else total

    if not computes:
        return _in_order(_reduced(list(arrays), mesh, placements, joined))
    wide = [_wide(as_float(array, spec.dtype)) for array in arrays]
    return narrowed(_reduced(wide, mesh, placements, joined) * factor, spec.dtype)


def size_of_addends(
    arrays: Sequence[Array], spec: Spec, mesh: Mesh, placements: Placements, factor: float = 1.0
) -> Array | None:
    """Σ|x| over what is added up or scaled, element by element; None where nothing is."""
    if factor == 1.0 and not any(item.part in (Part.SUM, Part.MEAN) for item in placements):
        return None
    sizes = [np.abs(_wide(as_float(array, spec.dtype))) for array in arrays]

    def joined(parts: Sequence[Array], placement: Placement) -> Array:
        if placement.part is Part.SHARD:
            return put_together(parts, Spec("f64", ()), Mesh.line(len(parts)), (placement,))
        if placement.part is Part.REPLICATE:
            return parts[0]
        total: Array = np.sum(parts, axis=0)
        return total / len(parts) if placement.part is Part.MEAN else total

    size: Array = _reduced(sizes, mesh, placements, joined)
    return size * factor


def cut_apart(whole: Array, mesh: Mesh, placements: Placements) -> list[Array] | None:
    """Pieces of the ranks, of what is sharded evenly or replicated; None for sums."""
    by_place: dict[tuple[int, ...], Array] = {(): whole}
    for size, placement in zip(mesh.shape, placements, strict=True):
        if placement.part in (Part.SUM, Part.MEAN):
            return None
        more: dict[tuple[int, ...], Array] = {}
        for place, array in by_place.items():
            if placement.part is Part.REPLICATE:
                pieces = [array] * size
            else:
                if array.shape[placement.axis] % (size * placement.blocks):
                    return None
                blocks = np.split(array, placement.blocks, axis=placement.axis)
                rows = [np.split(block, size, axis=placement.axis) for block in blocks]
                pieces = [np.concatenate(column, axis=placement.axis) for column in zip(*rows, strict=True)]
            more |= {(*place, number): piece for number, piece in enumerate(pieces)}
        by_place = more
    return [by_place[place] for place in sorted(by_place)]


def segments_of(
    mesh: Mesh, placements: Placements, shapes: Sequence[tuple[int, ...]], place: int
) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """The piece of one rank in the whole: for each axis of the mesh that it is cut along, the axis of the tensor, and `(start,
    length)` of what is taken of it, one cut after the other. Of copies and evenly cut blocks.
    """
    segments: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    cuts: tuple[tuple[int, int], ...]
    here = mesh.coordinates(place)
    for axis, placement in enumerate(placements):
        if placement.part is not Part.SHARD:
            continue
        line = next(line for line in mesh.lines(axis) if place in line)
        lengths = [_extent(shapes, mesh, placements, axis, other) for other in line]
        index = here[axis]
        if placement.blocks == 1:
            cuts = ((sum(lengths[:index]), lengths[index]),)
        else:
            part, row = lengths[index] // placement.blocks, sum(lengths) // placement.blocks
            cuts = tuple((block * row + index * part, part) for block in range(placement.blocks))
        segments.append((placement.axis, cuts))
    return segments


def _extent(shapes: Sequence[tuple[int, ...]], mesh: Mesh, placements: Placements, axis: int, place: int) -> int:
    """Length along the cut axis of what a rank has together with those that cut its piece further."""
    tensor_axis = placements[axis].axis
    total = shapes[place][tensor_axis]
    for later in range(axis + 1, len(placements)):
        if placements[later].part is Part.SHARD and placements[later].axis == tensor_axis:
            line = next(line for line in mesh.lines(later) if place in line)
            total = sum(_extent(shapes, mesh, placements, later, other) for other in line)
            break
    return total


def narrowed(values: Array, dtype: str) -> Array:
    """Float64 rounded to one of the `ADDABLE` element types, in its storage type."""
    if dtype == "bf16":
        single = _in_order(np.asarray(values, np.float32)).view(np.uint32)
        rounded = (single + 0x7FFF + ((single >> 16) & 1)) >> 16
        return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
    storage = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "c64": np.complex64, "c128": np.complex128}
    with np.errstate(over="ignore", invalid="ignore"):
        return _in_order(np.asarray(values).astype(storage[dtype]))


def _in_order(array: Array) -> Array:
    """The array with its elements side by side; numpy's own function would give one without dimensions an axis."""
    return np.ascontiguousarray(array).reshape(array.shape)


ADDABLE = frozenset(("f64", "f32", "f16", "bf16", "c64", "c128"))
"""Element types of which sums are taken."""


def _wide(array: Array) -> Array:
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _reduced(
    items: list[_Item], mesh: Mesh, placements: Placements, joined: Callable[[Sequence[Any], Placement], Any]
) -> Any:
    """Items of the ranks, in the order of the mesh, joined along its axes, the last first."""
    current: list[Any] = items
    for size, placement in zip(reversed(mesh.shape), reversed(placements), strict=True):
        current = [joined(current[start : start + size], placement) for start in range(0, len(current), size)]
    assert len(current) == 1
    return current[0]
