"""The table of rules, and functions that rules share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .modes import RunningError

Tensor = torch.Tensor


Error = Tensor | None


aten = torch.ops.aten


FUNCTION_UNITS = 8.0
"""Units of an elementary function. Vectorised erf is off by 6.5 units of 1 in float32 (PyTorch 2.13), the worst of those tried."""


WALK = 3.0
"""Random walks stay within three standard deviations at every element of a sum; `tests/operations/test_rounding.py`."""


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [item for part in value for item in flat(part)]
    return []


Rule = Callable[..., Any]


RULES: dict[str, Rule] = {}


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def sum_of(*errors: Error) -> Error:
    """Sum of those that are there; shapes are broadcast."""
    known = [error for error in errors if error is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    total = known[0] + known[1]
    for error in known[2:]:
        total = total.add_(error) if error.numel() <= total.numel() else total + error
    return total


def times(factor: Tensor | float, error: Error) -> Error:
    """`factor·error`; zero where either is, whatever the other (an infinite derivative of an exact zero, a masked score)."""
    if error is None:
        return None
    product = factor * error
    if math.isfinite(float(product.sum())):
        return product
    product = torch.where(error == 0, error, product)
    return product.masked_fill(factor == 0, 0.0) if isinstance(factor, Tensor) else product


def magnitude(value: Any) -> Any:
    """|value|; of integers and truth values as float64."""
    if not isinstance(value, Tensor):
        return abs(value)
    return value.abs() if value.is_floating_point() or value.is_complex() else value.double().abs()


def error_of(mode: RunningError, value: Any) -> Error:
    return mode.of(value) if isinstance(value, Tensor) and value.is_floating_point() else None


def count_terms(x: Tensor, y: Tensor) -> float:
    return max(x.numel() / max(y.numel(), 1), 1.0)
