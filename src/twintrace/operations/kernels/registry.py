"""The table of kernels, and functions that kernels share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..steps import STEPS

Result = Any  # Tensor | tuple[Tensor, ...] | dict[int | str, Tensor]
Kernel = Callable[..., Result]
KERNELS: dict[str, Kernel] = {**STEPS}
"""Kernel of each operation."""

TYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64, "f32": torch.float64, "f16": torch.float64, "bf16": torch.float64, "c32": torch.complex128,
    "c64": torch.complex128, "c128": torch.complex128, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "b8": torch.bool,
    "f8e4m3fn": torch.float64, "f8e5m2": torch.float64, "f8e4m3fnuz": torch.float64, "f8e5m2fnuz": torch.float64,
    **{f"u{bits}": getattr(torch, f"uint{bits}") for bits in (16, 32, 64) if hasattr(torch, f"uint{bits}")},  # from 2.3 on
}  # fmt: skip
"""Type in which a recorded element type is computed."""


class Random(ValueError):
    """The result depends on random numbers, and is not told by the arguments."""


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Enter a function into the table."""

    def enter(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function

    return enter


def wide(value: Any) -> Any:
    """Integers and bools as float64, for functions whose result is real."""
    return (
        value.double() if isinstance(value, Tensor) and not (value.is_floating_point() or value.is_complex()) else value
    )


def tensor_of(value: Any, like: Tensor | None = None) -> Tensor:
    """A number as a tensor."""
    if isinstance(value, Tensor):
        return value
    kind = torch.float64 if isinstance(value, float) else torch.complex128 if isinstance(value, complex) else None
    return torch.tensor(value, dtype=kind, device=like.device if like is not None else None)


def unary(function: Callable[[Tensor], Tensor], *, real: bool) -> Kernel:
    if real:
        return lambda input: function(wide(tensor_of(input)))
    return lambda input: function(tensor_of(input))


def matching(value: Any, other: Any) -> Any:
    """A number as a tensor without axes, of a type that does not change the other's."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool) or (
        isinstance(value, int) and isinstance(other, Tensor) and not other.dtype.is_floating_point
    ):
        return torch.tensor(value, device=other.device)
    kind = torch.complex128 if isinstance(value, complex) else torch.float64
    return torch.tensor(value, dtype=kind, device=other.device)
