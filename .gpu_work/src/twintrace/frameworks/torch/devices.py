"""A device that is not here, played by one that is.

    undo = stand_in("npu", None)      tensor.npu() and module.npu() move to cuda where there is one, and to cpu otherwise
    undo = stand_in("npu", "cuda:1")  to that one

Only the methods: a text such as "npu:0" is read by torch itself, which knows no such device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...model.errors import UsageError


def stand_in(alias: str, device: str | None, remedy: str = "") -> Callable[[], None]:
    """Give tensors and modules a method called `alias`; the result takes it away. A method of that name that is there stays.

    `remedy` ends the warning: how to have another device.
    """
    target = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device: torch cannot use {target!r} here ({str(error).splitlines()[0]}).") from None
    told = False

    def move(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """Move to the device that plays this one."""
        nonlocal told
        if not told:
            told = True
            text = f"twintrace: there is no {alias} here; .{alias}() means {target}. {remedy}".rstrip()
            warnings.warn(text, UserWarning, stacklevel=2)
        return self.to(target, non_blocking=non_blocking)

    move.__name__ = alias
    given: list[Any] = [owner for owner in (Tensor, nn.Module) if not hasattr(owner, alias)]
    for owner in given:
        setattr(owner, alias, move)

    def undo() -> None:
        while given:
            delattr(given.pop(), alias)

    return undo
