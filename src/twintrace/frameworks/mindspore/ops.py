"""Kernels: what MindSpore's dispatcher runs, forward and backward, below all of its own Python (from MindSpore 2.9).

forward/op:MatMulExt#0     backward/op:MatMul#0     update/op:AssignAdd#3

Some are not dispatched, and so not seen: the backward kernels of convolution, batch norm and pooling, views by an index (`x[0]`),
writes by an index, BiasAddGrad, whatever a compiled graph runs (MindSpore's own optimizers among it). Each trace says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms

try:
    from mindspore._c_expression import _DispatchGuardStack
except ImportError:  # before 2.9
    _DispatchGuardStack = None

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .modules import present_phase
from .names import describe_primitive, settings_of
from .tensors import wrote
from .updates import Updates

_UNSEEN = (
    "MindSpore runs some kernels past its dispatcher, and they are not in this trace: the backward kernels of convolution, batch "
    "norm and pooling, views and writes by an index, and whatever a compiled graph runs. Levels api and mix have the gradients."
)
_Mode: Any = getattr(ms, "MsDispatchMode", object)


def is_offered() -> bool:
    """Does this MindSpore have a dispatch mode?"""
    return _DispatchGuardStack is not None


class OpMode(_Mode):  # type: ignore[misc]  # the class is there or not, by the version
    """Reports each kernel to everyone who listens. One for the process: recorders leave in any order, modes cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Ops] = []
        self._place = 0

    def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
        name, given, mutates, settings = _read(func.name, args)
        opened = [(listener, listener.enter_op(name, given, mutates, settings)) for listener in self.listeners]
        try:
            output = func(*args)
        except BaseException as error:
            for listener, call in reversed(opened):
                listener.fail_op(call, error)
            raise
        if mutates:
            wrote()
        for listener, call in reversed(opened):
            listener.leave_op(call, output)
        return output

    def add(self, listener: Ops) -> Callable[[], None]:
        """Report to this one too; the result ends it."""
        if not self.listeners and not self._place:
            self.__enter__()
            self._place = _DispatchGuardStack.depth()
        self.listeners.append(listener)

        def remove() -> None:
            self.listeners.remove(listener)
            # Modes leave in the order in which they came. Below another's we stay, and report to nobody.
            if not self.listeners and self._place == _DispatchGuardStack.depth():
                self._place = 0
                self.__exit__(None, None, None)

        return remove


class Ops:
    """Puts the dispatch mode in place."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._updates = Updates()

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        self._sink.note("kernels", _UNSEEN, quiet=True)
        yield _MODE.add(self)

    def enter_op(
        self, name: str, args: Sequence[Any], mutates: Sequence[str], settings: Mapping[str, Any] | None
    ) -> Open | None:
        """A kernel is about to run."""
        return self._sink.enter(Kind.OP, name, args, {}, phase=self._phase(), mutates=mutates, settings=settings)

    def leave_op(self, call: Open | None, output: Any) -> None:
        """It has run."""
        if call is not None:
            self._sink.leave(call, output)

    def fail_op(self, call: Open | None, error: BaseException) -> None:
        """It has raised."""
        if call is not None:
            self._sink.fail(call, error)

    def _phase(self) -> Phase:
        return Phase.UPDATE if self._updates.running else present_phase()


def _read(name: str, args: Any) -> tuple[str, Sequence[Any], Sequence[str], Mapping[str, Any] | None]:
    """A kernel's name, arguments, what it writes to and its settings: called by itself, or as a primitive with its arguments in a
    tuple.
    """
    if len(args) == 3 and isinstance(args[0], ms.ops.Primitive) and isinstance(args[2], tuple | list):
        api = describe_primitive(args[0])
        mutates = api.mutates(args[2], {}) if api is not None else ()
        return name, args[2], mutates, settings_of(args[0])
    return name, args, ("0",) if name.startswith(("Inplace", "Assign", "Scatter")) else (), None


_MODE = OpMode()
