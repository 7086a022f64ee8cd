"""The MindSpore adapter: `FRAMEWORK`, and the watch that puts the interceptors of a level together.

level    Cells             functions, methods, primitives    dispatch mode
module   recorded          only what writes                  -
api      paths only        recorded                          -
mix      recorded          recorded                          -
op       paths only        only what writes                  recorded
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import GlobalComm, get_group_size, get_rank

from ...model.errors import MissingPackageError, UsageError
from ...model.garbage import collecting_later
from ...model.records import Level
from ..protocol import Capability, Sink
from . import ops, seeding, tensors
from .calls import Calls
from .compiled import CompiledRegions
from .gradients import HAS_NODES, Gradients
from .modules import Modules, named_buffers, named_modules, named_parameters
from .names import groups
from .ops import Ops
from .precision import forget as forget_precision
from .precision import precision
from .taps import REFUSAL, telling

_GET = "pip install 'mindspore>=2.10'"


def _check_versions(level: Level) -> None:
    """MissingPackageError, with the command that helps, where MindSpore or numpy cannot do what is asked."""
    if int(np.__version__.split(".")[0]) >= 2 and _is_built_for_numpy_1():
        raise MissingPackageError(
            f"MindSpore {ms.__version__} needs numpy below 2, and this is numpy {np.__version__}: MindSpore's extensions are built "
            f"for numpy 1 and fail in unexpected places. Get it with: pip install 'numpy<2', or: {_GET}"
        )
    if level is Level.OP and not ops.is_offered():
        raise MissingPackageError(
            f"level='op' needs MindSpore 2.9 or newer, which lets its kernels be seen, and this is {ms.__version__}. "
            f"Get it with: {_GET}. Levels module, api and mix work with this one."
        )


def _is_built_for_numpy_1() -> bool:
    """Does this MindSpore ask pip for numpy below 2? Releases before 2.10 do. One that was built by hand may not tell."""
    try:
        asked = importlib.metadata.requires("mindspore") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(re.match(r"numpy\b.*<\s*2\b", requirement) for requirement in asked)


class MindsporeWatch:
    """All hooks of one recording."""

    def __init__(
        self, models: Mapping[str, nn.Cell], level: Level, sink: Sink, *, eager: bool, kernels: bool = False
    ) -> None:
        self._gradients = Gradients(sink)
        self._calls = Calls(sink, self._gradients, recorded=level in (Level.API, Level.MIX))
        self._modules = Modules(models, sink, self._gradients)
        self._ops = Ops(sink) if level is Level.OP else None
        self._compiled = CompiledRegions(sink, self._report, eager=eager, kernels=kernels)
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        forget_precision()
        try:
            # Thousands of functions are made; for each few hundred the collector would look through all of MindSpore.
            with collecting_later():
                for undo in self._install():
                    self._undo.append(undo)
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_gradients: bool = False) -> None:
        try:
            while self._undo:
                self._undo.pop()()
        finally:
            if self._undo:  # one of them raised: the rest must go all the same
                self.stop()
            if not keep_gradients:
                self._gradients.remove()

    def rename(self, module: Any, path: str) -> Callable[[], None]:
        return self._modules.rename(module, path)

    def awaits_gradients(self) -> bool:
        return self._gradients.are_pending()

    def end_step(self) -> None:
        self._gradients.remove()

    def _report(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self._calls.report(name, function, args, kwargs)

    def _install(self) -> Iterator[Callable[[], None]]:
        yield from self._compiled.install()
        yield from self._gradients.install(self._modules.parameter_names)
        yield from self._modules.install()
        yield from self._calls.install()
        if self._ops:
            yield from self._ops.install()


class MindsporeFramework:
    """MindSpore."""

    name = "mindspore"
    is_tensor = staticmethod(tensors.is_tensor)
    look = staticmethod(tensors.look)
    host = staticmethod(tensors.host)
    storage = staticmethod(tensors.storage)
    glance = staticmethod(tensors.glance)
    hold = staticmethod(tensors.hold)
    released = staticmethod(tensors.released)
    release = staticmethod(tensors.release)
    named_modules = staticmethod(named_modules)
    named_parameters = staticmethod(named_parameters)
    seed_all = staticmethod(seeding.seed_all)
    without_dropout = staticmethod(seeding.without_dropout)
    precision = staticmethod(precision)

    def capabilities(self) -> frozenset[Capability]:
        offered = {Capability.MODULE, Capability.API, Capability.BACKWARD, Capability.COLLECTIVES}
        offered |= {Capability.EAGER, Capability.KERNELS}
        if ops.is_offered():
            offered.add(Capability.OP)
        return frozenset(offered)

    def is_module(self, value: object) -> bool:
        return isinstance(value, nn.Cell)

    def token(self, value: Any) -> tuple[str, str] | None:
        for kind, name in _TOKENS:
            if isinstance(value, kind):
                return name, str(value)
        if isinstance(value, ms.ops.Primitive):
            return "primitive", str(value.name)
        return None

    def watch(
        self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool = False, kernels: bool = False
    ) -> MindsporeWatch:
        _check_versions(level)
        tensors.launch_synchronously()
        return MindsporeWatch(models, level, sink, eager=eager, kernels=kernels)

    def digests(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Any = None
    ) -> None:
        return None

    def plans(self) -> None:
        return None

    def on_gradient(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        if not HAS_NODES:
            takes_part = isinstance(tensor, ms.Tensor) and tensor._has_auto_grad()  # a sparse one is no Tensor
            handle = tensor.register_hook(callback) if takes_part else None
            return handle.remove if handle is not None else lambda: None
        node = getattr(tensor, "_grad_node", None)
        if node is None:
            return lambda: None
        # An input of the function that is differentiated, or a parameter: what arrives is told by the tensor.
        if node.is_leaf():
            return self._on_leaf(tensor, callback)
        number = tensor._output_index

        def hook(gradients: tuple[Any, ...]) -> None:
            if number < len(gradients) and gradients[number] is not None:
                callback(gradients[number])

        remove: Callable[[], None] = node.register_prehook(hook).remove
        return remove

    def _on_leaf(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        remove: Callable[[], None] = tensor.register_hook(lambda gradient: callback(gradient)).remove
        return remove

    def tap(self, tensor: Any, callback: Callable[[Any], None]) -> Any:
        """By a node of its own, since a leaf has none that a hook could be put on."""
        if _in_compiled_code():
            raise UsageError(REFUSAL)
        return telling(callback)(tensor)

    def rank(self) -> tuple[int, int]:
        if GlobalComm.INITED:
            return get_rank(), get_group_size()
        return int(os.environ.get("RANK_ID", 0)), int(os.environ.get("RANK_SIZE", 1))

    def groups(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(ranks)) for ranks in groups().values())

    def environment(self) -> Mapping[str, Any]:
        mode = ms.get_context("mode")
        return {
            "mindspore": ms.__version__,
            "mode": "graph" if mode == ms.GRAPH_MODE else "pynative",
            "device": ms.get_context("device_target"),
            "deterministic": ms.get_context("deterministic") == "ON",
        }

    def internal_paths(self) -> tuple[str, ...]:
        return (str(Path(ms.__file__).parent),)

    def snapshot(self, model: nn.Cell) -> Mapping[str, Any]:
        return {
            name: Tensor(tensors.host(value).copy(), value.dtype)
            for name, value in (*named_parameters(model), *named_buffers(model))
        }


_TOKENS: tuple[tuple[Any, str], ...] = ((ms.common.dtype.Type, "dtype"),)


def _in_compiled_code() -> bool:
    """Is this Python run by a compiled graph, which stops for what it could not compile?"""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "eval_script" and "mindspore" in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


FRAMEWORK = MindsporeFramework()
