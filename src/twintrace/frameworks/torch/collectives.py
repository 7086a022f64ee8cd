"""torch.distributed: what a rank gave, and what it had afterwards.

    forward/api:torch.distributed.all_reduce#0    in: the tensor before     after: the tensor when the work was done

Collectives are replaced on their module while recording, and put back: torch's function mode sees some of them, in some releases,
and those it sees call themselves once more. With `async_op=True` the result is read in the user's own `wait()`; we never wait for
them. A schedule of torch.distributed.pipelining rehearses its first step with other data, to learn shapes: that is not recorded.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...model.sites import Kind, Phase
from ..protocol import Open, Sink
from .modules import in_backward
from .names import arguments
from .patches import patch
from .releases import wait_tensor

# name -> slots that are written to (by position and by keyword)
_WRITES: dict[str, tuple[str, ...]] = {
    "all_reduce": ("0", "kw.tensor"),
    "broadcast": ("0", "kw.tensor"),
    "reduce": ("0", "kw.tensor"),
    "all_gather": ("0", "kw.tensor_list"),
    "all_gather_into_tensor": ("0", "kw.output_tensor"),
    "all_gather_single": ("0", "kw.output", "kw.output_tensor"),
    "gather": ("1", "kw.gather_list"),
    "scatter": ("0", "kw.tensor"),
    "reduce_scatter": ("0", "kw.output"),
    "reduce_scatter_tensor": ("0", "kw.output"),
    "reduce_scatter_single": ("0", "kw.output"),
    "all_to_all": ("0", "kw.output_tensor_list"),
    "all_to_all_single": ("0", "kw.output"),
    "all_reduce_coalesced": ("0", "kw.tensors"),
    "all_gather_coalesced": ("0", "kw.output_tensor_lists"),
    "send": (),
    "isend": (),
    "recv": ("0", "kw.tensor"),
    "irecv": ("0", "kw.tensor"),
    "batch_isend_irecv": (),
    "barrier": (),
}


_REHEARSALS = (("PipelineScheduleSingle", "_initialize_stage"), ("PipelineScheduleMulti", "_initialize_stages"))
"""Methods of schedules that run a stage, and send about what they find, before the first step."""


def collective_token(value: Any) -> tuple[str, str] | None:
    """A process group by its ranks (`group`, `0,1`), a reduction by its name (`reduce_op`, `SUM`); None for anything else."""
    if not torch.distributed.is_available():
        return None
    if isinstance(value, torch.distributed.ProcessGroup):
        try:
            return "group", ",".join(map(str, torch.distributed.get_process_group_ranks(value)))
        except (RuntimeError, ValueError, KeyError):  # one that is gone, or of another library
            return None
    if isinstance(value, torch.distributed.ReduceOp | torch.distributed.ReduceOp.RedOpType):
        return "reduce_op", str(value).rpartition(".")[2]
    return None


def finished(output: Any) -> Any:
    """The result of a functional collective when its work is done. Waiting twice is allowed: whoever called it still may."""
    if isinstance(output, torch.Tensor):
        return wait_tensor(output)
    return type(output)(map(finished, output)) if isinstance(output, list | tuple) else output


class _Here(threading.local):
    """True while this thread is inside a collective that has been reported."""

    def __init__(self) -> None:
        self.inside = False


class Collectives:
    """Replaces torch.distributed's functions while recording."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: dict[int, tuple[Open, Any]] = {}
        self._here = _Here()
        self._reporting = functools.cache(self._reporter)  # a recorder may be started for each step

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d

        for name, writes in _WRITES.items():
            original = getattr(distributed_c10d, name, None)
            for place in (torch.distributed, distributed_c10d):
                if original is not None and getattr(place, name, None) is original:
                    yield patch(place, name, functools.partial(self._reporting, name, writes))
        schedules = sys.modules.get("torch.distributed.pipelining.schedules")
        for owner, name in _REHEARSALS:
            kind = getattr(schedules, owner, None)
            if hasattr(kind, name):
                yield patch(kind, name, self._unseen_layer)
        yield self._leave_the_rest
        yield patch(torch.distributed.Work, "wait", self._waiting_layer)

    def _reporter(self, name: str, writes: tuple[str, ...], original: Any) -> Any:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            here = self._here
            if self._sink.busy or here.inside:
                return original(*args, **kwargs)
            phase = Phase.FORWARD if in_backward() == -1 else Phase.RECOMPUTE
            call = self._sink.enter(Kind.API, f"torch.distributed.{name}", args, kwargs, phase=phase, mutates=writes)
            if writes and self._sink.waits:
                self._sink.before_write(arguments(args, kwargs))
            if call is None:
                return original(*args, **kwargs)
            here.inside = True
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self._sink.fail(call, error)
                raise
            finally:
                here.inside = False
            if isinstance(result, torch.distributed.Work):
                self._waiting[id(result)] = (call, result)  # kept alive: the id stays its own
            else:
                self._sink.leave(call, result)
            return result

        return collective

    def _unseen_layer(self, original: Any) -> Any:
        @functools.wraps(original)
        def rehearse(*args: Any, **kwargs: Any) -> Any:
            self._sink.before_unseen()
            with self._sink.unseen():
                return original(*args, **kwargs)

        return rehearse

    def _waiting_layer(self, original: Any) -> Any:
        def wait(this: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(this, *args, **kwargs)
            waiting = self._waiting.pop(id(this), None)
            if waiting is not None:
                self._sink.leave(waiting[0], None)
            return result

        return wait

    def _leave_the_rest(self) -> None:
        for call, _ in self._waiting.values():
            self._sink.leave(
                call, None, missing=("the work was not waited for while recording: what it wrote is not known",)
            )
        self._waiting.clear()
