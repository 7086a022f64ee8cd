"""Functions, methods and operators: torch.*, torch.nn.functional.*, Tensor.*, seen in the function that is called.

    while recording:  x + y, F.relu(x), torch.cat([x, y]), x[0], a function that was imported before

What MSAdapter calls inside one of its functions, other ones of its own or MindSpore's, is its implementation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from ..mindspore.calls import Calls as MindsporeCalls
from ..protocol import Sink
from .gradients import Gradients, TensorHooks
from .names import Api, functions, methods
from .patches import Patch
from .updates import Updates


class Calls(MindsporeCalls):
    """MindSpore's layers on MSAdapter's functions."""

    def __init__(self, sink: Sink, gradients: Gradients, *, recorded: bool) -> None:
        super().__init__(sink, gradients, recorded=recorded)
        self._updates = Updates(sink if recorded else None)
        self._hooks = gradients if isinstance(gradients, TensorHooks) else None

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        if not self._patches:
            self._patches.extend(self._planned())
        for each in self._patches:
            yield each.install()

    def _planned(self) -> Iterator[Patch]:
        for function, api in functions():
            if self._wants(api):
                yield Patch(function, "__call__", functools.partial(self._layer, api))
        for name, attribute, api in methods():
            if self._wants(api):
                owner, place = (attribute, "__call__") if isinstance(attribute, FunctionType) else (torch.Tensor, name)
                yield Patch(owner, place, functools.partial(self._layer, api))

    def _wants(self, api: Api) -> bool:
        return self._recorded or api.may_write or self._hooks is not None

    def _layer(self, api: Api, original: Any) -> Any:
        layer = super()._layer
        if self._hooks is None:
            return layer(api, original)
        counted = self._hooks.counted(original, api.mutates)
        return layer(api, counted) if self._recorded or api.may_write else counted
