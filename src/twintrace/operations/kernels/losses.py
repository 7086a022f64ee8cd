"""Losses."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import KERNELS, Result, kernel


def _reduced(value: Tensor, reduction: str, count: Any = None) -> Result:
    if reduction == "none":
        return value
    if reduction == "sum":
        return value.sum()
    return value.mean() if count is None else value.sum() / count


def _weighted(value: Tensor, weight: Tensor | None, reduction: str) -> Result:
    if weight is None:
        return _reduced(value, reduction)
    return _reduced(value * weight, reduction, weight.expand_as(value).sum() if reduction == "mean" else None)


@kernel("mse_loss")
def _mse_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    return _weighted((input - target).square(), weight, reduction)


@kernel("l1_loss")
def _l1_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    return _weighted((input - target).abs(), weight, reduction)


@kernel("smooth_l1_loss")
def _smooth_l1_loss(input: Tensor, target: Tensor, beta: float, reduction: str) -> Result:
    gap = (input - target).abs()
    if beta == 0:
        return _reduced(gap, reduction)
    return _reduced(torch.where(gap < beta, 0.5 * gap.square() / beta, gap - 0.5 * beta), reduction)


@kernel("huber_loss")
def _huber_loss(input: Tensor, target: Tensor, delta: float, weight: Tensor | None, reduction: str) -> Result:
    gap = (input - target).abs()
    return _weighted(torch.where(gap <= delta, 0.5 * gap.square(), delta * (gap - 0.5 * delta)), weight, reduction)


@kernel("cross_entropy")
def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Result:
    return F.cross_entropy(
        input,
        target if target.is_floating_point() else target.long(),
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@kernel("nll_loss")
def _nll_loss(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Result:
    return F.nll_loss(input, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


@kernel("binary_cross_entropy")
def _binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Result:
    log, other = torch.log(input).clamp_min(-100), torch.log1p(-input).clamp_min(-100)
    loss = -(target * log + (1 - target) * other)
    return _reduced(loss if weight is None else loss * weight, reduction)


class _GradientOf(torch.autograd.Function):
    """The first of two values that are the same, with the gradient of the second."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, same: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient


@kernel("binary_cross_entropy_with_logits")
def _bce_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str
) -> Result:
    positive = target if pos_weight is None else pos_weight * target
    factor = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    stable = (1 - target) * input - factor * F.logsigmoid(input)
    # Kernels compute the gradient as sigmoid(x) - target, which cancels: its bound has to be that of this difference.
    as_computed = factor * F.softplus(input, threshold=math.inf) - positive * input
    loss: Tensor = _GradientOf.apply(stable.detach(), as_computed)  # type: ignore[no-untyped-call]
    return _reduced(loss if weight is None else loss * weight, reduction)


@kernel("kl_div")
def _kl_div(input: Tensor, target: Tensor, log_target: bool, reduction: str) -> Result:
    loss = target.exp() * (target - input) if log_target else torch.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0]
    return _reduced(loss, reduction)


@kernel("poisson_nll_loss")
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: str) -> Result:
    return F.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=reduction)


@kernel("ctc_loss")
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
    reduction: str,
) -> Result:
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank=blank, reduction=reduction, zero_infinity=zero_infinity
    )


_LOSSES = (
    "soft_margin_loss multilabel_soft_margin_loss multilabel_margin_loss multi_margin_loss hinge_embedding_loss "
    "cosine_embedding_loss margin_ranking_loss triplet_margin_loss gaussian_nll_loss cosine_similarity pairwise_distance"
)
for _name in _LOSSES.split():
    KERNELS[_name] = getattr(F, _name)


@kernel("dice_loss")
def _dice_loss(input: Tensor, target: Tensor, smooth: float) -> Result:
    both = (input * target).sum()
    return 1 - 2 * both / (input.square().sum() + target.square().sum() + smooth)


@kernel("half_square_sum")
def _half_square_sum(input: Tensor) -> Result:
    return input.square().sum() / 2
