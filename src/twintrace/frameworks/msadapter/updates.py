"""The optimizer's step: one call, with all that went into it and all that came out.

    update/api:torch.optim.AdamW.step#0
        in    parameters, gradients, state (exp_avg, exp_avg_sq, step), groups (lr, betas, eps, weight_decay …)
        out   parameters and state afterwards

The same as for PyTorch. An optimizer that is not MSAdapter's own is the user's code, and its calls are recorded one by one. Seen in
the `step` of every class of optimizers that is there when recording begins: MSAdapter's hooks are not called when a step raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import Optimizer

from ..mindspore.updates import Updates as MindsporeUpdates
from .names import PACKAGE
from .patches import patch


def is_optimizer(value: Any) -> bool:
    """Is this an optimizer?"""
    return isinstance(value, Optimizer)


class Updates(MindsporeUpdates):
    """MindSpore's, for torch's optimizers."""

    _is_graph = False

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield self._forget
        pending: list[type] = [Optimizer]
        while pending:
            kind = pending.pop()
            pending.extend(kind.__subclasses__())
            if "step" in vars(kind):
                yield patch(vars(kind)["step"], "__call__", self._layer)

    def _is_own(self, kind: type) -> bool:
        return kind.__module__.partition(".")[0] == PACKAGE

    def _name(self, kind: type) -> str:
        return f"torch.optim.{kind.__name__}.step"

    def _held(self, optimizer: Any) -> tuple[list[Any], dict[str, Any]]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return parameters, _state(optimizer, parameters)

    def _given(self, optimizer: Any, parameters: list[Any], args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        return [parameter.grad for parameter in parameters], {"groups": _groups(optimizer)}


def _state(optimizer: Any, parameters: list[Any]) -> dict[str, Any]:
    """Per parameter, by number: what the optimizer remembers of it."""
    return {str(i): dict(optimizer.state[p]) for i, p in enumerate(parameters) if p in optimizer.state}


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    """Learning rate and the rest, with how many parameters each group has."""
    return [
        {**{name: value for name, value in group.items() if name != "params"}, "parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
