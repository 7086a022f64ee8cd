"""The optimizer's step: one call, with all that went into it and all that came out.

    update/api:torch.optim.AdamW.step#0
        in    parameters, gradients, state (exp_avg, exp_avg_sq, step), groups (lr, betas, eps, weight_decay …)
        out   parameters and state afterwards

The user has called `optimizer.step()`, and that is what is recorded: the hundreds of small in-place calls inside it are torch's
own, like those inside any other function (level `op` shows its kernels). An optimizer that is not torch's is the user's code, and
its calls are recorded one by one. So is a closure, which is a forward and backward of its own.
`zero_grad()` says nothing, however it clears: with `set_to_none=False` it writes a zero to each gradient, and the record is what it
is with `set_to_none=True`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .drafts import HANDLERS, caller, draft_of
from .gradients import unseen
from .modules import end
from .patches import patch
from .releases import is_compiling
from .steps import on_steps

_MUTATES = ("0", "kw.state")
_STEP = "Optimizer.step#"
"""Beginning of the name of the range in which torch's profiler sees a step; it is left in any case, also when the step raises."""


class _Here(threading.local):
    """State of one thread."""

    def __init__(self) -> None:
        self.running = False
        self.call: Open | None = None
        self.planned: tuple[Any, Any, Any, Any] | None = None  # follower, event, arguments
        self.resume: Callable[[], None] | None = None


class Updates:
    """Knows whether an optimizer is at work, and reports its steps where a sink is given."""

    def __init__(self, sink: Sink | None = None, suspend: Callable[[], Callable[[], None]] | None = None) -> None:
        """`suspend` ends the watching of calls, those that torch's optimizer makes itself; its result goes on with it."""
        self._sink, self._suspend = sink, suspend
        self._here = _Here()
        self.planner: Any = None

    @property
    def running(self) -> bool:
        """Is an optimizer at work in this thread?"""
        return self._here.running

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield on_steps(self._begin, self._end, self._over)
        yield patch(torch.autograd.profiler.record_function, "__exit__", self._after_steps)
        yield patch(Optimizer, "zero_grad", self._around_clearing)
        yield patch(nn.Module, "zero_grad", self._around_clearing)
        yield self._over

    def _after_steps(self, original: Any) -> Any:
        """No hook is called when a step raises, but the profiler's range around it is left."""

        @functools.wraps(original)  # TorchScript reads the source of the function that this leads to
        def __exit__(this: Any, *exc: Any) -> Any:
            try:
                if not is_compiling() and this.name.startswith(_STEP):
                    self._over()
            finally:
                original(this, *exc)

        return __exit__

    def _around_clearing(self, original: Any) -> Any:
        """Gradients are cleared unseen, but what waits in their memory is read before."""

        @functools.wraps(original)
        def zero_grad(owner: Any, set_to_none: bool = True) -> Any:
            if is_compiling() or self._sink is None or self._suspend is None:
                return original(owner, set_to_none)
            resume = self._suspend()
            try:
                if not set_to_none and self._sink.waits:
                    with unseen():
                        own = _parameters(owner) if isinstance(owner, Optimizer) else list(owner.parameters())
                        self._sink.before_write([p.grad for p in own if p.grad is not None])
                return original(owner, set_to_none)
            finally:
                resume()

        return zero_grad

    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if is_compiling():  # a step that is being compiled: what its hooks do would become part of it
            return None
        here = self._here
        here.running = True
        if self._sink is None or not type(optimizer).__module__.startswith("torch.optim"):
            return None
        with unseen():
            parameters = _parameters(optimizer)
            name, given = f"torch.optim.{type(optimizer).__name__}.step", (parameters,)
            named = {
                "gradients": [p.grad for p in parameters],
                "state": _state(optimizer, parameters),
                "groups": _groups(optimizer),
            }
            self._enter(name, given, named)
        self._go_on_unseen()
        return self._around_closure(args, kwargs)

    def _enter(self, name: str, args: Any, kwargs: Any) -> None:
        assert self._sink is not None
        here = self._here
        follower = None if self.planner is None else self.planner.follower
        if follower is not None and not self._sink.busy:
            event = follower.enter(Kind.API, name, args, kwargs, Phase.UPDATE, None, None, None, caller())
            if event is not None:
                here.planned = follower, event, args, kwargs
                return
        here.call = self._sink.enter(Kind.API, name, args, kwargs, phase=Phase.UPDATE, mutates=_MUTATES)
        draft = draft_of(self.planner)
        if draft is not None and here.call is not None:
            draft.entered(here.call, args, kwargs, mutates=_MUTATES, depth=here.call.state.depth)

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        if is_compiling():
            return
        here = self._here
        call, here.call = here.call, None
        planned, here.planned = here.planned, None
        self._over()
        if (call is not None or planned is not None) and self._sink is not None:
            with unseen():
                parameters = _parameters(optimizer)
                state = _state(optimizer, parameters)
                output = {"parameters": parameters, "state": state}
                if planned is not None:
                    follower, event, args, kwargs = planned
                    if self.planner.follower is follower and follower.leave(event, args, kwargs, output, None):
                        return
                    call = self.planner.reopen(event, args, kwargs)
                assert call is not None
                end(self._sink, call, output, draft_of(self.planner), None, [], 0)
                for each in state.values():
                    if isinstance(witness := each.get("step"), Tensor):
                        others = [item for item in each.values() if isinstance(item, Tensor) and item is not witness]
                        self._sink.remember(others, witness)

    def _go_on_unseen(self) -> None:
        if self._suspend is not None and self._here.resume is None:
            self._here.resume = self._suspend()

    def _go_on_seen(self) -> None:
        resume, self._here.resume = self._here.resume, None
        if resume is not None:
            resume()

    def _over(self) -> None:
        """The step is over: it has ended, it has raised, or recording has."""
        self._go_on_seen()
        here = self._here
        here.running = False
        call, here.call = here.call, None
        planned, here.planned = here.planned, None
        if planned is not None and self._sink is not None:
            call = self.planner.reopen(*planned[1:])
        if call is not None and self._sink is not None:
            self._sink.fail(call, RuntimeError("the step ended without a result"))

    def _around_closure(self, args: Any, kwargs: Any) -> Any:
        """A closure computes the loss anew: its calls are the user's, and of the forward pass."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None

        def watched() -> Any:
            self._here.running = False
            self._go_on_seen()
            try:
                return closure()
            finally:
                self._here.running = True
                self._go_on_unseen()

        return ((args[0], watched, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": watched})


HANDLERS.add(Updates._begin.__code__)
HANDLERS.add(Updates._enter.__code__)


def forget_updated(sink: Sink) -> Callable[[], None]:
    """Where steps are not recorded themselves: tell what they have written to, because fused ones count no versions."""

    def tell(optimizer: Optimizer, *_: Any) -> None:
        if is_compiling():
            return
        with unseen():
            sink.forget(_parameters(optimizer))

    return on_steps(after=tell)


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
