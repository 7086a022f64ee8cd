"""Kernels: all that touches values, forward and backward.

    forward/op:reference.kernel.matmul#0      backward/op:reference.kernel.transpose#0      update/op:reference.kernel.add_#3

What flows back is seen here as calls of kernels, so gradients are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...model.sites import Kind, Phase
from ..protocol import Sink
from .gradients import in_backward
from .miniature import HOOKS
from .names import describe
from .updates import Updates


class Ops:
    """Reports each kernel to the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._updates = Updates()

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        HOOKS.kernels.append(self._kernel)
        yield lambda: HOOKS.kernels.remove(self._kernel)

    def _kernel(self, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        api = describe(kernel)
        if api is None or self._sink.busy:
            return run()
        name = api.name.replace("reference.", "reference.kernel.")
        written = api.mutates(args, kwargs)
        call = self._sink.enter(Kind.OP, name, args, kwargs, phase=self._phase(), mutates=written)
        if call is None:
            return run()
        try:
            output = run()
        except BaseException as error:
            self._sink.fail(call, error)
            raise
        self._sink.leave(call, output)
        return output

    def _phase(self) -> Phase:
        if in_backward():
            return Phase.BACKWARD
        return Phase.UPDATE if self._updates.running else Phase.FORWARD
