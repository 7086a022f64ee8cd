"""Kernels: what the dispatcher runs, forward and backward, below all of torch's own Python.

forward/op:aten.addmm.default#0     backward/op:aten.mm.default#0     update/op:aten.lerp_.Scalar#3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack, _pop_mode, _push_mode

from ...model.sites import Kind, Phase
from ..protocol import Sink
from .gradients import unseen
from .modules import in_backward
from .names import arguments, schema_writes
from .updates import Updates


class OpMode(TorchDispatchMode):
    """Reports each kernel to the sink."""

    def __init__(self, sink: Sink, phase: Callable[[], Phase]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self._sink, self._phase = sink, phase
        self._known: dict[Any, tuple[str, tuple[str, ...]]] = {}
        self.on = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.on or self._sink.busy:
            return func(*args, **kwargs)
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = (str(func), schema_writes(func))
        name, mutates = known
        if name.startswith("profiler."):  # torch's own book-keeping around an optimizer's step
            return func(*args, **kwargs)
        with unseen():  # torch 2.1 has modes that see functions hear of what is asked here
            call = self._sink.enter(Kind.OP, name, args, kwargs, phase=self._phase(), mutates=mutates)
            if mutates and self._sink.waits:
                self._sink.before_write(arguments(args, kwargs))
        if call is None:
            return func(*args, **kwargs)
        try:
            output = func(*args, **kwargs)
        except BaseException as error:
            self._sink.fail(call, error)
            raise
        with unseen():
            self._sink.leave(call, output)
        return output


def _take_off(mode: Any) -> Callable[[Any], Any]:
    """Take the topmost mode off; what puts it on again.

    After 2.1 torch keeps flags beside the stack ("is any mode on?"), by which the compiler of 2.6 refuses to compile: they go
    with the mode, unless it was pushed without them. A mode's own `__exit__` may do more than that.
    """
    if getattr(mode, "old_dispatch_mode_flags", True):
        TorchDispatchMode.__exit__(mode, None, None, None)
        return TorchDispatchMode.__enter__
    _pop_mode()
    return _push_mode


class Ops:
    """Puts the dispatch mode in place."""

    def __init__(self, sink: Sink) -> None:
        self._updates = Updates()
        self._mode: Any = OpMode(sink, self._phase)

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        yield self.enter()

    def enter(self) -> Callable[[], None]:
        """Switch the mode on in this thread."""
        self._mode.on = True
        if self._mode not in _get_current_dispatch_mode_stack():
            self._mode.__enter__()
        return self.leave

    def leave(self) -> None:
        """Switch it off, whatever other modes have come on top since. In another thread's stack it stays, and does nothing."""
        if self._mode not in _get_current_dispatch_mode_stack():
            self._mode.on = False
            return
        above = []
        while (mode := _get_current_dispatch_mode_stack()[-1]) is not self._mode:
            above.append((mode, _take_off(mode)))
        _take_off(self._mode)
        for mode, put_on in reversed(above):
            put_on(mode)

    def suspend(self) -> Callable[[], None]:
        """Switch the mode off around a compiled region."""
        if self._mode not in _get_current_dispatch_mode_stack():
            return lambda: None
        self.leave()
        return lambda: self._mode.__enter__()

    def _phase(self) -> Phase:
        if in_backward() != -1:
            return Phase.BACKWARD
        return Phase.UPDATE if self._updates.running else Phase.FORWARD
