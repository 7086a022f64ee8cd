"""The reference adapter: `FRAMEWORK`, and the watch that puts the interceptors of a level together.

    level    module calls      functions      kernels
    module   recorded          -              -
    api      paths only        recorded       -
    mix      recorded          recorded       -
    op       paths only        -              recorded

Whatever is installed goes on a list of undoings, and that list is worked off from its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...model.records import Level
from ..protocol import Capability, Sink
from . import miniature, seeding, tensors
from .calls import Calls
from .gradients import Gradients
from .modules import Modules, named_modules
from .ops import Ops
from .precision import precision


class ReferenceWatch:
    """All hooks of one recording."""

    def __init__(self, models: Mapping[str, miniature.Module], level: Level, sink: Sink) -> None:
        self._level = level
        self._gradients = Gradients(sink)
        self._modules = Modules(models, sink, self._gradients)
        self._calls = Calls(sink, self._gradients) if level in (Level.API, Level.MIX) else None
        self._ops = Ops(sink) if level is Level.OP else None
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        try:
            for undo in self._install():
                self._undo.append(undo)
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_gradients: bool = False) -> None:
        try:
            if not keep_gradients:
                self._gradients.remove()
        finally:
            while self._undo:
                self._undo.pop()()

    def rename(self, module: Any, path: str) -> Callable[[], None]:
        return self._modules.rename(module, path)

    def awaits_gradients(self) -> bool:
        return self._gradients.are_pending()

    def end_step(self) -> None:
        self._gradients.remove()

    def _install(self) -> Iterator[Callable[[], None]]:
        yield from self._gradients.install()
        yield from self._modules.install(parameter_gradients=self._level is not Level.OP)
        for interceptor in (self._calls, self._ops):
            if interceptor:
                yield from interceptor.install()


class ReferenceFramework:
    """The miniature."""

    name = "reference"
    is_tensor = staticmethod(tensors.is_tensor)
    look = staticmethod(tensors.look)
    host = staticmethod(tensors.host)
    storage = staticmethod(tensors.storage)
    glance = staticmethod(tensors.glance)
    hold = staticmethod(tensors.hold)
    released = staticmethod(tensors.released)
    release = staticmethod(tensors.release)
    named_modules = staticmethod(named_modules)
    seed_all = staticmethod(seeding.seed_all)
    without_dropout = staticmethod(seeding.without_dropout)
    precision = staticmethod(precision)

    def capabilities(self) -> frozenset[Capability]:
        return frozenset((Capability.MODULE, Capability.API, Capability.OP, Capability.BACKWARD))

    def is_module(self, value: object) -> bool:
        return isinstance(value, miniature.Module)

    def named_parameters(self, model: miniature.Module) -> Iterator[tuple[str, Any]]:
        return iter((name, value) for name, value in model.tensors().items() if isinstance(value, miniature.Parameter))

    def token(self, value: Any) -> tuple[str, str] | None:
        return ("generator", "reference.Generator") if isinstance(value, miniature.Generator) else None

    def watch(
        self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool = False, kernels: bool = False
    ) -> ReferenceWatch:
        return ReferenceWatch(models, level, sink)

    def digests(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Any = None
    ) -> None:
        return None

    def plans(self) -> None:
        return None

    def on_gradient(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        node = tensor.node
        if node is None:
            return lambda: None
        node.before.append(callback)
        remove: Callable[[], None] = lambda: node.before.remove(callback)  # noqa: E731
        return remove

    def tap(self, tensor: Any, callback: Callable[[Any], None]) -> Any:
        self.on_gradient(tensor, callback)
        return tensor

    def rank(self) -> tuple[int, int]:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    def groups(self) -> tuple[tuple[int, ...], ...]:
        return ()

    def environment(self) -> Mapping[str, Any]:
        return {"reference": "1", "numpy": np.__version__, "deterministic": True}

    def internal_paths(self) -> tuple[str, ...]:
        return (str(Path(__file__).parent),)

    def snapshot(self, model: miniature.Module) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for name, tensor in model.tensors().items():
            for key, value in ((name, tensor), (f"{name}.grad", tensor.grad)):
                if value is not None:
                    values[key] = miniature.Tensor(value.array.copy(), value.dtype)
        return values


FRAMEWORK = ReferenceFramework()
