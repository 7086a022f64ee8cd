"""Compiled graphs: step aside while one is compiled, say what cannot be seen while one runs, or run its parts one by one.

    @ms.jit, GRAPH_MODE                gives the same result; the calls inside are one program, and one sentence says so
    tt.record(…, eager=True)           the same functions run in PyNative while recording, and all of them is seen

MindSpore's compiler reads the source of every function that it comes across: replaced functions are put back while it does.
MindSpore's own graphs (its optimizers' steps) are implementation, and nothing is said of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms

from ..protocol import Sink
from .gradients import running
from .patches import patch, put_aside
from .tensors import wrote

_SWITCH = "MS_JIT"
_UNSEEN = (
    "a graph that MindSpore has compiled (@jit, GRAPH_MODE) was run: it is recorded from outside, the Cells and calls inside it "
    "cannot be seen. Record with eager=True to run it in PyNative while recording, or with kernels=True to have MindSpore "
    "dump the graph's kernels into the trace."
)


class CompiledRegions:
    """Watches the doors of MindSpore's compiler and of what it has compiled."""

    def __init__(self, sink: Sink, *, eager: bool) -> None:
        self._sink, self._eager, self._told = sink, eager, False

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        for executor in (running._JitExecutor, running._CellGraphExecutor):
            yield patch(executor, "compile", _aside)
            yield patch(executor, "__call__", self._run_layer)
        if self._eager:
            yield from _run_eagerly()

    def _run_layer(self, original: Any) -> Any:
        def __call__(executor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(executor, *args, **kwargs)
            finally:
                wrote()
                if not self._told and not _is_their_own(executor, args):
                    self._told = True
                    self._sink.note("compiled", _UNSEEN)

        return __call__


def _aside(original: Any) -> Any:
    def compile(*args: Any, **kwargs: Any) -> Any:
        with put_aside():
            return original(*args, **kwargs)

    return compile


def _run_eagerly() -> Iterator[Callable[[], None]]:
    """Both switches: one for functions that were compiled by decorator, one for whole networks."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "0"
    yield lambda: _restore(before)
    if ms.get_context("mode") == ms.GRAPH_MODE:
        ms.set_context(mode=ms.PYNATIVE_MODE)
        yield lambda: ms.set_context(mode=ms.GRAPH_MODE)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_SWITCH, None)
    else:
        os.environ[_SWITCH] = before


def _is_their_own(executor: Any, args: Any) -> bool:
    """Is this graph made of MindSpore's own code alone: an optimizer's step, a helper?"""
    made_of = getattr(executor, "fn", None) or (args[0] if args else None)
    home = getattr(made_of, "__module__", None) or type(made_of).__module__
    return str(home).startswith("mindspore.") and not _computes_gradients(made_of)


def _computes_gradients(function: Any) -> bool:
    """`ms.grad` in GRAPH_MODE makes a function of MindSpore's own, around the user's."""
    return getattr(function, "__name__", "") == "after_grad"
