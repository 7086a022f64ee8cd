"""Bounds of values that are moved, and added where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .registry import (
    RULES,
    Error,
    Rule,
    Tensor,
    aten,
    count_terms,
    error_of,
    rule_for,
    sum_of,
    times,
)

if TYPE_CHECKING:
    from .modes import RunningError


def _moved(name: str) -> Rule:
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        error = error_of(mode, x)
        return None if error is None else packet(error, *args, **kwargs)

    return rule


for _name in [
    "index",
    "index_select",
    "gather",
    "take",
    "flip",
    "roll",
    "repeat",
    "tril",
    "triu",
    "diag_embed",
    "diagonal_copy",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "pixel_shuffle",
    "pixel_unshuffle",
    "im2col",
    "unfold_copy",
    "masked_select",
    "masked_scatter_backward",
    "atleast_2d",
    "select_backward",
    "slice_backward",
    "diagonal_backward",
    "rot90",
    "channel_shuffle",
]:
    if hasattr(aten, _name):
        RULES[_name] = _moved(_name)


@rule_for("constant_pad_nd")
def _pad(mode: RunningError, y: Tensor, x: Tensor, pad: Any, value: Any = 0) -> Error:
    error = error_of(mode, x)
    return None if error is None else aten.constant_pad_nd(error, pad, 0.0)


@rule_for("embedding")
def _embedding(mode: RunningError, y: Tensor, weight: Tensor, index: Tensor, *_: Any, **__: Any) -> Error:
    error = error_of(mode, weight)
    return None if error is None else torch.nn.functional.embedding(index, error)


@rule_for("cat", "stack")
def _joined(mode: RunningError, y: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Error:
    errors = [error_of(mode, item) for item in tensors]
    if all(error is None for error in errors):
        return None
    known = [torch.zeros_like(item) if error is None else error for item, error in zip(tensors, errors, strict=True)]
    joined = torch.stack if y.dim() > tensors[0].dim() else torch.cat
    return joined(known, dim)


def _added(name: str, value_at: int) -> Rule:
    """Rule of a linear function that adds values up where they meet: how many is counted by the function itself."""
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Any, *args: Any, **kwargs: Any) -> Any:
        value = args[value_at]

        def of(other: Tensor) -> Tensor:
            changed = [
                torch.zeros_like(item) if place < value_at and _is_float(item) else item
                for place, item in enumerate(args)
            ]
            changed[value_at] = other
            result: Tensor = packet(*changed, **kwargs)
            return result

        count, error = of(torch.ones_like(value)), error_of(mode, value)
        own = mode.walks(count) * of(value.abs()) * (count > 1)
        base = [error_of(mode, item) for item in args[:value_at] if _is_float(item) and item.shape == y.shape]
        return sum_of(own, None if error is None else of(error), *base)

    return rule


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


for _name, _place in {
    "index_add": 3,
    "scatter_add": 3,
    "max_pool2d_with_indices_backward": 0,
    "max_pool3d_with_indices_backward": 0,
    "adaptive_max_pool2d_backward": 0,
    "adaptive_max_pool3d_backward": 0,
    "replication_pad1d_backward": 0,
    "replication_pad2d_backward": 0,
    "replication_pad3d_backward": 0,
    "col2im": 0,
    "unfold_backward": 0,
}.items():
    RULES[_name] = _added(_name, _place)


@rule_for("embedding_dense_backward")
def _embedding_backward(
    mode: RunningError, y: Tensor, gradient: Tensor, index: Tensor, rows: int, padding: int, by_frequency: bool = False
) -> Error:
    """Sums of gradients; of those that are divided by their number, each quotient is rounded as well."""

    def of(value: Tensor, divided: bool = by_frequency) -> Tensor:
        result: Tensor = aten.embedding_dense_backward(value, index, rows, padding, divided)
        return result

    count, error = of(torch.ones_like(gradient), False), error_of(mode, gradient)
    own = mode.walks(count) * of(gradient.abs()) * (count > 1)
    return sum_of(own, None if error is None else of(error))


@rule_for("index_put", "_unsafe_index_put")
def _index_put(
    mode: RunningError, y: Tensor, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Error:
    ex, ev = error_of(mode, x), error_of(mode, values)
    zero = torch.zeros_like(x)
    if not accumulate:
        if ex is None and ev is None:
            return None
        moved: Tensor = aten.index_put(
            zero if ex is None else ex, indices, torch.zeros_like(values) if ev is None else ev
        )
        return moved
    count = aten.index_put(zero, indices, torch.ones_like(values), True)
    size = aten.index_put(zero, indices, values.abs(), True)
    passed = None if ev is None else aten.index_put(zero, indices, ev, True)
    return sum_of(ex, passed, mode.walks(count) * size * (count > 1))


@rule_for("masked_scatter")
def _masked_scatter(mode: RunningError, y: Tensor, x: Tensor, mask: Tensor, source: Tensor) -> Error:
    ex, es = error_of(mode, x), error_of(mode, source)
    if ex is None and es is None:
        return None
    base = torch.zeros_like(y) if ex is None else ex.expand_as(y)
    return base.masked_scatter(mask, torch.zeros_like(source) if es is None else es)


@rule_for("scatter_reduce")
def _scatter_reduce(
    mode: RunningError, y: Tensor, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, **_: Any
) -> Error:
    """Products and extremes; sums are composed of `scatter_add`."""
    errors = [error.max() for error in (error_of(mode, x), error_of(mode, source)) if error is not None]
    passed = torch.stack(errors).max().expand_as(y) if errors else None
    if reduce != "prod":
        return passed
    met = torch.zeros_like(x).scatter_add(dim, index, torch.ones_like(source))
    return sum_of(times(y.abs(), passed), mode.rounded(y) * (met + 1))


@rule_for("scatter")
def _scatter(mode: RunningError, y: Tensor, x: Tensor, dim: int, index: Tensor, source: Any, **_: Any) -> Error:
    ex, es = error_of(mode, x), error_of(mode, source)
    if ex is None and es is None:
        return None
    base = torch.zeros_like(x) if ex is None else ex
    return base.scatter(dim, index, es if es is not None else 0.0)


def _averaged(name: str) -> Rule:
    """Rule of a linear function with weights that are not negative: pooling, interpolation."""
    packet = getattr(aten, name)

    def rule(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
        error = error_of(mode, x)
        terms = max(count_terms(x, y), count_terms(y, x))
        size = packet(x.abs(), *args, **kwargs)
        return sum_of(
            None if error is None else packet(error, *args, **kwargs),
            (4 * mode.sum_unit + mode.walk(terms)) * size + mode.rounded(y),
        )

    return rule


_POOLS = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}


_SUMS = {1: torch.nn.functional.avg_pool1d, 2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}


def _interpolated(name: str, axes: int) -> Rule:
    """Rule of linear interpolation: a weight is a difference of places, and off by the rounding of a place."""
    packet, averaged = getattr(aten, name), _averaged(name)
    backward = name.endswith("_backward")

    def rule(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
        off = 2 * axes * mode.sum_unit * max(*x.shape[2:], *y.shape[2:])
        if backward:  # an output's weights of all that it was made of sum to one, and these are neighbours
            near = _SUMS[axes](packet(x.abs(), *args, **kwargs), 3, 1, 1) * 3.0**axes
        else:
            near = packet(_POOLS[axes](x.abs(), 3, 1, 1), *args, **kwargs)
        return sum_of(averaged(mode, y, x, *args, **kwargs), off * near)

    return rule


@rule_for(
    "upsample_bicubic2d",
    "upsample_bicubic2d_backward",
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa_backward",
)
def _bicubic(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    """Weights of both signs, or computed from places of many neighbours: bounded by the largest value."""
    error = error_of(mode, x)
    size = (x.abs().max() * max(count_terms(x, y), 1.0)).expand_as(y)
    off = 4 * mode.sum_unit * max(*x.shape[2:], *y.shape[2:])  # a weight is as far off as its place, on both axes
    return sum_of(None if error is None else 2 * error.max().expand_as(y), mode.rounded(size, 32.0) + off * size)


for _name in [
    "avg_pool2d_backward",
    "avg_pool3d_backward",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "upsample_nearest2d_backward",
    "upsample_nearest3d_backward",
    "_upsample_nearest_exact1d_backward",
    "_upsample_nearest_exact2d_backward",
    "_upsample_nearest_exact3d_backward",
    "upsample_nearest1d_backward",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "upsample_nearest1d",
    "upsample_nearest2d",
]:
    RULES[_name] = _averaged(_name)


for _axes, _name in enumerate(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), 1):
    RULES[_name] = _interpolated(_name, _axes)
    RULES[f"{_name}_backward"] = _interpolated(f"{_name}_backward", _axes)


def _places(mode: RunningError, x: Tensor, grid: Tensor) -> float:
    """Cells by which a place on a grid may be off: units of the largest axis, whose half is multiplied and added."""
    return mode.unit * 4 * max(x.shape[2:])


@rule_for("grid_sampler_3d")
def _grid_sampler(mode: RunningError, y: Tensor, x: Tensor, grid: Tensor, *_: Any) -> Error:
    """Weights that sum to one, each off by as many cells as its place: bounded by the largest value of the channel."""
    largest = x.abs().flatten(2).amax(-1).reshape(*y.shape[:2], 1, 1, 1)
    ex, eg = error_of(mode, x), error_of(mode, grid)
    off = torch.as_tensor(_places(mode, x, grid)) + (0.0 if eg is None else eg.max() * max(x.shape[2:]))
    passed = None if ex is None else ex.max().expand_as(y)
    return sum_of((6 * off + 8 * mode.sum_unit) * largest.expand_as(y), passed, mode.rounded(y))


@rule_for("grid_sampler_3d_backward")
def _grid_sampler_backward(mode: RunningError, result: Any, g: Tensor, x: Tensor, grid: Tensor, *settings: Any) -> Any:
    """Of the image: the same weights, added where they meet. Of the grid: differences of neighbours over all channels."""
    error, off = error_of(mode, g), _places(mode, x, grid)
    spread = aten.grid_sampler_3d_backward(g.abs() if error is None else g.abs() + error, x, grid, *settings)[0].abs()
    met = max(8 * g[:, 0].numel() / max(x[:, 0].numel(), 1), 8.0)
    sent = 0.0 if error is None else error.max()
    image = (mode.walk(met) + 6 * off) * (spread + g.abs().max()) + sent
    size = g.abs().sum(1).unsqueeze(-1) * x.abs().max() * max(x.shape[2:])
    places = (mode.walk(8 * x.shape[1]) + 6 * off) * size + sent * x.abs().max() * max(x.shape[2:])
    return [bound.expand_as(item) for bound, item in zip((image, places), result, strict=True) if item is not None]


@rule_for(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d_with_indices",
)
def _max_pool(mode: RunningError, result: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    error = error_of(mode, x)
    return (None, None) if error is None else (error.max().expand_as(result[0]), None)
