"""Bounds of sums, means, extremes, scans and softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from .registry import (
    Error,
    Tensor,
    count_terms,
    error_of,
    rule_for,
    sum_of,
    times,
)

if TYPE_CHECKING:
    from .modes import RunningError


@rule_for("sum", "nansum")
def _reduce(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    if not x.is_floating_point():
        return None
    kwargs = {key: value for key, value in kwargs.items() if key != "dtype"}
    terms = count_terms(x, y)
    size = x.abs().sum(*args, **kwargs)
    error = error_of(mode, x)
    passed = None if error is None else error.sum(*args, **kwargs)
    total = sum_of(passed, mode.walk(terms) * size if terms > 1 else None, of_repeats(mode, x, size, *args))
    return None if total is None else total + mode.rounded(y)


def of_repeats(mode: RunningError, x: Tensor, size: Tensor, dims: Any = None, *_: Any) -> Error:
    """Error of summing terms that repeat themselves, one after another, beyond that of a random walk; None if none do.

    The gradient of a mean is one value many times, and adding it rounds in one direction for as long as the sum has one exponent:
    Σ|Sₖ| = n/2·Σ|x| for n equal terms and their partial sums Sₖ.
    """
    axes = sorted(axis % x.dim() for axis in ([dims] if isinstance(dims, int) else dims or range(x.dim())))
    if not axes or not x.numel():
        return None
    lines = x.movedim(axes, list(range(-len(axes), 0))).flatten(-len(axes))
    repeats = (lines[..., 1:] == lines[..., :-1]).logical_and_(lines[..., 1:] != 0).sum(-1)
    if not repeats.any():
        return None
    return (repeats.reshape(size.shape) * (mode.sum_unit / 2)).clamp_max(mode.largest_sum) * size


@rule_for("mean")
def _mean(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    error = _reduce(mode, y, x, *args, **kwargs)
    return None if error is None else error / count_terms(x, y) + mode.rounded(y)


@rule_for("cumsum")
def _cumsum(mode: RunningError, y: Tensor, x: Tensor, dim: int, **_: Any) -> Error:
    if not x.is_floating_point():
        return None
    error = error_of(mode, x)
    length = x.shape[dim] if x.dim() else 1
    passed = None if error is None else error.cumsum(dim)
    return sum_of(passed, mode.walk(length) * x.abs().cumsum(dim), mode.rounded(y))


@rule_for("amax", "amin")
def _extreme(mode: RunningError, y: Tensor, x: Tensor, dim: Any = (), keepdim: bool = False) -> Error:
    error = error_of(mode, x)
    return None if error is None else error.amax(dim, keepdim)


@rule_for("max", "min", "median", "sort", "topk", "mode", "kthvalue", "cummax", "cummin")
def _selected(mode: RunningError, result: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Values taken out of x. Which ones an error may have changed: so the largest error along the axis counts."""
    error = error_of(mode, x)
    if error is None:
        return None if isinstance(result, Tensor) else (None, None)
    if isinstance(result, Tensor):
        return error.max().expand_as(result)
    return error.max().expand_as(result[0]), None


