"""The torch adapter: `FRAMEWORK`, and the watch that puts the interceptors of a level together.

level    module calls      function mode + collectives    dispatch mode
module   recorded          -                              -
api      paths only        recorded                       -
mix      recorded          recorded                       -
op       paths only        -                              recorded
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...model.records import Level
from ..protocol import Capability, Keeper, Sink
from . import plans, seeding, tensors
from .calls import Calls, flush_after_backward
from .collectives import Collectives, collective_token
from .compiled import CAN_BE_EAGER, CompiledRegions
from .digests import DeviceDigests
from .gradients import Gradients, unseen
from .modules import Modules, named_modules
from .ops import Ops
from .patches import patch
from .precision import float32_matmul, precision
from .quiet import quiet
from .releases import HOOKS, gradient_edge, patch_engine
from .updates import forget_updated
from .wiring import register_quickly
from .writes import Writes


class TorchWatch:
    """All hooks of one recording."""

    def __init__(self, models: Mapping[str, nn.Module], level: Level, sink: Sink, *, eager: bool) -> None:
        self._level, self._sink = level, sink
        self._gradients = Gradients(sink)
        self._calls = Calls(sink, self._gradients) if level in (Level.API, Level.MIX) else None
        self._ops = Ops(sink) if level is Level.OP else None
        self._collectives = Collectives(sink)
        self._writes = Writes(sink, calls=level is Level.MODULE)
        self._modules = Modules(
            models,
            sink,
            self._gradients,
            follow_thread=self._follow_thread,
            grow=level is not Level.OP,
            eager=eager,
            may_be_off=self._writes.may_be_off,
            is_only_mode=self._calls.is_only_mode if self._calls else lambda: False,
        )
        self._compiled = CompiledRegions(sink, self._step_aside, eager=eager)
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        try:
            with unseen():  # a function mode of the user's would see each parameter's attributes
                for undo in self._install():
                    self._undo.append(undo)
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_gradients: bool = False) -> None:
        try:
            with unseen():
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

    def _install(self) -> Iterator[Callable[[], None]]:
        yield from self._compiled.install()
        yield from self._modules.install()
        yield patch_engine(flush_after_backward(self._gradients))
        if tensors.has_device() and HOOKS is not None:
            yield patch(HOOKS, "_register_hook", register_quickly)
        if self._ops:
            yield from self._ops.install()
            yield from self._writes.install()
            return
        yield from self._collectives.install()
        if self._calls:
            yield from self._calls.install()
        else:
            yield forget_updated(self._sink)
        yield from self._writes.install()

    def _step_aside(self) -> Callable[[], None]:
        """Take out what a compiler would find in its way; the result puts it back."""
        self._modules.pause()
        mode = self._calls or self._ops
        resume = mode.suspend() if mode else lambda: None

        def back() -> None:
            if self._undo:  # still recording
                self._modules.resume()
                resume()

        return back

    def _follow_thread(self) -> Callable[[], None]:
        mode = self._calls or self._ops
        return mode.enter() if mode else lambda: None


class TorchFramework:
    """PyTorch."""

    name = "torch"
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
        found = {Capability.MODULE, Capability.API, Capability.OP, Capability.BACKWARD}
        if torch.distributed.is_available():
            found.add(Capability.COLLECTIVES)
        if CAN_BE_EAGER:
            found.add(Capability.EAGER)
        return frozenset(found)

    def is_module(self, value: object) -> bool:
        return isinstance(value, nn.Module)

    def named_parameters(self, model: nn.Module) -> Iterator[tuple[str, Any]]:
        return model.named_parameters()

    def token(self, value: Any) -> tuple[str, str] | None:
        if isinstance(value, torch.Size):
            return None
        for kind, name in _TOKENS:
            if isinstance(value, kind):
                return name, str(value).removeprefix("torch.")
        return collective_token(value)

    def watch(
        self, models: Mapping[str, Any], level: Level, sink: Sink, *, eager: bool = False, kernels: bool = False
    ) -> TorchWatch:
        return TorchWatch(models, level, sink, eager=eager)

    def digests(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Keeper | None = None
    ) -> DeviceDigests | None:
        return DeviceDigests(fingerprint=fingerprint, room=room, tell=tell, keeper=keeper)

    def plans(self) -> Any:
        return plans if tensors.has_device() else None

    def on_gradient(self, tensor: Any, callback: Callable[[Any], None]) -> Callable[[], None]:
        with quiet():  # a subclass of the user's is asked nothing, and a mode sees nothing
            if not tensor.requires_grad:
                return lambda: None
            node, number, owner = gradient_edge(tensor)
            held = node if tensor.is_leaf else None

        def hook(gradients: tuple[Any, ...], _: Any = owner) -> None:
            if gradients[number] is not None:
                callback(gradients[number])

        handle = node.register_prehook(hook)

        def remove(_: Any = held) -> None:  # holds a leaf's node until then: the leaf does not, before it is used
            handle.remove()

        return remove

    def tap(self, tensor: Any, callback: Callable[[Any], None]) -> Any:
        self.on_gradient(tensor, callback)
        return tensor

    def rank(self) -> tuple[int, int]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    def groups(self) -> tuple[tuple[int, ...], ...]:
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return ()
        from torch.distributed import distributed_c10d

        known = distributed_c10d._world.pg_group_ranks.values()
        return tuple(tuple(sorted(ranks)) for ranks in known)

    def environment(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "float32_matmul": float32_matmul(),
        }
        if torch.cuda.is_available():
            found |= {"cuda": torch.version.cuda, "device": torch.cuda.get_device_name()}
        return found

    def internal_paths(self) -> tuple[str, ...]:
        return (str(Path(torch.__file__).parent),)

    def snapshot(self, model: nn.Module) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            found[name] = tensor.detach().clone()
            if tensor.grad is not None:
                found[f"{name}.grad"] = tensor.grad.detach().clone()
        return found


_TOKENS: tuple[tuple[type, str], ...] = (
    (torch.dtype, "dtype"),
    (torch.device, "device"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
    (torch.Generator, "generator"),
)

FRAMEWORK = TorchFramework()
