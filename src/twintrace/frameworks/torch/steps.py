"""Hooks around the steps of all optimizers.

    remove = on_steps(before, after)        torch's own: before(optimizer, args, kwargs), after(optimizer, args, kwargs)

Older releases, 2.1 among them, take the hooks away from torch's optimizers with the first `torch.compile` of the process, for good
and also for what was never compiled. Those steps are replaced while somebody listens. Hooks of the user's own stay lost, as they
are without a recorder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .patches import patch
from .releases import is_compiling

_CALLS_HOOKS = Optimizer.profile_hook_step(lambda: None).__code__
Hook = Callable[[Any, Any, Any], Any]


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True, eq=False)
class _Listener:
    before: Hook
    after: Hook
    failed: Callable[[], None]


_LISTENERS: list[_Listener] = []
_REPLACED: dict[type | None, Callable[[], None]] = {}
"""Functions that put the steps of these classes back; of None: torch.compile."""


def on_steps(
    before: Hook = _nothing, after: Hook = _nothing, failed: Callable[[], None] = _nothing
) -> Callable[[], None]:
    """Call these around every step, in the order in which they were given; the result ends it.

    `before` may give other arguments, as (args, kwargs). `failed` is called when a step raises, where torch's own hooks are
    lost; where they are there, nobody tells.
    """
    listener = _Listener(before, after, failed)
    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    _LISTENERS.append(listener)
    if None not in _REPLACED:
        _REPLACED[None] = patch(torch, "compile", _around_compile)
    _replace_steps()

    def remove() -> None:
        for handle in handles:
            handle.remove()
        _LISTENERS.remove(listener)
        while not _LISTENERS and _REPLACED:
            _REPLACED.popitem()[1]()

    return remove


def _around_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if _LISTENERS:
            _replace_steps()
        return result

    return compile


def _replace_steps() -> None:
    for kind in _kinds(Optimizer):
        if kind not in _REPLACED and _has_lost_hooks(kind):
            _REPLACED[kind] = patch(kind, "step", _around_step)


def _has_lost_hooks(kind: type) -> bool:
    """Is the step of this class marked as one that calls hooks, without being so?"""
    step = vars(kind).get("step")
    return bool(getattr(step, "hooked", False)) and getattr(step, "__code__", None) is not _CALLS_HOOKS


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


def _around_step(original: Any) -> Any:
    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        if not _LISTENERS or is_compiling():
            return original(*args, **kwargs)
        optimizer, listeners = args[0], _LISTENERS.copy()
        for listener in listeners:
            changed = listener.before(optimizer, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        try:
            result = original(*args, **kwargs)
        except BaseException:
            for listener in listeners:
                if listener in _LISTENERS:
                    listener.failed()
            raise
        for listener in listeners:
            if listener in _LISTENERS:  # it may have been removed within the step
                listener.after(optimizer, args, kwargs)
        return result

    return step
