"""Public functions, as the user's code and the modules call them; what they call in turn is not seen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...model.sites import Kind, Phase
from ..protocol import Sink
from .gradients import Gradients, in_backward
from .miniature import HOOKS
from .names import describe
from .updates import Updates


class Calls:
    """Reports each call to the sink and follows its gradients."""

    def __init__(self, sink: Sink, gradients: Gradients) -> None:
        self._sink, self._gradients = sink, gradients
        self._updates = Updates()

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        HOOKS.calls.append(self._call)
        yield lambda: HOOKS.calls.remove(self._call)

    def _call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        api = describe(function)
        if api is None or self._sink.busy:
            return run()
        written = api.mutates(args, kwargs)
        call = self._sink.enter(Kind.API, api.name, args, kwargs, phase=self._phase(), mutates=written)
        return run() if call is None else self._gradients.follow(call, self._sink, run)

    def _phase(self) -> Phase:
        if in_backward():
            return Phase.RECOMPUTE
        return Phase.UPDATE if self._updates.running else Phase.FORWARD