@rule_for("prod")
def _prod(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Error:
    """The product of the largest that each factor may be, less the product: a factor of zero with an error is not exact."""
    error = error_of(mode, x)
    if error is None:
        return mode.rounded(y, count_terms(x, y))
    largest = (x.abs() + error).prod(*args, **kwargs)
    return (largest - y.abs()).clamp_min(0.0) + mode.rounded(largest, count_terms(x, y))


@rule_for("cumprod")
def _cumprod(mode: RunningError, y: Tensor, x: Tensor, dim: int, **_: Any) -> Error:
    error, terms = error_of(mode, x), x.shape[dim] if x.dim() else 1
    if error is None:
        return mode.rounded(y, terms)
    largest = (x.abs() + error).cumprod(dim)
    return (largest - y.abs()).clamp_min(0.0) + mode.rounded(largest, terms)


@rule_for("logcumsumexp")
def _logcumsumexp(mode: RunningError, y: Tensor, x: Tensor, dim: int) -> Error:
    size = x.nan_to_num(0.0, 0.0, 0.0).abs().cummax(dim).values
    own = mode.unit * (size + y.nan_to_num(0.0, 0.0, 0.0).abs() + mode.function_units) + mode.walk(x.shape[dim])
    error = error_of(mode, x)
    return sum_of(own, None if error is None else error.cummax(dim).values)


@rule_for("_cdist_forward")
def _cdist(mode: RunningError, y: Tensor, a: Tensor, b: Tensor, p: float, how: Any = None) -> Error:
    """By differences, or of two norms and a product, which cancel: |a|² + |b|² - 2ab, from 25 rows on for p = 2."""
    terms = max(a.shape[-1], 1)
    own = mode.rounded(y, 4.0) + mode.walk(terms) * y
    if p == 2 and max(a.shape[-2], b.shape[-2]) > _DIRECT_ROWS:
        size = a.norm(dim=-1).unsqueeze(-1) + b.norm(dim=-1).unsqueeze(-2)
        squared = mode.walk(terms + 2) * size * size
        own = own + torch.minimum(squared / (2 * y), squared.sqrt()).nan_to_num(0.0)
    ea, eb = error_of(mode, a), error_of(mode, b)
    passed = [None if e is None else e.norm(dim=-1) for e in (ea, eb)]
    return sum_of(
        own,
        None if passed[0] is None else passed[0].unsqueeze(-1).expand_as(y),
        None if passed[1] is None else passed[1].unsqueeze(-2).expand_as(y),
    )


_DIRECT_ROWS = 25
"""Rows up to which PyTorch computes distances from differences (`use_mm_for_euclid_dist_if_necessary`)."""


@rule_for("_cdist_backward")
def _cdist_backward(
    mode: RunningError, y: Tensor, g: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor
) -> Error:
    """Σ g·|a-b|^(p-1)·sign / d^(p-1) over the rows of b: as many terms, which may cancel."""
    difference = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
    scale = distance.unsqueeze(-1)
    slope = (
        (difference / scale).nan_to_num(0.0, 0.0, 0.0) ** max(p - 1, 0.0) if math.isfinite(p) else (difference == scale)
    )
    error, own = mode.of(distance), error_of(mode, g)
    relative = mode.unit * 8.0 + mode.walk(b.shape[-2])
    size = (g.abs().unsqueeze(-1) * slope).sum(-2)
    total = relative * size + mode.rounded(y)
    if own is not None:
        total = total + (own.unsqueeze(-1) * slope).sum(-2)
    if error is not None:
        share = (error / distance).nan_to_num(0.0, 0.0).clamp_max(1.0)
        total = total + ((g.abs() * share).unsqueeze(-1) * slope).sum(-2) * max(p - 1, 1.0)
    return total


@rule_for("_ctc_loss")
def _ctc_loss(mode: RunningError, result: Any, scores: Tensor, *_: Any, **__: Any) -> Any:
    """Sums of exponentials over the steps, in logarithms: each step adds units of what was summed so far."""
    loss, alpha = result
    units = mode.function_units * math.sqrt(max(scores.shape[0], 1))
    error = error_of(mode, scores)
    passed = None if error is None else error.amax((0, 2)).sum() * scores.shape[0] if error.dim() > 2 else error.sum()
    return [sum_of(mode.rounded(item.abs() + 1.0, units), passed) for item in (loss, alpha)]


@rule_for("_ctc_loss_backward")
def _ctc_loss_backward(
    mode: RunningError,
    y: Tensor,
    g: Tensor,
    scores: Tensor,
    targets: Any,
    lengths: Any,
    sizes: Any,
    loss: Tensor,
    *_: Any,
    **__: Any,
) -> Error:
    """g·(p - posterior): both are exponentials of numbers as large as the loss."""
    units = mode.function_units * math.sqrt(max(scores.shape[0], 1))
    seed = g.abs().reshape(1, -1, 1) if scores.dim() > 2 else g.abs()
    parts = y.abs() + 2 * seed * scores.exp()
    return parts * mode.unit * units * (1 + loss.abs().max())


@rule_for("multilabel_margin_loss_backward", "multi_margin_loss_backward")
def _margin_backward(mode: RunningError, y: Tensor, g: Tensor, x: Tensor, *_: Any, **__: Any) -> Error:
    """As many equal steps as there are classes."""
    return mode.rounded(y, mode.function_units) + mode.walk(x.shape[-1]) * y.abs()


@rule_for("linalg_vector_norm")
def _vector_norm(
    mode: RunningError, y: Tensor, x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Error:
    error = error_of(mode, x)
    passed = None if error is None else torch.linalg.vector_norm(error, ord, dim, keepdim)
    return sum_of(passed, (2 * mode.sum_unit + mode.walk(count_terms(x, y))) * y.abs(), mode.rounded(y))


@rule_for("_softmax", "_safe_softmax")
def _softmax(mode: RunningError, y: Tensor, x: Tensor, dim: int, *_: Any) -> Error:
    # Beyond that exp is zero in any precision.
    distance = (x.amax(dim, True) - x).clamp_max(1e4).nan_to_num(0.0, 1e4, 0.0)
    units = mode.function_units + mode.walk(x.shape[dim] if x.dim() else 1) / mode.unit
    own = y * mode.unit * (distance + units)
    error = error_of(mode, x)
    if error is None:
        return own
    passed = times(y, error)
    assert passed is not None
    return own + passed + y * passed.sum(dim, True)


@rule_for("_log_softmax")
def _log_softmax(mode: RunningError, y: Tensor, x: Tensor, dim: int, *_: Any) -> Error:
    finite = x.nan_to_num(0.0, 0.0, 0.0).abs()
    terms = mode.walk(x.shape[dim] if x.dim() else 1)
    own = (
        mode.unit * (finite + finite.amax(dim, True) + mode.function_units + y.nan_to_num(0.0, 0.0, 0.0).abs()) + terms
    )
    error = error_of(mode, x)
    if error is None:
        return own
    return own + error + times(y.exp(), error).sum(dim, True)  # type: ignore[union-attr]


@rule_for("logsumexp")
def _logsumexp(mode: RunningError, y: Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Error:
    size = x.nan_to_num(0.0, 0.0, 0.0).abs().amax(dim, keepdim)
    own = mode.unit * (size + y.abs() + mode.function_units) + mode.walk(count_terms(x, y))
    error = error_of(mode, x)
    return sum_of(own, None if error is None else error.amax(dim, keepdim))
