"""Bounds of products of matrices and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .registry import (
    WALK,
    Error,
    Tensor,
    aten,
    error_of,
    rule_for,
    sum_of,
    times,
)
from .sums import of_repeats

if TYPE_CHECKING:
    from .modes import RunningError

_SINGLE = 2.0**-24


_RANGE = 1e-12, 1e12
"""Largest elements of two factors whose products float32 can hold, and sums of them."""


_MANY = 64
"""Terms of a sum of which some stand for all."""


_COARSELY = 1.001
"""Factor that makes up for float32's rounding of a sum of 2**13 magnitudes."""


def _product(
    mode: RunningError,
    multiply: Callable[[Tensor, Tensor], Tensor],
    a: Tensor,
    b: Tensor,
    terms: int,
    scattered: bool = False,
) -> Tensor:
    """Error of a sum of products: those of the operands, and its own. `scattered`: parts of it meet in memory."""
    ea, eb = mode.of(a), mode.of(b)
    unit = mode.sum_unit if scattered else mode.product_unit
    share = min(WALK * math.sqrt(terms) * unit, mode.largest_sum)
    counted = a, b
    if mode.stride > 1 and multiply is torch.matmul and a.dim() == b.dim() == 2 and terms > _MANY:
        counted = a[:, :: mode.stride], b[:: mode.stride]
    ma, mb = (item.abs() for item in counted)
    total = (multiply(ma, mb) if unit < _SINGLE else coarse_product(multiply, ma, mb)).mul_(share)
    if ea is not None:
        mb = b.abs()
        total += multiply(ea, mb if eb is None else mb + eb)
    if eb is not None:
        total += multiply(a.abs(), eb)
    return total


def coarse_product(multiply: Callable[..., Any], *factors: Tensor) -> Any:
    """A product of tensors without negative elements, in float32 where its range allows: bounds need three digits, not 16."""
    sizes = [float(item.max()) if item.numel() else 1.0 for item in factors]
    if not all(_RANGE[0] < size < _RANGE[1] for size in sizes):
        return multiply(*factors)
    result = multiply(*(item.float() for item in factors))
    if isinstance(result, dict):
        return {key: item.double().mul_(_COARSELY) for key, item in result.items()}
    return result.double().mul_(_COARSELY)


@rule_for("mm", "bmm", "mv", "dot", "vdot")
def _mm(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    return _product(mode, torch.matmul, a, b, a.shape[-1]).add_(mode.rounded(y))


@rule_for("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Error:
    product = _product(mode, torch.matmul, a, b, a.shape[-1]).mul_(abs(alpha))
    return sum_of(product, mode.rounded(y), mode.rounded(abs(beta) * x), times(abs(beta), error_of(mode, x)))


@rule_for("convolution")
def _convolution(mode: RunningError, y: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, *settings: Any) -> Error:
    terms = math.prod(w.shape[1:]) if not settings[3] else math.prod(w.shape[2:]) * x.shape[1]

    def multiply(a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = aten.convolution.default(a, b, None, *settings)
        return result

    error = _product(mode, multiply, x, w, terms, scattered=bool(settings[3]))
    if bias is not None:
        own = error_of(mode, bias)
        size = bias.abs() if own is None else bias.abs() + own / mode.unit
        error = error + mode.unit * size.reshape(-1, *[1] * (y.dim() - 2))
    return error + mode.rounded(y)


@rule_for("convolution_backward")
def _convolution_backward(
    mode: RunningError, y: Any, g: Tensor, x: Tensor, w: Tensor, sizes: Any, *settings: Any
) -> Any:
    def multiply(a: Tensor, b: Tensor, c: Tensor) -> Any:
        return aten.convolution_backward.default(a, b, c, sizes, *settings)

    own = multiply(g.abs(), x.abs(), w.abs())
    over = g.numel() / g.shape[1]  # batch and places: what the gradients of weight and bias are summed over
    terms = (g.shape[1] * math.prod(w.shape[2:]), over, over)
    parts = [multiply(error, x.abs(), w.abs()) for error in [mode.of(g)] if error is not None]
    ex, ew = mode.of(x), mode.of(w)
    if ex is not None or ew is not None:
        zero = torch.zeros((), dtype=g.dtype, device=g.device)
        spread = multiply(g.abs(), zero.expand_as(x) if ex is None else ex, zero.expand_as(w) if ew is None else ew)
        parts.append((spread[0], spread[1], None))
    errors: list[Error] = []
    for place, value in enumerate(y):
        if value is None:
            errors.append(None)
            continue
        walk = mode.walk(terms[place]) * own[place]
        repeated = of_repeats(mode, g, own[place], [0, *range(2, g.dim())]) if place == 2 else None
        errors.append(sum_of(walk, repeated, mode.rounded(value), *(part[place] for part in parts)))
    return [error for error, value in zip(errors, y, strict=True) if value is not None]
