"""Bounds of functions of one argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .registry import (
    RULES,
    Error,
    Rule,
    Tensor,
    error_of,
    rule_for,
    sum_of,
    times,
)

if TYPE_CHECKING:
    from .modes import RunningError

_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda x, y: y.abs(),
    "exp2": lambda x, y: y.abs(),
    "expm1": lambda x, y: (y + 1).abs(),
    "log": lambda x, y: 1 / x.abs(),
    "log2": lambda x, y: 1.4427 / x.abs(),
    "log10": lambda x, y: 0.4343 / x.abs(),
    "log1p": lambda x, y: 1 / (1 + x).abs(),
    "rsqrt": lambda x, y: 0.5 * (y / x).abs(),
    "reciprocal": lambda x, y: y * y,
    "sin": lambda x, y: x.cos().abs(),
    "cos": lambda x, y: x.sin().abs(),
    "tan": lambda x, y: 1 + y * y,
    "sinh": lambda x, y: x.cosh(),
    "cosh": lambda x, y: x.sinh().abs(),
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "erf": lambda x, y: 1.1284 * (-x * x).exp(),
    "erfc": lambda x, y: 1.1284 * (-x * x).exp(),
    "atan": lambda x, y: 1 / (1 + x * x),
    "asin": lambda x, y: 1 / (1 - x * x).sqrt(),
    "acos": lambda x, y: 1 / (1 - x * x).sqrt(),
    "asinh": lambda x, y: 1 / (1 + x * x).sqrt(),
    "acosh": lambda x, y: 1 / (x * x - 1).sqrt(),
    "atanh": lambda x, y: 1 / (1 - x * x).abs(),
    "digamma": lambda x, y: torch.polygamma(1, x).abs(),
    "lgamma": lambda x, y: torch.digamma(x).abs(),
    "erfinv": lambda x, y: 0.8863 * (y * y).exp(),
    "i0": lambda x, y: torch.special.i1(x).abs(),
    "special_i1": lambda x, y: torch.special.i0(x) + (y / x).abs().nan_to_num(1.0),
}


_ROUNDED_ONCE = frozenset(("reciprocal",))


_ABSOLUTE = frozenset(("erf", "erfc"))
"""Approximated with the same absolute error everywhere: 1 + erf(x) loses what erf has near -1 and near 0."""


def _function(name: str) -> Rule:
    slope = _SLOPES[name]

    def rule(mode: RunningError, y: Tensor, x: Tensor, *_: Any, **__: Any) -> Error:
        units = 1.0 if name in _ROUNDED_ONCE else mode.function_units
        size = torch.ones_like(y) if name in _ABSOLUTE else y
        error = error_of(mode, x)
        passed = times(slope(x, y), error)
        passed = None if passed is None else passed.nan_to_num(0.0, math.inf, math.inf)
        return sum_of(passed, mode.rounded(size, units))

    return rule


for _name in _SLOPES:
    RULES[_name] = _function(_name)


@rule_for("sqrt")
def _sqrt(mode: RunningError, y: Tensor, x: Tensor) -> Error:
    error = error_of(mode, x)
    passed = None
    if error is not None:  # √(x + e) - √x is at most √e, which is what counts at 0
        passed = torch.minimum((0.5 * error / y).nan_to_num(math.inf, math.inf), error.sqrt())
    return sum_of(passed, mode.rounded(y))


@rule_for(
    "neg", "abs", "relu", "clone", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold", "copy", "lift_fresh_copy",
    "copysign", "nextafter", "hardshrink_backward", "softshrink_backward",
)  # fmt: skip
def _passed_on(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **_: Any) -> Error:
    error = error_of(mode, x)
    return None if error is None else error.expand_as(y)


@rule_for("leaky_relu", "prelu", "_prelu_kernel", "elu", "hardswish", "hardsigmoid")
def _bent(mode: RunningError, y: Tensor, x: Tensor, *args: Any, **_: Any) -> Error:
    """Functions of one argument whose slope is at most 1.5 (hardswish), or that of a given weight."""
    slope = 1.5 + max((float(abs(item)) for item in args if isinstance(item, int | float)), default=0.0)
    return sum_of(times(slope, error_of(mode, x)), mode.rounded(y, mode.function_units))


@rule_for("linspace")
def _linspace(mode: RunningError, y: Tensor, start: float, end: float, *_: Any, **__: Any) -> Error:
    """Steps from either end, each a rounded step times its number."""
    return mode.rounded(torch.full_like(y, max(abs(start), abs(end))), 2.0)


@rule_for("angle")
def _angle(mode: RunningError, y: Tensor, x: Tensor) -> Error:
    """Of real numbers 0 or π."""
    return None if x.is_floating_point() else mode.rounded(torch.full_like(y, math.pi), mode.function_units)


@rule_for("atan2")
def _atan2(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    square = a * a + b * b
    return sum_of(
        times(b.abs() / square, error_of(mode, a)),
        times(a.abs() / square, error_of(mode, b)),
        mode.rounded(y, mode.function_units),
    )


@rule_for("hypot")
def _hypot(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    return sum_of(error_of(mode, a), error_of(mode, b), mode.rounded(y, 4.0))


@rule_for("polygamma")
def _polygamma(mode: RunningError, y: Tensor, order: int, x: Tensor) -> Error:
    return sum_of(times(torch.polygamma(order + 1, x).abs(), error_of(mode, x)), mode.rounded(y, mode.function_units))


@rule_for("_to_copy")
def _cast(mode: RunningError, y: Tensor, x: Tensor, **_: Any) -> Error:
    """A cast is part of the computation; beside a tie an error of its argument may decide for the neighbour."""
    error = error_of(mode, x)
    if error is None or not x.is_floating_point():
        return None
    return error + _unit_of(y.dtype) * y.abs().double() if y.dtype != torch.float64 else error.clone()


def _unit_of(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


@rule_for("where")
def _where(mode: RunningError, y: Tensor, condition: Tensor, a: Any, b: Any) -> Error:
    ea, eb = error_of(mode, a), error_of(mode, b)
    if ea is None and eb is None:
        return None
    zero = torch.zeros((), dtype=torch.float64, device=y.device)
    return torch.where(condition, zero if ea is None else ea, zero if eb is None else eb).expand_as(y)


@rule_for("maximum", "minimum", "fmax", "fmin")
def _larger(mode: RunningError, y: Tensor, a: Tensor, b: Tensor) -> Error:
    ea, eb = error_of(mode, a), error_of(mode, b)
    if ea is None or eb is None:
        only = eb if ea is None else ea
        return None if only is None else only.expand_as(y)
    return torch.maximum(*torch.broadcast_tensors(ea, eb))


@rule_for("masked_fill")
def _masked_fill(mode: RunningError, y: Tensor, x: Tensor, mask: Tensor, value: Any) -> Error:
    error = error_of(mode, x)
    return None if error is None else error.expand_as(y).masked_fill(mask, 0.0)


@rule_for("fmod", "remainder")
def _remainder(mode: RunningError, y: Tensor, x: Any, other: Any) -> Error:
    return sum_of(error_of(mode, x), mode.rounded(torch.as_tensor(x).expand_as(y)))
