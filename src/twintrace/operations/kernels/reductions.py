"""Sums, means, extremes, scans and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .registry import KERNELS, Kernel, Result, kernel, unary, wide


@kernel("sum")
def _sum(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return (
        torch.sum(input, tuple(dim), keepdim)
        if dim
        else torch.sum(input)
        if input.dtype == torch.bool
        else input.clone()
    )


@kernel("mean")
def _mean(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.mean(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


@kernel("nansum")
def _nansum(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.nansum(input, tuple(dim), keepdim) if dim else torch.nansum(input)


@kernel("nanmean")
def _nanmean(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.nanmean(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


def _by_axis(function: Callable[..., Tensor]) -> Kernel:
    """A reduction that PyTorch has for one axis only, for several."""

    def call(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
        for place in sorted(dim, reverse=True):
            input = function(input, place, keepdim)
        return input if dim else input.clone()

    return call


KERNELS["prod"] = _by_axis(torch.prod)


@kernel("all")
def _all(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return _by_axis(torch.all)(input.bool(), dim, keepdim)


@kernel("any")
def _any(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return _by_axis(torch.any)(input.bool(), dim, keepdim)


@kernel("amax")
def _amax(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.amax(input, tuple(dim), keepdim) if dim else input.clone()


@kernel("amin")
def _amin(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.amin(input, tuple(dim), keepdim) if dim else input.clone()


@kernel("logsumexp")
def _logsumexp(input: Tensor, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.logsumexp(wide(input), tuple(dim), keepdim) if dim else wide(input).clone()


@kernel("count_nonzero")
def _count_nonzero(input: Tensor, dim: Sequence[int]) -> Result:
    return torch.count_nonzero(input, tuple(dim)) if dim else (input != 0).long()


def _moments(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    count = math.prod(input.shape[place] for place in dim)
    mean = input.mean(tuple(dim), keepdim=True)
    squares = (input - mean).square().sum(tuple(dim), keepdim=keepdim)
    variance = squares / count if correction == 0 else squares / max(count - correction, 0)
    return variance, mean if keepdim else mean.squeeze(tuple(dim))


@kernel("var")
def _var(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)[0]


@kernel("std")
def _std(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)[0].sqrt()


@kernel("var_mean")
def _var_mean(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    return _moments(input, dim, correction, keepdim)


@kernel("std_mean")
def _std_mean(input: Tensor, dim: Sequence[int], correction: Any, keepdim: bool) -> Result:
    variance, mean = _moments(input, dim, correction, keepdim)
    return variance.sqrt(), mean


@kernel("vector_norm")
def _vector_norm(input: Tensor, ord: Any, dim: Sequence[int], keepdim: bool) -> Result:
    return torch.linalg.vector_norm(input, ord, tuple(dim), keepdim)


@kernel("argmax")
def _argmax(input: Tensor, dim: Any, keepdim: bool) -> Result:
    return torch.argmax(input, dim, keepdim)


@kernel("argmin")
def _argmin(input: Tensor, dim: Any, keepdim: bool) -> Result:
    return torch.argmin(input, dim, keepdim)


def _with_places(function: Callable[..., Any]) -> Kernel:
    return lambda input, dim, keepdim: tuple(function(input, dim, keepdim))


for _name in ("max", "min", "median"):
    KERNELS[f"{_name}_dim"] = _with_places(getattr(torch, _name))
KERNELS["median"] = unary(torch.median, real=False)
KERNELS["mode"] = _with_places(torch.mode)


@kernel("kthvalue")
def _kthvalue(input: Tensor, k: int, dim: int, keepdim: bool) -> Result:
    """Of equal values the first comes first, here and in `topk`, as in a sort: whichever way a program takes to them."""
    found = (item.narrow(dim, k - 1, 1) for item in torch.sort(input, dim=dim, stable=True))
    return tuple(item if keepdim else item.squeeze(dim) for item in found)


@kernel("quantile")
def _quantile(input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Result:
    axis = 0 if dim is None else dim
    values = (input.reshape(-1) if dim is None else input).sort(axis).values
    last = values.shape[axis] - 1
    shares = torch.as_tensor(q, dtype=torch.float64, device=input.device)
    place = shares.reshape(-1) * last
    below, above = place.floor().long(), place.ceil().long()
    share = {
        "lower": torch.zeros_like(place), "higher": torch.ones_like(place), "nearest": (place.round() != below).double(),
        "midpoint": torch.full_like(place, 0.5), "linear": place - below,
    }[interpolation]  # fmt: skip
    one, two = values.index_select(axis, below), values.index_select(axis, above)
    shape = [1] * values.dim()
    shape[axis] = -1
    found = (one + share.reshape(shape) * (two - one)).movedim(axis, 0)
    missing = input.isnan().any() if dim is None else input.isnan().any(axis)
    found = torch.where(missing, math.nan, found)
    if keepdim:
        found = found.reshape(-1, *[1] * input.dim()) if dim is None else found.unsqueeze(axis + 1)
    return found.squeeze(0) if shares.dim() == 0 else found


def _along(function: Callable[..., Any], *, places: bool) -> Kernel:
    if places:
        return lambda input, dim: tuple(function(input, dim))
    return lambda input, dim: function(input, dim)


for _name in ("cumsum", "cumprod"):
    KERNELS[_name] = _along(getattr(torch, _name), places=False)
for _name in ("cummax", "cummin"):
    KERNELS[_name] = _along(getattr(torch, _name), places=True)


@kernel("logcumsumexp")
def _logcumsumexp(input: Tensor, dim: int) -> Result:
    """The library's value; its gradient from plain steps, since the library's takes logarithms of gradients."""
    top = input.detach().amax(dim, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
    plain = (input - top).exp().cumsum(dim).clamp_min(1e-300).log() + top
    return plain + (torch.logcumsumexp(input.detach(), dim) - plain.detach()).nan_to_num(0.0)


@kernel("diff")
def _diff(input: Tensor, n: int, dim: int, prepend: Any, append: Any) -> Result:
    return torch.diff(input, n, dim, prepend, append)


@kernel("sort")
def _sort(input: Tensor, dim: int, descending: bool, stable: bool) -> Result:
    return tuple(torch.sort(input, dim=dim, descending=descending, stable=True))


@kernel("argsort")
def _argsort(input: Tensor, dim: int, descending: bool, stable: bool) -> Result:
    return torch.argsort(input, dim=dim, descending=descending, stable=True)


@kernel("topk")
def _topk(input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Result:
    return tuple(item.narrow(dim, 0, k) for item in torch.sort(input, dim=dim, descending=largest, stable=True))


@kernel("unique")
def _unique(input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: Any) -> Result:
    return torch.unique(input, sorted, return_inverse, return_counts, dim)


@kernel("bincount")
def _bincount(input: Tensor, weights: Any, minlength: int) -> Result:
    return torch.bincount(input, weights, minlength)


@kernel("histc")
def _histc(input: Tensor, bins: int, min: Any, max: Any) -> Result:
    return torch.histc(input, bins, min, max)


@kernel("searchsorted")
def _searchsorted(sorted_sequence: Tensor, input: Any, right: bool) -> Result:
    return torch.searchsorted(sorted_sequence, input, right=right)


@kernel("bucketize")
def _bucketize(input: Any, boundaries: Tensor, right: bool) -> Result:
    return torch.bucketize(input, boundaries, right=right)
