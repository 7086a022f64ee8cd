"""Functions, methods and operators: every public torch call, seen through torch's own function mode.

    with recording:  x + y, F.relu(x), torch.cat([x, y]), x[0], from_torch_imported_relu(x)    all seen, none is patched

A mode is what torch offers for this; names that were imported before are seen too, and nothing remains afterwards. Inside a
call the mode is off, so only the outermost function is reported: what the user's code, or a module, has called.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .collectives import finished
from .drafts import HANDLERS, draft_of
from .gradients import Gradients, edges_of, next_sequence_number, unseen
from .modules import end, end_without_result, in_backward, written_by
from .names import Api, arguments, describe
from .patches import patch
from .releases import patch_engine
from .updates import Updates

_UNKNOWN = object()
_tracing: Callable[[], Any] = torch._C._get_tracing_state
_grad_enabled: Callable[[], bool] = torch.is_grad_enabled
_modes: Callable[[], int] = torch._C._len_torch_function_stack
_mode_at: Callable[[int], Any] = torch._C._get_function_stack_at


class CallMode(TorchFunctionMode):
    """Reports each call to the sink and follows its gradients."""

    def __init__(self, sink: Sink, gradients: Gradients, phase: Callable[[], Phase]) -> None:
        super().__init__()
        self._sink, self._gradients, self._phase = sink, gradients, phase
        self.on = False
        self.planner: Any = None
        self._apis: dict[Any, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        api: Api | None = self._apis.get(func, _UNKNOWN)
        if api is _UNKNOWN:
            api = self._apis[func] = describe(func)
        if api is None or not self.on or _tracing() is not None:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        phase = self._phase()
        if api.is_kernel and phase is Phase.RECOMPUTE:  # the backward of compiled code, run kernel by kernel
            return func(*args, **kwargs)
        sink, planner, event = self._sink, self.planner, None
        follower: Any = None if planner is None else planner.follower
        call: Open | None = None
        inputs: list[tuple[str, Any, int]] = []
        with unseen():  # a subclass of the user's has a function of its own for every question about a tensor
            if follower is not None and not sink.busy:
                event = follower.enter(Kind.API, api.name, args, kwargs, phase, api, None, None, sys._getframe(1))
            mutates = api.mutates(args, kwargs) if event is None else event.mutates
            if event is None:
                call = sink.enter(Kind.API, api.name, args, kwargs, phase=phase, mutates=mutates)
                draft = draft_of(planner)
                if draft is not None and call is not None:
                    draft.entered(call, args, kwargs, mutates=mutates, depth=call.state.depth)
                if call is not None and call.wants_gradients and _grad_enabled():
                    inputs = edges_of(call)
            if mutates:
                if event is not None:
                    sink.before_write(follower.written_by(event, args, kwargs))
                elif sink.waits:
                    sink.before_write(arguments(args, kwargs) if call is None else written_by(call, mutates))
        if call is None and event is None:
            return func(*args, **kwargs)
        start = next_sequence_number()
        try:
            output = func(*args, **kwargs) if kwargs else func(*args)
            if api.is_collective:
                output = finished(output)
        except BaseException as error:
            end_without_result(sink, call or planner.reopen(event, args, kwargs), error)
            raise
        with unseen():
            gradients = self._gradients if _grad_enabled() and (call is None or call.wants_gradients) else None
            if event is not None:
                if planner.follower is follower and follower.leave(event, args, kwargs, output, gradients):
                    return output
                call = planner.reopen(event, args, kwargs)
                inputs = [] if gradients is None else edges_of(call)
            assert call is not None
            end(sink, call, output, draft_of(planner), gradients, inputs, start)
        return output


HANDLERS.add(CallMode.__torch_function__.__code__)


class Calls:
    """Puts the mode in place, and keeps it there while the autograd engine runs."""

    def __init__(self, sink: Sink, gradients: Gradients) -> None:
        self._sink = sink
        self._updates = Updates(sink, self.suspend)
        self._mode: Any = CallMode(sink, gradients, self._phase)
        self._here = threading.local()
        self._recording = object()
        """Another one after every start and stop."""

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        yield patch_engine(self._in_engine)
        yield patch(torch.overrides, "has_torch_function", without_modes)
        yield patch(torch._utils, "_rebuild_tensor", self._unrecorded)
        self._mode.planner = self._updates.planner = getattr(self._sink, "planner", None)
        yield self.enter()
        self._recording = object()
        yield self._end_recording

    def is_only_mode(self) -> bool:
        """Is there no other mode in this thread, which would have to see what is called?"""
        return _modes() == 1 and _mode_at(0) is self._mode

    def _end_recording(self) -> None:
        self._recording = object()
        # In the middle of a backward pass it cannot be taken out; from here on it does nothing.
        self._mode.on = False

    def enter(self) -> Callable[[], None]:
        """Switch the mode on in this thread."""
        self._mode.on = True
        if self._mode not in torch.overrides._get_current_function_mode_stack():
            self._mode.__enter__()
        return self.leave

    def leave(self) -> None:
        """Switch it off, whatever other modes have come on top since. In another thread's stack it stays, and does nothing."""
        if self._mode not in torch.overrides._get_current_function_mode_stack():
            self._mode.on = False
            return
        self._take_out()

    def _take_out(self) -> list[Any]:
        """From this thread's stack of modes; those that lie below it."""
        above = []
        while (mode := torch.overrides._pop_mode()) is not self._mode:
            above.append(mode)
        below = list(torch.overrides._get_current_function_mode_stack())
        for mode in reversed(above):
            torch.overrides._push_mode(mode)
        return below

    def _put_back(self, below: list[Any]) -> None:
        """Onto what was below it, if that is still there, and below all else: others leave theirs from the top."""
        above = []
        while (stack := torch.overrides._get_current_function_mode_stack()) and stack[-1] not in below:
            above.append(torch.overrides._pop_mode())
        torch.overrides._push_mode(self._mode)
        for mode in reversed(above):
            torch.overrides._push_mode(mode)

    def suspend(self) -> Callable[[], None]:
        """Switch the mode off around a compiled region, which would otherwise be compiled with it inside, or an update."""
        if self._mode not in torch.overrides._get_current_function_mode_stack():
            return lambda: None
        below, recording = self._take_out(), self._recording
        self._here.suspended = True

        def resume() -> None:
            self._here.suspended = False
            if recording is self._recording:  # else it was stopped meanwhile
                self._put_back(below)

        return resume

    def _unrecorded(self, original: Any) -> Any:
        """A tensor that comes out of a file, or from the worker of a data loader, is put together by calls that are nobody's: in
        which step they fall is a matter of when the worker is ready.
        """

        def rebuild(*args: Any, **kwargs: Any) -> Any:
            resume = self.suspend()
            try:
                return original(*args, **kwargs)
            finally:
                resume()

        return rebuild

    def _in_engine(self, original: Any) -> Any:
        """`backward` is itself a call during which the mode is off; recomputed blocks inside it would go unseen."""

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            suspended = getattr(self._here, "suspended", False)
            if suspended or self._mode in torch.overrides._get_current_function_mode_stack():
                return original(*args, **kwargs)
            with self._mode:
                return original(*args, **kwargs)

        return run_backward

    def _phase(self) -> Phase:
        if in_backward() != -1:
            return Phase.RECOMPUTE
        return Phase.UPDATE if self._updates.running else Phase.FORWARD


def flush_after_backward(gradients: Gradients) -> Callable[[Any], Any]:
    """A layer for the engine: when a backward pass is over, sums that still wait are reported."""

    def layer(original: Any) -> Any:
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                gradients.flush()

        return run_backward

    return layer


def without_modes(original: Any) -> Any:
    """torch's attention and encoder layers leave their fused path, and with it its bits, when they see a mode."""

    def has_torch_function(arguments: Any) -> bool:
        kinds = {type(argument) for argument in arguments} - {torch.Tensor, nn.Parameter}
        disabled = torch._C._disabled_torch_function_impl
        return any(getattr(kind, "__torch_function__", disabled) is not disabled for kind in kinds)

    return has_torch_function
