"""Products of matrices, convolutions, pooling and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Kernel, Random, Result, kernel


@kernel("matmul")
def _matmul(input: Tensor, other: Tensor, transpose_a: bool, transpose_b: bool) -> Result:
    return torch.matmul(input.mT if transpose_a else input, other.mT if transpose_b else other)


@kernel("bias_add")
def _bias_add(input: Tensor, bias: Tensor, dim: int) -> Result:
    return input + bias.reshape((-1,) + (1,) * (input.dim() - 1 - dim))


@kernel("add_all")
def _add_all(tensors: Sequence[Tensor]) -> Result:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total.clone()


@kernel("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Result:
    return F.linear(input, weight, bias)


@kernel("bilinear")
def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Result:
    # One result after the other, as the frameworks do: gradients of the inputs are added up over these, and rounded each time.
    product = torch.cat([((input1 @ part).unsqueeze(-2) @ input2.unsqueeze(-1)).squeeze(-1) for part in weight], -1)
    return product if bias is None else product + bias


@kernel("addmm")
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.matmul(mat1, mat2) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("addbmm")
def _addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.matmul(batch1, batch2).sum(0) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("addr")
def _addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta: Any, alpha: Any) -> Result:
    product = torch.outer(vec1, vec2) * alpha
    return (product + beta * input) if beta != 0 else product


@kernel("einsum")
def _einsum(equation: str, operands: Sequence[Tensor]) -> Result:
    return torch.einsum(equation, *operands)


@kernel("multi_dot")
def _multi_dot(tensors: Sequence[Tensor]) -> Result:
    return torch.linalg.multi_dot(list(tensors))


@kernel("tensordot")
def _tensordot(input: Tensor, other: Tensor, dims: Any) -> Result:
    return torch.tensordot(input, other, dims if isinstance(dims, int) else [list(side) for side in dims])


@kernel("cdist")
def _cdist(x1: Tensor, x2: Tensor, p: float) -> Result:
    return torch.cdist(x1, x2, p, compute_mode="donot_use_mm_for_euclid_dist")


@kernel("cross")
def _cross(input: Tensor, other: Tensor, dim: int) -> Result:
    return torch.linalg.cross(input, other, dim=dim)


def _padded(input: Tensor, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    flat = [cells for sides in reversed(padding) for cells in sides]
    return F.pad(input, flat, value=value) if any(flat) else input


def _even(padding: Sequence[tuple[int, int]]) -> list[int] | None:
    return [before for before, _ in padding] if all(before == behind for before, behind in padding) else None


_CONVOLUTIONS: Mapping[int, Kernel] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: Mapping[int, Kernel] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@kernel("conv")
def _conv(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Result:
    even = _even(padding)
    if weight.dim() == len(stride) + 3:  # MindSpore's one-dimensional weights have an axis of length 1
        weight = weight.squeeze(2)
    if even is None:
        input, even = _padded(input, padding), [0] * len(padding)
    return _CONVOLUTIONS[len(even)](input, weight, bias, stride, even, dilation, groups)


@kernel("conv_transpose")
def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Result:
    """Cells are cut off before and behind; `output_padding` adds cells behind."""
    count = len(stride)
    even = _even(padding)
    if even is not None and all(
        more < max(step, gap) for more, step, gap in zip(output_padding, stride, dilation, strict=True)
    ):
        return _TRANSPOSED[count](input, weight, bias, stride, even, output_padding, groups, dilation)
    whole = _TRANSPOSED[count](input, weight, None, stride, [0] * count, [0] * count, groups, dilation)
    whole = _padded(
        whole, [(0, max(more - behind, 0)) for more, (_, behind) in zip(output_padding, padding, strict=True)]
    )
    for axis, ((before, behind), more) in enumerate(zip(padding, output_padding, strict=True)):
        place = whole.dim() - count + axis
        length = whole.shape[place] - before - max(behind - more, 0)
        whole = whole.narrow(place, before, length)
    return whole if bias is None else whole + bias.reshape((-1,) + (1,) * count)


_MAX_POOLS: Mapping[int, Kernel] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG_POOLS: Mapping[int, Kernel] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@kernel("max_pool")
def _max_pool(input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any) -> Result:
    """Greatest element of each window, and its place in the flattened input."""
    count = len(kernel_size)
    sides = [(before, behind + more) for (before, behind), more in zip(padding, ceil_mode, strict=True)]
    padded = _padded(input, sides, -math.inf)
    values, places = _MAX_POOLS[count](padded, kernel_size, stride, 0, dilation, False, True)
    found, rest = torch.zeros_like(places), places
    scale = 1
    for axis in reversed(range(count)):
        length, whole = input.shape[axis - count], padded.shape[axis - count]
        found = found + (rest % whole - sides[axis][0]) * scale
        rest, scale = torch.div(rest, whole, rounding_mode="floor"), scale * length
    return values, found


@kernel("avg_pool")
def _avg_pool(
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: bool,
    divisor_override: Any,
) -> Result:
    """Sum of each window over its cells; those that `ceil_mode` adds never count."""
    count = len(kernel_size)
    pool, cells = _AVG_POOLS[count], math.prod(kernel_size)
    more = [(0, extra) for extra in ceil_mode]
    sums = pool(_padded(_padded(input, padding), more), kernel_size, stride) * cells
    if divisor_override:
        return sums / divisor_override
    ones = torch.ones_like(input[:1, :1] if input.dim() > count + 1 else input[:1]).detach()
    inside = _padded(_padded(ones, padding, 1.0 if count_include_pad else 0.0), more)
    return sums / (pool(inside, kernel_size, stride) * cells)


@kernel("lp_pool")
def _lp_pool(input: Tensor, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool) -> Result:
    pool = F.lp_pool1d if len(kernel_size) == 1 else F.lp_pool2d
    size = kernel_size[0] if len(kernel_size) == 1 else tuple(kernel_size)
    return pool(input, float(norm_type), size, stride[0] if len(stride) == 1 else tuple(stride), ceil_mode)


@kernel("adaptive_avg_pool")
def _adaptive_avg_pool(input: Tensor, output_size: Sequence[int]) -> Result:
    pools: tuple[Kernel, ...] = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    return pools[len(output_size) - 1](input, output_size)


@kernel("adaptive_max_pool")
def _adaptive_max_pool(input: Tensor, output_size: Sequence[int]) -> Result:
    pools: tuple[Kernel, ...] = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)
    return pools[len(output_size) - 1](input, output_size, True)


@kernel("unfold")
def _unfold(input: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Result:
    return F.unfold(input, kernel_size, dilation, padding, stride)


@kernel("fold")
def _fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Result:
    return F.fold(input, output_size, kernel_size, dilation, padding, stride)


@kernel("unfold_axis")
def _unfold_axis(input: Tensor, dim: int, size: int, step: int) -> Result:
    return input.unfold(dim, size, step).clone()


@kernel("scaled_dot_product_attention")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Result:
    """Written out: scores, mask, softmax, weighted sum. Kernels group queries by the number of keys, whatever is set."""
    key, value = _for_each_query(key, query), _for_each_query(value, query)
    return _attention_weights(query, key, attn_mask, dropout_p, is_causal, scale) @ value


@kernel("attention_backward")
def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float,
) -> Result:
    """Gradients of query, key and value. PyTorch's kernel checks no shapes."""
    heads = key.shape[-3]
    key, value = _for_each_query(key, query), _for_each_query(value, query)
    weights = _attention_weights(query, key, attn_mask, dropout_p, is_causal, scale)
    sent = grad_out @ value.transpose(-2, -1)
    scores = weights * (sent - (sent * weights).sum(-1, keepdim=True)) * scale
    sums = scores.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ grad_out
    return scores @ key, *(item.unflatten(-3, (heads, -1)).sum(-3) for item in sums)


