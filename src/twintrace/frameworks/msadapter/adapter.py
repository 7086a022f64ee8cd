"""The MSAdapter adapter: `FRAMEWORK`, and the watch that puts the interceptors of a level together.

level    modules           functions and methods     dispatch mode
module   recorded          only what writes          -
api      paths only        recorded                  -
mix      recorded          recorded                  -
op       paths only        only what writes          MindSpore's
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...model.records import Level
from ..mindspore.adapter import MindsporeFramework, MindsporeWatch
from ..protocol import Capability, Sink
from . import seeding, tensors
from .calls import Calls
from .compiled import CompiledRegions
from .gradients import HAS_NODES, TensorHooks, on_gradient
from .modules import Modules, named_buffers, named_modules, named_parameters
from .names import PACKAGE
from .ops import Ops


class MsadapterWatch(MindsporeWatch):
    """All hooks of one recording."""

    def __init__(self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool, kernels: bool) -> None:
        super().__init__({}, level, sink, eager=eager, kernels=kernels)
        if not HAS_NODES:
            self._gradients = TensorHooks(sink)
        self._calls = Calls(sink, self._gradients, recorded=level in (Level.API, Level.MIX))
        self._modules = Modules(models, sink, self._gradients)
        self._ops = Ops(sink) if level is Level.OP else None
        self._compiled = CompiledRegions(sink, self._report, eager=eager, kernels=kernels)


class MsadapterFramework(MindsporeFramework):
    """MSAdapter: torch's names on MindSpore's tensors."""

    name = "msadapter"
    look = staticmethod(tensors.look)
    host = staticmethod(tensors.host)
    glance = staticmethod(tensors.glance)
    named_modules = staticmethod(named_modules)
    named_parameters = staticmethod(named_parameters)
    seed_all = staticmethod(seeding.seed_all)
    without_dropout = staticmethod(seeding.without_dropout)

    def capabilities(self) -> frozenset[Capability]:
        # A function that MindSpore compiles beside MSAdapter does not run uncompiled: see compiled.py.
        return super().capabilities() - {Capability.EAGER}

    def is_module(self, value: object) -> bool:
        return isinstance(value, nn.Module)

    def token(self, value: Any) -> tuple[str, str] | None:
        if isinstance(value, torch.device):
            return "device", value.type if value.index is None else f"{value.type}:{value.index}"
        if isinstance(value, torch.Generator):
            return "generator", "generator"
        known = super().token(value)
        if known and known[0] == "dtype":
            return "dtype", known[1].removeprefix("mindspore.").lower()
        return known

    def watch(
        self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool = False, kernels: bool = False
    ) -> MsadapterWatch:
        tensors.launch_synchronously()
        return MsadapterWatch(models, level, sink, eager=eager, kernels=kernels)

    def on_gradient(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        return super().on_gradient(tensor, callback) if HAS_NODES else on_gradient(tensor, callback)

    def _on_leaf(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        return on_gradient(tensor, callback)  # mindtorch's own register_hook does not work

    def tap(self, tensor: Any, callback: Callable[[Any], None]) -> Any:
        alias = super().tap(tensor, callback)
        if hasattr(tensor, "_device"):  # MSAdapter's own, which MindSpore does not hand on
            alias._device = tensor._device
        return alias

    def environment(self) -> Mapping[str, Any]:
        return {"msadapter": PACKAGE, "torch": str(torch.__version__), **super().environment()}

    def internal_paths(self) -> tuple[str, ...]:
        own = sys.modules[PACKAGE].__file__
        return (*super().internal_paths(), *((str(Path(own).parent),) if own else ()))

    def snapshot(self, model: Any) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        for name, tensor in (*named_parameters(model), *named_buffers(model)):
            for key, value in ((name, tensor), (f"{name}.grad", getattr(tensor, "grad", None))):
                if tensors.is_tensor(value):  # as bytes: not every element type can be made from numpy
                    values[key] = torch.tensor(tensors.host(value).reshape(-1).view(np.uint8).copy())
        return values


FRAMEWORK = MsadapterFramework()
