"""Norms and variances in steps that have rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..kernels.normalisation import by_known_statistics
from .registry import Tensor, count_terms


def _variance(x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Tensor:
    dims = list(range(x.dim())) if dim is None or (isinstance(dim, list | tuple) and not dim) else dim
    centred = x - x.mean(dims, True)
    total = centred.mul(centred).sum(dims, keepdim)
    return total / max(count_terms(x, total) - (1 if correction is None else correction), 0)


def _deviation(x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, correction, keepdim).sqrt()


def _normalized(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(dims, True)
    centred = x - mean
    inverse = (centred.mul(centred).mean(dims, True) + eps).rsqrt()
    return centred.mul(inverse), mean, inverse


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, inverse = _normalized(x, list(range(x.dim() - len(shape), x.dim())), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, inverse


def _native_group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, c: int, places: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, inverse = _normalized(x.reshape(n, groups, c // groups * places), [2], eps)
    y = y.reshape(x.shape)
    shape = [1, c] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    return y, mean.reshape(n, groups), inverse.reshape(n, groups)


def _native_batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The running averages are not written: whoever wants their new values computes them."""
    shape = [1, x.shape[1]] + [1] * (x.dim() - 2)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    if not training:
        return by_known_statistics(x, mean, variance, weight, bias, eps), x.new_zeros(0), x.new_zeros(0)
    y, mean, inverse = _normalized(x, dims, eps)
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    return y, mean.reshape(-1), inverse.reshape(-1)


COMPOSED: dict[str, Callable[..., Any]] = {
    "native_batch_norm": _native_batch_norm,
    "var": _variance,
    "std": _deviation,
    "native_layer_norm": _native_layer_norm,
    "native_group_norm": _native_group_norm,
}
"""Decompositions that torch makes of primitives below ATen, or in another order than kernels compute in."""
