"""Views, copies, selections and other moves of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Result, kernel, matching, tensor_of


@kernel("reshape")
def _reshape(input: Tensor, shape: Sequence[int]) -> Result:
    return input.reshape(tuple(shape)).clone()


@kernel("permute")
def _permute(input: Tensor, dims: Sequence[int]) -> Result:
    return input.permute(tuple(dims)).clone()


@kernel("expand")
def _expand(input: Tensor, size: Sequence[int]) -> Result:
    return input.expand(tuple(size)).clone()


@kernel("tile")
def _tile(input: Tensor, dims: Sequence[int]) -> Result:
    return input.repeat(tuple(dims))


def _index(index: Sequence[Any], like: Tensor) -> tuple[Any, ...]:
    found = []
    for item in index:
        if isinstance(item, tuple | list):
            found.append(torch.tensor(item, device=like.device))
        elif isinstance(item, Tensor) and item.dtype not in (torch.bool, torch.uint8, torch.int64):
            found.append(item.long())
        else:
            found.append(item)
    return tuple(found)


@kernel("getitem")
def _getitem(input: Tensor, index: Sequence[Any]) -> Result:
    negative = [axis for axis, item in enumerate(index) if isinstance(item, slice) and (item.step or 1) < 0]
    if negative:
        raise NotImplementedError("a slice that goes backward")
    return input[_index(index, input)].clone()


@kernel("setitem")
def _setitem(input: Tensor, index: Sequence[Any], value: Any) -> Result:
    output = input.clone()
    output[_index(index, input)] = value.to(output.dtype) if isinstance(value, Tensor) else value
    return output


@kernel("cat")
def _cat(tensors: Sequence[Tensor], dim: int) -> Result:
    return torch.cat(_one_type(tensors), dim)


@kernel("cut")
def _cut(input: Tensor, pieces: Sequence[Any], factor: float = 1.0) -> tuple[Tensor, ...]:
    """Pieces of the ranks: of each, along one axis after the other, what is taken of it."""
    found = []
    whole = input if factor == 1.0 else input * factor
    for cuts in pieces:
        piece = whole
        for dim, segments in cuts:
            piece = torch.cat([piece.narrow(dim, start, length) for start, length in segments], dim)
        found.append(piece)
    return tuple(found)


@kernel("joined")
def _joined(tensors: Sequence[Tensor], steps: Sequence[Any]) -> Tensor:
    """Tensors of the ranks as one, so many of them at a time."""
    found = list(tensors)
    for count, how, dim, segments in steps:
        found = [_together(found[start : start + count], how, dim, segments) for start in range(0, len(found), count)]
    (whole,) = found
    return whole


def _together(tensors: Sequence[Tensor], how: str, dim: int, segments: Sequence[Any]) -> Tensor:
    if how == "first":
        return tensors[0]
    if how == "cat":
        pieces = [tensors[which].narrow(dim, start, length) for which, start, length in segments]
        return torch.cat(pieces or list(tensors), dim)
    stacked = torch.stack(list(tensors))
    if how in ("max", "min"):
        return stacked.amax(0) if how == "max" else stacked.amin(0)
    total = stacked.sum(0)
    return total / len(tensors) if how == "mean" else total


@kernel("stack")
def _stack(tensors: Sequence[Tensor], dim: int) -> Result:
    return torch.stack(_one_type(tensors), dim)


def _one_type(tensors: Sequence[Any]) -> list[Tensor]:
    found = [tensor_of(item) for item in tensors]
    kind = found[0].dtype
    for item in found:
        kind = torch.promote_types(kind, item.dtype)
    return [item.to(kind) for item in found]


@kernel("split")
def _split(input: Tensor, sizes: Sequence[int], dim: int) -> Result:
    return tuple(part.clone() for part in torch.split(input, list(sizes), dim))


@kernel("unbind")
def _unbind(input: Tensor, dim: int) -> Result:
    return tuple(part.clone() for part in torch.unbind(input, dim))


@kernel("gather")
def _gather(input: Tensor, dim: int, index: Tensor) -> Result:
    return torch.gather(input, dim, index.long())


@kernel("gather_nd")
def _gather_nd(input: Tensor, indices: Tensor) -> Result:
    return input[tuple(indices.long().unbind(-1))]


@kernel("index_select")
def _index_select(input: Tensor, dim: int, index: Tensor) -> Result:
    found = torch.index_select(input, dim, index.long().reshape(-1))
    return found.reshape(input.shape[:dim] + index.shape + input.shape[dim + 1 :]) if index.dim() != 1 else found


@kernel("take")
def _take(input: Tensor, index: Tensor) -> Result:
    return input.reshape(-1)[index.long()]


@kernel("embedding")
def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None, scale_grad_by_freq: bool = False) -> Result:
    """Rows of the weight; the padding row gets no gradient."""
    return F.embedding(input.long(), weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq)


@kernel("embedding_bag")
def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Any,
    mode: str,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: Any,
) -> Result:
    rows = weight[input.long()]
    kept = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx % weight.shape[0]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if input.dim() == 2:
        return _bag(rows, kept, mode)
    starts = offsets[:-1] if include_last_offset else offsets
    place = torch.arange(input.shape[0], device=input.device)
    if include_last_offset:
        kept = kept & (place < offsets[-1])
    bag = torch.searchsorted(starts, place, right=True) - 1  # an empty bag begins where the next one does
    empty = weight.new_zeros(starts.shape[0], weight.shape[1])
    count = empty[:, :1].index_add(0, bag, kept.double().unsqueeze(1))
    if mode == "max":
        wanted = bag.unsqueeze(1).expand_as(rows)
        rows = rows.masked_fill(~kept.unsqueeze(1), -math.inf)
        return torch.where(count > 0, (empty - math.inf).scatter_reduce(0, wanted, rows, "amax"), 0.0)
    total = empty.index_add(0, bag, torch.where(kept.unsqueeze(1), rows, 0.0))
    return total / count.clamp_min(1.0) if mode == "mean" else total


def _bag(rows: Tensor, kept: Tensor, mode: str) -> Tensor:
    """Sum, mean or maximum over the rows of each bag that are kept; zeros where there is none."""
    count = kept.sum(1, keepdim=True)
    if mode == "max":
        largest = rows.masked_fill(~kept.unsqueeze(-1), -math.inf).amax(1)
        return torch.where(count > 0, largest, 0.0)
    total = torch.where(kept.unsqueeze(-1), rows, 0.0).sum(1)
    return total / count.clamp_min(1).double() if mode == "mean" else total


@kernel("one_hot")
def _one_hot(input: Tensor, num_classes: int, on_value: Any, off_value: Any, dim: int) -> Result:
    places = torch.arange(num_classes, device=input.device).reshape((-1,) + (1,) * (input.dim() - dim))
    hot = input.long().unsqueeze(dim) == places
    if isinstance(on_value, int) and isinstance(off_value, int):
        return torch.where(hot, torch.tensor(on_value), torch.tensor(off_value))
    return torch.where(hot, matching(on_value, hot.double()), matching(off_value, hot.double()))


@kernel("scatter")
def _scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> Result:
    if isinstance(src, Tensor):
        return torch.scatter(input, dim, index.long(), src.to(input.dtype))
    return torch.scatter(input, dim, index.long(), src)


@kernel("scatter_add")
def _scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Result:
    return torch.scatter_add(input, dim, index.long(), src.to(input.dtype))


@kernel("scatter_reduce")
def _scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> Result:
    index = index.long()
    ones = torch.ones_like(src)
    if reduce not in ("sum", "mean"):
        return torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    met = torch.zeros_like(input).scatter_add(dim, index, ones)
    kept = input if include_self else torch.where(met > 0, 0.0, input)
    total = torch.scatter_add(kept, dim, index, src)
    if reduce == "sum":
        return total
    return total / torch.where(met > 0, met + (1.0 if include_self else 0.0), 1.0)


@kernel("index_add")
def _index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Result:
    return torch.index_add(input, dim, index, source.to(input.dtype), alpha=alpha)


@kernel("index_copy")
def _index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Result:
    return torch.index_copy(input, dim, index.long(), source.to(input.dtype))


@kernel("index_fill")
def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Result:
    return torch.index_fill(input, dim, index.long(), value)


@kernel("index_put")
def _index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool) -> Result:
    places = tuple(_index(indices, input))
    if any(isinstance(item, slice) for item in places):
        if accumulate:
            raise NotImplementedError("a full slice beside indices that accumulate")
        return _setitem(input, places, values)
    return torch.index_put(input, places, tensor_of(values).to(input.dtype), accumulate)


@kernel("masked_fill")
def _masked_fill(input: Tensor, mask: Tensor, value: Any) -> Result:
    value = matching(value, input).to(input.dtype) if not isinstance(value, Tensor) else value.to(input.dtype)
    return torch.where(mask.bool(), value, input)


@kernel("masked_select")
def _masked_select(input: Tensor, mask: Tensor) -> Result:
    return torch.masked_select(input, mask.bool())


@kernel("masked_scatter")
def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Result:
    return torch.masked_scatter(input, mask.bool(), source)


@kernel("copy")
def _copy(input: Tensor, src: Any) -> Result:
    return tensor_of(src).to(input.dtype).expand_as(input).clone()


@kernel("fill")
def _fill(input: Tensor, value: Any) -> Result:
    return tensor_of(value).to(input.dtype).expand_as(input).clone()


@kernel("fill_diagonal")
def _fill_diagonal(input: Tensor, value: Any) -> Result:
    return input.clone().fill_diagonal_(value)


@kernel("flip")
def _flip(input: Tensor, dims: Sequence[int]) -> Result:
    return torch.flip(input, tuple(dims))


@kernel("roll")
def _roll(input: Tensor, shifts: Any, dims: Any) -> Result:
    return torch.roll(input, shifts, dims)


@kernel("rot90")
def _rot90(input: Tensor, k: int, dims: Sequence[int]) -> Result:
    return torch.rot90(input, k, tuple(dims))


@kernel("pad")
def _pad(input: Tensor, pad: Sequence[int], mode: str, value: Any) -> Result:
    return F.pad(input, tuple(pad), mode, value) if mode == "constant" else F.pad(input, tuple(pad), mode)


@kernel("repeat_interleave")
def _repeat_interleave(input: Tensor, repeats: Any, dim: Any) -> Result:
    repeats = repeats[0] if isinstance(repeats, tuple) and len(repeats) == 1 else repeats
    return torch.repeat_interleave(input, torch.tensor(repeats) if isinstance(repeats, tuple) else repeats, dim)


@kernel("tril")
def _tril(input: Tensor, diagonal: int) -> Result:
    return torch.tril(input, diagonal)


@kernel("triu")
def _triu(input: Tensor, diagonal: int) -> Result:
    return torch.triu(input, diagonal)


@kernel("diag")
def _diag(input: Tensor, diagonal: int) -> Result:
    return torch.diag(input, diagonal)


@kernel("diagonal")
def _diagonal(input: Tensor, offset: int, dim1: int, dim2: int) -> Result:
    return torch.diagonal(input, offset, dim1, dim2).clone()


@kernel("diag_embed")
def _diag_embed(input: Tensor, offset: int, dim1: int, dim2: int) -> Result:
    return torch.diag_embed(input, offset, dim1, dim2)


@kernel("meshgrid")
def _meshgrid(tensors: Sequence[Tensor], indexing: str) -> Result:
    return tuple(grid.clone() for grid in torch.meshgrid(*tensors, indexing=indexing))


@kernel("broadcast_tensors")
def _broadcast_tensors(tensors: Sequence[Tensor]) -> Result:
    return tuple(tensor.clone() for tensor in torch.broadcast_tensors(*tensors))


@kernel("pixel_shuffle")
def _pixel_shuffle(input: Tensor, upscale_factor: int) -> Result:
    return F.pixel_shuffle(input, upscale_factor)


@kernel("pixel_unshuffle")
def _pixel_unshuffle(input: Tensor, downscale_factor: int) -> Result:
    return F.pixel_unshuffle(input, downscale_factor)


@kernel("channel_shuffle")
def _channel_shuffle(input: Tensor, groups: int) -> Result:
    return F.channel_shuffle(input, groups)


@kernel("depth_to_space")
def _depth_to_space(input: Tensor, block_size: int) -> Result:
    """Blocks first, then channels: not the order of pixel_shuffle."""
    n, c, h, w = input.shape
    cells = input.reshape(n, block_size, block_size, c // block_size**2, h, w)
    return cells.permute(0, 3, 4, 1, 5, 2).reshape(n, c // block_size**2, h * block_size, w * block_size)


@kernel("space_to_depth")
def _space_to_depth(input: Tensor, block_size: int) -> Result:
    n, c, h, w = input.shape
    cells = input.reshape(n, c, h // block_size, block_size, w // block_size, block_size)
    return cells.permute(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h // block_size, w // block_size)


@kernel("mirror_pad")
def _mirror_pad(input: Tensor, paddings: Any, mode: str) -> Result:
    """Mirrored around the edge (REFLECT) or with it (SYMMETRIC), axis by axis."""
    sides = paddings.tolist() if isinstance(paddings, Tensor) else paddings
    skip = 1 if mode.upper() == "REFLECT" else 0
    for axis, (before, behind) in enumerate(sides):
        length = input.shape[axis]
        pieces = [input.narrow(axis, skip, before).flip(axis)] if before else []
        pieces.append(input)
        pieces += [input.narrow(axis, length - skip - behind, behind).flip(axis)] if behind else []
        input = torch.cat(pieces, axis)
    return input.clone()


@kernel("interpolate")
def _interpolate(
    input: Tensor, size: Sequence[int], scales: Sequence[float], mode: str, align_corners: bool, antialias: bool
) -> Result:
    """`scales` are ratios of output to input; where the sizes say the same, the sizes are used."""
    by_size = all(
        abs(after / before - scale) < 1e-12 for after, before, scale in zip(size, input.shape[2:], scales, strict=True)
    )
    flags: dict[str, Any] = {"mode": mode, "antialias": antialias}
    if mode in ("linear", "bilinear", "bicubic", "trilinear"):
        flags["align_corners"] = align_corners
    if by_size:
        return F.interpolate(input, size=tuple(size), **flags)
    return F.interpolate(input, scale_factor=tuple(scales), recompute_scale_factor=False, **flags)


@kernel("grid_sample")
def _grid_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Result:
    if input.dim() == 5:
        return F.grid_sample(input, grid, mode, padding_mode, align_corners)
    from torch._decomp.decompositions import grid_sampler_2d  # the same in plain steps

    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    grid = (grid + 1) - 1  # kernels begin with that sum, and round it
    sampled = grid_sampler_2d(input, grid, modes.index(mode), paddings.index(padding_mode), bool(align_corners))
    return sampled + 0.0 * grid[..., 0].unsqueeze(1)  # the nearest sample has a gradient of zeros


@kernel("affine_grid")
def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Result:
    axes = []
    for length in reversed(size[2:]):  # x is the last axis
        steps = torch.linspace(-1, 1, length, dtype=torch.float64, device=theta.device)
        axes.append(steps * 0 if length == 1 else steps if align_corners else steps * (length - 1) / length)
    places = torch.meshgrid(*reversed(axes), indexing="ij")
    base = torch.stack([*reversed(places), torch.ones_like(places[0])], -1)
    return (base.reshape(-1, base.shape[-1]) @ theta.transpose(1, 2)).reshape(theta.shape[0], *size[2:], theta.shape[1])
