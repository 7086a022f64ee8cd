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

from ...model.sites import Kind, Phase
from ..mindspore.updates import Updates as MindsporeUpdates
from ..protocol import Open
from .gradients import unseen
from .names import PACKAGE
from .patches import patch
from .tensors import wrote


def is_optimizer(value: Any) -> bool:
    """Is this an optimizer?"""
    return isinstance(value, Optimizer)


class Updates(MindsporeUpdates):
    """MindSpore's, for torch's optimizers."""

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield self._forget
        pending: list[type] = [Optimizer]
        while pending:
            kind = pending.pop()
            pending.extend(kind.__subclasses__())
            if "step" in vars(kind):
                yield patch(vars(kind)["step"], "__call__", self._layer)

    def _step(self, original: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
        self.running, self.own = True, type(optimizer).__module__.partition(".")[0] == PACKAGE
        call = self._enter(optimizer, args, kwargs) if self.own else None
        try:
            output = original(optimizer, *args, **kwargs)
        except BaseException as error:
            if call is not None and self._sink is not None:
                self._sink.fail(call, error)
            raise
        finally:
            self._forget()
            wrote()
        if call is not None and self._sink is not None:
            with unseen():
                parameters = _parameters(optimizer)
                self._sink.leave(call, {"parameters": parameters, "state": _state(optimizer, parameters)})
        return output

    def _enter(self, optimizer: Any, args: Any, kwargs: Any) -> Open | None:
        if self._sink is None:
            return None
        with unseen():
            parameters = _parameters(optimizer)
            return self._sink.enter(
                Kind.API,
                f"torch.optim.{type(optimizer).__name__}.step",
                (parameters,),
                {
                    "gradients": [parameter.grad for parameter in parameters],
                    "state": _state(optimizer, parameters),
                    "groups": _groups(optimizer),
                },
                phase=Phase.UPDATE,
                mutates=("0", "kw.state"),
            )


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _state(optimizer: Any, parameters: list[Any]) -> dict[str, Any]:
    """Per parameter, by number: what the optimizer remembers of it."""
    return {str(i): dict(optimizer.state[p]) for i, p in enumerate(parameters) if p in optimizer.state}


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    """Learning rate and the rest, with how many parameters each group has."""
    return [
        {**{name: value for name, value in group.items() if name != "params"}, "parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
