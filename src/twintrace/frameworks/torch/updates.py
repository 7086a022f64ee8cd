"""The optimizer's step: one call, with all that went into it and all that came out.

    update/api:torch.optim.AdamW.step#0
        in    parameters, gradients, state (exp_avg, exp_avg_sq, step), groups (lr, betas, eps, weight_decay …)
        out   parameters and state afterwards

The user has called `optimizer.step()`, and that is what is recorded: the hundreds of small in-place calls inside it are torch's
own, like those inside any other function (level `op` shows its kernels). An optimizer that is not torch's is the user's code, and
its calls are recorded one by one. So is a closure, which is a forward and backward of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .gradients import unseen

_MAX_FRAMES = 40


class Updates:
    """Knows whether an optimizer is at work, and reports its steps where a sink is given."""

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self._door: CodeType | None = None
        self._call: Open | None = None
        self._own = False
        self.running = False

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield register_optimizer_step_pre_hook(self._begin).remove
        yield register_optimizer_step_post_hook(self._end).remove
        yield self._forget

    def inside_torch(self) -> bool:
        """Is the present call one that torch's own optimizer makes? A step that raised has left its door: then it is not."""
        if not self._own:
            return False
        frame, door = sys._getframe(1).f_back, self._door
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            if frame.f_code is door:
                return True
            frame = frame.f_back
        self._forget()
        return False

    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        self.running = True
        if self._sink is None or not type(optimizer).__module__.startswith("torch.optim"):
            return None
        self._door = sys._getframe(1).f_code
        with unseen():
            parameters = _parameters(optimizer)
            self._call = self._sink.enter(
                Kind.API,
                f"torch.optim.{type(optimizer).__name__}.step",
                (parameters,),
                {
                    "gradients": [p.grad for p in parameters],
                    "state": _state(optimizer, parameters),
                    "groups": _groups(optimizer),
                },
                phase=Phase.UPDATE,
                mutates=("0", "kw.state"),
            )
        self._own = True
        return self._around_closure(args, kwargs)

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        call, self._call = self._call, None
        self._forget()
        if call is not None and self._sink is not None:
            with unseen():
                parameters = _parameters(optimizer)
                state = _state(optimizer, parameters)
                self._sink.leave(call, {"parameters": parameters, "state": state})
                for each in state.values():
                    if isinstance(witness := each.get("step"), Tensor):
                        others = [item for item in each.values() if isinstance(item, Tensor) and item is not witness]
                        self._sink.remember(others, witness)

    def _forget(self) -> None:
        call, self._call = self._call, None
        self.running = self._own = False
        if call is not None and self._sink is not None:
            self._sink.fail(call, RuntimeError("the step ended without a result"))

    def _around_closure(self, args: Any, kwargs: Any) -> Any:
        """A closure computes the loss anew: its calls are the user's, and of the forward pass."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None

        def watched() -> Any:
            before = self.running, self._own
            self.running = self._own = False
            try:
                return closure()
            finally:
                self.running, self._own = before

        return ((args[0], watched, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": watched})


def forget_updated(sink: Sink) -> Callable[[], None]:
    """Where steps are not recorded themselves: tell what they have written to, because fused ones count no versions."""

    def tell(optimizer: Optimizer, *_: Any) -> None:
        with unseen():
            sink.forget(_parameters(optimizer))

    remove: Callable[[], None] = register_optimizer_step_post_hook(tell).remove
    return remove


def _parameters(optimizer: Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _state(optimizer: Optimizer, parameters: list[Any]) -> dict[str, Any]:
    """Per parameter, by number: what the optimizer remembers of it."""
    return {str(i): dict(optimizer.state[p]) for i, p in enumerate(parameters) if p in optimizer.state}


def _groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Learning rate and the rest, with how many parameters each group has."""
    return [
        {**{name: value for name, value in group.items() if name != "params"}, "parameters": len(group["params"])}
        for group in optimizer.param_groups
    ]
