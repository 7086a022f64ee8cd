"""Step aside while compiled code runs.

    net = torch.compile(net)        seen as one module call, from outside; what is inside is one fused program
    f = torch.compile(f)            gives the same result, at the same speed, and is not seen at level api

Dynamo compiles whatever Python runs inside a compiled region, our recorder included, and guards its code on what it finds in
place. So everything of ours is taken out when a region is entered and put back when it is left. Dynamo's contexts have a list
of functions to call at their doors; while recording, that list has one more. The oldest releases have no such list: there the
function that their contexts call at both doors is replaced.

With `eager` nothing steps aside: torch's own switch (`torch.compiler.set_stance`) has compiled regions run as the Python that they
were compiled from, for as long as is recorded. What was compiled is kept, and used again afterwards.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..protocol import Sink
from .patches import patch
from .releases import REGIONS

_NAME = "enter_exit_hooks"
CAN_BE_EAGER = hasattr(torch.compiler, "set_stance")  # from 2.6
WAY_IN = "; tt.record(eager=True) runs it uncompiled while recording" if CAN_BE_EAGER else ""
"""Of a sentence about something compiled: what to do."""
_WATCHERS: list[Callable[[], Callable[[], None]]] = []


class CompiledRegions:
    """Calls `step_aside` at the door of a compiled region, and what that gave at its exit."""

    def __init__(self, sink: Sink, step_aside: Callable[[], Callable[[], None]], *, eager: bool) -> None:
        self._sink, self._step_aside, self._eager, self._told = sink, step_aside, eager, False
        self._stance: Any = None
        self._here = threading.local()
        self._watching = False

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield self._unwatch
        self._watch()
        yield patch(torch, "compile", self._around_compile)

    def _around_compile(self, original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._watch()  # the first torch.compile imports Dynamo
            return result

        return compile

    def _watch(self) -> None:
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        if dynamo is None:  # nothing is compiled yet
            return
        if self._eager:
            if self._stance is None:
                self._stance = torch.compiler.set_stance("force_eager")
        elif not self._watching and hasattr(dynamo, "OptimizeContext"):
            self._watching = True
            _WATCHERS.append(self._enter)
            _show_watchers(dynamo)

    def _unwatch(self) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(None, None, None)
        if self._watching:
            self._watching = False
            _WATCHERS.remove(self._enter)
            _show_watchers(sys.modules["torch._dynamo.eval_frame"])

    def _enter(self) -> Callable[[], None]:
        depth = getattr(self._here, "depth", 0)
        self._here.depth = depth + 1
        if depth == 0:
            self._here.back = self._step_aside()
        return self._exit

    def _exit(self) -> None:
        self._here.depth -= 1
        if self._here.depth == 0:
            self._here.back()
            if not self._told:
                self._told = True
                self._sink.note(
                    "compiled",
                    f"a function compiled by torch.compile was called: the calls inside it cannot be seen at this level{WAY_IN}.",
                )


def _show_watchers(dynamo: Any) -> None:
    """Make every context's list of door functions include the watchers', or make it its own again."""
    context = dynamo.OptimizeContext
    if _NAME not in dynamo._TorchDynamoContext.__init__.__code__.co_names:
        _replace_door(dynamo)
    elif not _WATCHERS:
        delattr(context, _NAME)
    elif not isinstance(context.__dict__.get(_NAME), property):
        # A property wins over the instance's own attribute, which stays where it is.
        setattr(context, _NAME, property(_all_doors, lambda this, value: this.__dict__.__setitem__(_NAME, value)))


def _all_doors(context: Any) -> list[Any]:
    return [*context.__dict__.get(_NAME, ()), *_WATCHERS]


_DOOR: list[Callable[[], None]] = []
"""Function that puts the original back, while it is replaced."""


def _replace_door(dynamo: Any) -> None:
    if _WATCHERS and not _DOOR:
        _DOOR.append(patch(dynamo, "set_eval_frame", _at_doors))
        dynamo.skip_code(dynamo.set_eval_frame.__code__)  # it runs inside of regions, too: not to be compiled itself
    elif not _WATCHERS and _DOOR:
        _DOOR.pop()()


def _at_doors(original: Any) -> Any:
    def set_eval_frame(callback: Any) -> Any:
        # A context calls this when it is entered and when it is left, with a callback or None in either case: what tells them apart
        # is who calls.
        caller = sys._getframe(1)
        by = caller.f_locals["self"] if caller.f_code.co_name in ("__enter__", "__exit__") else caller
        if REGIONS.open and REGIONS.open[-1][0] is by:
            _, leaving = REGIONS.open.pop()
            prior = original(callback)
            for leave in leaving:
                leave()
            return prior
        entering = [] if REGIONS.open or callback in (None, False) else [enter() for enter in _WATCHERS]
        REGIONS.open.append((by, entering))
        return original(callback)

    return set_eval_frame
