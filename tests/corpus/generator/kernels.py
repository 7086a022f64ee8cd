"""Kernels that compute something wrong, below what a recorder sees as a call. PyTorch alone lets them be planted.

    with WrongKernel(layer, "one column", backward=False): …

The first product or convolution that takes the layer's weight is wrong, and no other; backward, the one that makes its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::linear")
Tensors = tuple[torch.Tensor, ...]


def _one_element(y: torch.Tensor, _: Tensors) -> torch.Tensor:
    """Off by a twentieth of the largest element: far beyond rounding, and one of many."""
    y = y.clone()
    flat = y.view(-1)
    flat[flat.numel() // 2] += 0.05 * y.abs().max() + 0.05 * flat[flat.numel() // 2].abs()
    return y


def _one_column(y: torch.Tensor, _: Tensors) -> torch.Tensor:
    y = y.clone()
    y[:, -1] = 0
    return y


def _sums_in_16_bits(y: torch.Tensor, operands: Tensors) -> torch.Tensor:
    """The product summed up in bfloat16 or, where that is the dtype, in float16, one term after the other."""
    short = torch.float16 if y.dtype == torch.float16 else torch.bfloat16
    *bias, left, right = operands
    total = torch.zeros_like(y, dtype=short)
    for n in range(left.shape[1]):
        total = total + (left[:, n : n + 1].float() @ right[n : n + 1].float()).to(short)
    return (total + bias[0].to(short) if bias else total).to(y.dtype)


HOW: dict[str, Callable[[torch.Tensor, Tensors], torch.Tensor]] = {
    "zero": lambda y, _: torch.zeros_like(y),
    "halved": lambda y, _: y / 2,
    "times 0.99": lambda y, _: (y.double() * 0.99).to(y.dtype),
    "one element": _one_element,
    "one column": _one_column,
    "sums in 16 bits": _sums_in_16_bits,
}


class WrongKernel(TorchDispatchMode):
    def __init__(self, layer: Any, how: str, *, backward: bool) -> None:
        super().__init__()
        self.weight, self.how, self.backward = layer.weight, HOW[how], backward
        self.waiting, self.planted = not backward, 0

    def arm(self) -> None:
        """The backward pass begins."""
        self.waiting = self.waiting or (self.backward and not self.planted)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not self.waiting or function._schema.name not in _PRODUCTS:
            return result
        operands = tuple(value for value in args if isinstance(value, torch.Tensor))
        if self.backward:
            ours = result.shape in (self.weight.shape, self.weight.T.shape)
        else:
            ours = any(value.data_ptr() == self.weight.data_ptr() for value in operands)
        if not ours:
            return result
        self.waiting, self.planted = False, self.planted + 1
        return self.how(result, operands)
