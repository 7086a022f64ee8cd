"""Tell before memory is written to: tensors on a device wait to be read, and must be read before.

    x.add_(1), F.relu(x, inplace=True), torch.add(x, y, out=z)     at level module by a mode that looks for nothing else;
                                                                   at the other levels by the modes that record
    optimizer.step(), graph.replay(), storage.resize_(0)           at every level
    buffers that DDP takes from another rank before a forward pass  at every level

Installed only where there is a device: on a host without one tensors are read at the moment of the call, and nothing waits. The
mode is in place only while something waits, since every question to a tensor passes it: an optimizer asks thousands a step. And
not during the calls of torch's own layers (`Linear`, `BatchNorm2d`) in a step that follows a plan: what these write to is known.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..protocol import Sink
from . import digests
from . import tensors as looking
from .calls import without_modes
from .layers import written_by_layer
from .names import Api, arguments, describe
from .patches import patch
from .releases import is_compiling, patch_engine
from .steps import on_steps

_UNKNOWN = object()
_modes: Callable[[], int] = torch._C._len_torch_function_stack
_mode_at: Callable[[int], Any] = torch._C._get_function_stack_at


class _WriteMode(TorchFunctionMode):
    """Sees calls that write to their arguments, and passes everything on."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._apis: dict[Any, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        api: Api | None = self._apis.get(func, _UNKNOWN)
        if api is _UNKNOWN:
            api = self._apis[func] = _writing(func)
        # Every call of the model comes by here, and most can write to nothing.
        if api is None and not (kwargs and kwargs.get("out") is not None):
            return func(*args, **kwargs) if kwargs else func(*args)
        if self._sink.waits and not self._sink.busy and (api is None or api.mutates(args, kwargs or {})):
            self._sink.before_write(arguments(args, kwargs))
        return func(*args, **kwargs) if kwargs else func(*args)


def _writing(func: Any) -> Api | None:
    """A function that may write to its arguments, by itself or because of an argument other than `out`."""
    api = describe(func)
    may = api is not None and (api.writes or api.inplace_at is not None or api.writes_if is not None)
    return api if may else None


class Writes:
    """Puts the watching of writes in place."""

    def __init__(self, sink: Sink, *, calls: bool) -> None:
        """`calls`: is there no other mode that sees calls?"""
        self._sink, self._calls = sink, calls
        self._mode: Any = None
        self._thread = 0  # whose mode it is

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change. After everything else: what waits at the door of a step is read last."""
        if not looking.has_device():
            return
        yield on_steps(self._before_step)
        yield patch(torch.UntypedStorage, "resize_", self._around_resize)
        if torch.distributed.is_available():
            yield patch(torch.distributed, "_broadcast_coalesced", self._around_broadcast)
        if torch.cuda.is_available():
            yield patch(torch.cuda.CUDAGraph, "replay", self._around_replay)
        if self._calls:
            yield patch(torch.overrides, "has_torch_function", without_modes)
            self._mode, self._thread = _WriteMode(self._sink), threading.get_ident()
            self._put_in()
            yield functools.partial(_take_out, self._mode)
            digests.WATCHES.append(self._put_in)
            yield functools.partial(digests.WATCHES.remove, self._put_in)
            yield patch_engine(functools.partial(_in_engine, self._mode))

    def _before_step(self, *_: Any) -> None:
        if is_compiling():
            return
        self._sink.before_unseen()
        if self._mode is not None and not self._sink.waits and threading.get_ident() == self._thread:
            _take_out(self._mode)

    def may_be_off(self, layer: nn.Module, args: Any) -> bool:
        """Need the mode not see this call? What it writes to is known, and has been read now. Only where no other mode is on: all
        are off then.
        """
        if self._mode is None or _modes() != 1 or _mode_at(0) is not self._mode:
            return False
        written = written_by_layer(layer, args)
        if written and self._sink.waits:
            self._sink.before_write(written)
        return written is not None

    def _put_in(self) -> None:
        """Something begins to wait: be told of writes, by the lowest mode of all. The others are left from the top."""
        stack = torch.overrides._get_current_function_mode_stack()
        if threading.get_ident() != self._thread or self._mode in stack:
            return
        above = [torch.overrides._pop_mode() for _ in stack]
        torch.overrides._push_mode(self._mode)
        for mode in reversed(above):
            torch.overrides._push_mode(mode)

    def _around_resize(self, original: Any) -> Any:
        @functools.wraps(original)
        def resize_(this: Any, size: Any) -> Any:
            if self._sink.waits and this.device.type != "meta":
                self._sink.before_unseen()
            return original(this, size)

        return resize_

    def _around_broadcast(self, original: Any) -> Any:
        """A function in C++, below every mode. Older releases write on the rank that sends as well."""

        @functools.wraps(original)
        def _broadcast_coalesced(*args: Any, **kwargs: Any) -> Any:
            if self._sink.waits:
                self._sink.before_write(arguments(args, kwargs))
            return original(*args, **kwargs)

        return _broadcast_coalesced

    def _around_replay(self, original: Any) -> Any:
        @functools.wraps(original)
        def replay(this: Any) -> Any:
            self._sink.before_unseen()
            try:
                return original(this)
            finally:
                self._sink.forget_everything()

        return replay


def _take_out(mode: Any) -> None:
    """From this thread's stack of modes, whatever has come on top since."""
    while mode in torch.overrides._get_current_function_mode_stack():
        above = []
        while (top := torch.overrides._pop_mode()) is not mode:
            above.append(top)
        for top in reversed(above):
            torch.overrides._push_mode(top)


def _in_engine(mode: Any, original: Any) -> Any:
    """`backward` is a call during which modes are off; what recomputes inside it is to be seen."""

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if mode in torch.overrides._get_current_function_mode_stack():
            return original(*args, **kwargs)
        with mode:
            return original(*args, **kwargs)

    return run_backward
