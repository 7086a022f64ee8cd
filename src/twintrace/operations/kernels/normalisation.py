"""Norms over layers, groups, batches and instances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Kernel, Result, kernel


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        value = value * weight.reshape(shape)
    return value if bias is None else value + bias.reshape(shape)


def by_known_statistics(
    input: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """`(x - mean)·scale + bias`, with the error of `x·scale + (bias - mean·scale)`, which is what kernels compute.

    Both products and the offset are rounded before they cancel. A factor of one that is a tensor has the rounding of any product;
    the error of the scale is the same in both products, and not in what this adds.
    """
    shape = [1, -1] + [1] * (input.dim() - 2)
    mean, scale = mean.reshape(shape), torch.rsqrt(var.reshape(shape) + eps)
    one = torch.ones_like(mean)
    scaled = (input * one - mean * one * one) * scale
    return _affine(scaled, weight, None if bias is None else bias.reshape(shape) * one, shape)


@kernel("batch_norm")
def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Result:
    """Momentum as in PyTorch: the share of the new value."""
    axes = [0, *range(2, input.dim())]
    shape = [1, -1] + [1] * (input.dim() - 2)
    if not training and running_mean is not None and running_var is not None:
        return by_known_statistics(input, running_mean, running_var, weight, bias, eps)
    mean = input.mean(axes)
    centred = input - mean.reshape(shape)
    var = centred.square().mean(axes)
    output = _affine(centred * torch.rsqrt(var.reshape(shape) + eps), weight, bias, shape)
    if running_mean is None or running_var is None or momentum is None:
        return output
    count = input.numel() // input.shape[1]
    return {
        0: output,
        "running_mean": (1 - momentum) * running_mean + momentum * mean,
        "running_var": (1 - momentum) * running_var + momentum * var * (count / max(count - 1, 1)),
    }


@kernel("instance_norm")
def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Result:
    shape = [1, -1] + [1] * (input.dim() - 2)
    if not use_input_stats and running_mean is not None and running_var is not None:
        return by_known_statistics(input, running_mean, running_var, weight, bias, eps)
    axes = list(range(2, input.dim()))
    mean = input.mean(axes, keepdim=True)
    centred = input - mean
    var = centred.square().mean(axes, keepdim=True)
    output = _affine(centred * torch.rsqrt(var + eps), weight, bias, shape)
    if running_mean is None or running_var is None:
        return output
    count = math.prod(input.shape[2:])
    unbiased = var * (count / max(count - 1, 1))
    return {
        0: output,
        "running_mean": (1 - momentum) * running_mean + momentum * mean.mean(0).reshape(-1),
        "running_var": (1 - momentum) * running_var + momentum * unbiased.mean(0).reshape(-1),
    }


@kernel("layer_norm")
def _layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Result:
    """The normalised tensor, its mean and the reciprocal of its deviation."""
    count = len(normalized_shape) if isinstance(normalized_shape, tuple | list) else 1
    axes = list(range(input.dim() - count, input.dim()))
    mean = input.mean(axes, keepdim=True)
    centred = input - mean
    scale = torch.rsqrt(centred.square().mean(axes, keepdim=True) + eps)
    output = centred * scale
    output = output if weight is None else output * weight
    return (output if bias is None else output + bias), mean, scale


@kernel("group_norm")
def _group_norm(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Result:
    grouped = input.reshape(input.shape[0], num_groups, -1)
    mean = grouped.mean(-1, keepdim=True)
    centred = grouped - mean
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    shape = [1, -1] + [1] * (input.dim() - 2)
    return _affine((centred * scale).reshape(input.shape), weight, bias, shape), mean.squeeze(-1), scale.squeeze(-1)


@kernel("rms_norm")
def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: float) -> Result:
    count = len(normalized_shape) if isinstance(normalized_shape, tuple | list) else 1
    axes = list(range(input.dim() - count, input.dim()))
    scale = torch.rsqrt(input.square().mean(axes, keepdim=True) + eps)
    output = input * scale
    return (output if weight is None else output * weight), scale


@kernel("local_response_norm")
def _local_response_norm(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Result:
    return F.local_response_norm(input, size, alpha, beta, k)


@kernel("normalize")
def _normalize(input: Tensor, p: float, dim: int, eps: float) -> Result:
    return input / torch.linalg.vector_norm(input, p, dim, True).clamp_min(eps)


@kernel("weight_norm")
def _weight_norm(v: Tensor, g: Tensor, dim: int) -> Result:
    """A direction times a length for each place on an axis."""
    others = [axis for axis in range(v.dim()) if axis != dim]
    return v * (g / v.square().sum(others, keepdim=True).sqrt())


@kernel("l2_normalize")
def _l2_normalize(input: Tensor, dim: Sequence[int], eps: float) -> Result:
    """The bound is on the sum of squares, before the root."""
    return input * torch.rsqrt(input.square().sum(tuple(dim), keepdim=True).clamp_min(eps))


@kernel("renorm")
def _renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Result:
    return torch.renorm(input, p, dim, maxnorm)


def _fused_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Result:
    shape = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    return torch.native_layer_norm(input, list(shape), weight, bias, eps)


def _fused_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Result:
    mean, var = (None if item is None else item.detach().clone() for item in (running_mean, running_var))
    training = training or mean is None or var is None
    output = F.batch_norm(input, mean, var, weight, bias, training, 0.0 if momentum is None else momentum, eps)
    return {0: output} | {
        name: item for name, item in (("running_mean", mean), ("running_var", var)) if item is not None and training
    }


FUSED: dict[str, Kernel] = {
    "layer_norm": _fused_layer_norm,
    "batch_norm": _fused_batch_norm,
    "group_norm": F.group_norm,
    "log_softmax": torch.log_softmax,
}
"""PyTorch's own kernels of operations that have another one above: they show what sums and intermediate values in 16 bits do."""
