"""Bounds of sums, differences, products and quotients of elements."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from .registry import (
    Error,
    Tensor,
    error_of,
    magnitude,
    rule_for,
    sum_of,
    times,
)

if TYPE_CHECKING:
    from .modes import RunningError

_VANISHING = 2.0**-54
"""Relative size below which a number changes nothing in a sum in float64."""


@rule_for("add", "sub", "rsub")
def _add(mode: RunningError, y: Tensor, a: Any, b: Any, alpha: Any = 1) -> Error:
    scale = abs(alpha)
    errors = sum_of(error_of(mode, a), times(scale, error_of(mode, b)))
    own = mode.rounded(y)
    if scale != 1 and isinstance(b, Tensor):
        # The product is rounded before it is added, where there is no fused instruction.
        own = own + mode.rounded(scale * b, 1.0 + _is_rounded(alpha))
    total = own if errors is None else own.add_(errors)
    if (
        scale == 1
        and isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and float(total.max() if total.numel() else 0.0) >= 1.0
    ):
        for value, other in ((a, b), (b, a)):
            total = torch.where(_vanishes(mode, value, other), _expanded(error_of(mode, other), total), total)
    return total


def _vanishes(mode: RunningError, value: Tensor, other: Tensor) -> Tensor:
    """Elements that change nothing in a sum, in float64 and so in any type: scores beside the fill value of a mask."""
    error, size = error_of(mode, value), value.abs()
    return (size if error is None else size + error) < _VANISHING * other.abs()


def _expanded(error: Error, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if error is None else error.expand_as(like)


@rule_for("mul")
def _mul(mode: RunningError, y: Tensor, a: Any, b: Any) -> Error:
    ea, eb = error_of(mode, a), error_of(mode, b)
    if ea is None and eb is None and _is_power_of_two(a, b):
        return None
    units = 1.0 + _is_rounded(a, b)
    if ea is None and eb is None:
        return mode.rounded(y, units)
    total = y.abs().mul_(units * mode.unit).add_(mode.least)
    for value, error in ((b, ea), (a, eb)):
        if error is not None:
            size = magnitude(value)
            total = total.addcmul_(size, error) if isinstance(size, Tensor) else total.add_(error, alpha=size)
    if ea is not None and eb is not None:
        total = total.addcmul_(ea, eb)
    if math.isfinite(float(total.sum())):
        return total
    both = ea * eb if ea is not None and eb is not None else None
    return sum_of(times(magnitude(b), ea), times(magnitude(a), eb), both, mode.rounded(y, units))


def _is_rounded(*values: Any) -> bool:
    """True if a number among these is not one of float32: kernels hold it rounded."""
    return any(isinstance(value, float) and _in_single(value) != value for value in values)


@functools.lru_cache(1024)
def _in_single(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def _is_power_of_two(*values: Any) -> bool:
    """Multiplication by 0.5 or -2 is exact."""
    return any(isinstance(value, int | float) and value and math.frexp(abs(value))[0] == 0.5 for value in values)


@rule_for("div")
def _div(mode: RunningError, y: Tensor, a: Any, b: Any, rounding_mode: str | None = None) -> Error:
    if rounding_mode is not None:
        return None
    size = magnitude(b)
    own = mode.rounded(y, 1.0 + _is_rounded(a, b))
    return sum_of(times(1 / size, error_of(mode, a)), times(y.abs() / size, error_of(mode, b)), own)


@rule_for("addcmul")
def _addcmul(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Error:
    product = sum_of(_mul(mode, a * b, a, b), mode.rounded(a * b))
    return sum_of(error_of(mode, x), times(abs(value), product), mode.rounded(y))


@rule_for("addcdiv")
def _addcdiv(mode: RunningError, y: Tensor, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Error:
    quotient = sum_of(_div(mode, a / b, a, b), mode.rounded(a / b))
    return sum_of(error_of(mode, x), times(abs(value), quotient), mode.rounded(y))


@rule_for("lerp")
def _lerp(mode: RunningError, y: Tensor, a: Tensor, b: Tensor, weight: Any) -> Error:
    share = magnitude(weight)
    return sum_of(
        times(1 + share, error_of(mode, a)),
        times(share, error_of(mode, b)),
        mode.rounded(y) + mode.rounded(share * (b - a)),
    )


@rule_for("pow")
def _pow(mode: RunningError, y: Tensor, x: Any, exponent: Any) -> Error:
    if not isinstance(exponent, Tensor) and isinstance(x, Tensor):
        units = 1.0 if exponent in (1, 2, -1, 0.5) else mode.function_units
        slope = (exponent * x.pow(exponent - 1)).abs() if exponent else torch.zeros_like(x)
        return sum_of(times(slope, error_of(mode, x)), mode.rounded(y, units))
    base, power = magnitude(x), exponent if isinstance(exponent, Tensor) else torch.as_tensor(exponent)
    base = base if isinstance(base, Tensor) else torch.as_tensor(float(base), dtype=y.dtype)
    # x**p = exp(p·log x): the exponent's rounding is magnified.
    growth = (power * base.log()).abs().nan_to_num(0.0, 0.0, 0.0)
    return sum_of(
        times((power * y / base).abs(), error_of(mode, x)),
        times((y * base.log()).abs(), error_of(mode, exponent)),
        mode.rounded(y, mode.function_units) + mode.rounded(growth * y),
    )