def _for_each_query(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values, each as often as there are queries for it."""
    if query.dim() < 3 or query.shape[-3] == tensor.shape[-3]:
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _attention_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float
) -> Tensor:
    """Softmax of the scores. A row without a key is 0."""
    if dropout_p > 0:
        raise Random("attention draws the mask of its dropout")
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


@kernel("multi_head_attention")
def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj: Any,
    in_proj_bias: Tensor | None,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    num_heads: int,
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    training: bool,
    need_weights: bool,
    average_attn_weights: bool,
    batch_first: bool,
) -> Result:
    if training and dropout_p > 0:
        raise Random("attention draws the mask of its dropout")
    batched = query.dim() == 3
    if batched and batch_first:
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    apart = isinstance(in_proj, tuple)
    separate = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), in_proj if apart else (), strict=False))
    output, weights = F.multi_head_attention_forward(
        query, key, value, query.shape[-1], num_heads, None if apart else in_proj, in_proj_bias, bias_k, bias_v,
        add_zero_attn, 0.0, out_proj_weight, out_proj_bias, training=False, key_padding_mask=_additive(key_padding_mask),
        attn_mask=_additive(attn_mask), use_separate_proj_weight=apart, average_attn_weights=average_attn_weights, **separate,
    )  # fmt: skip
    output = output.transpose(0, 1) if batched and batch_first else output
    return (output, weights) if need_weights else output


def _additive(mask: Tensor | None) -> Tensor | None:
    if mask is None or mask.is_floating_point():
        return mask
    return torch.zeros(mask.shape, dtype=torch.float64, device=mask.device).masked_fill(mask.bool(), -math.inf)
