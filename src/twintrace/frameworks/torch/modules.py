"""Modules: where in the network we are, what goes in and comes out, how it is configured.

    encoder.0.norm1 (LayerNorm)   eps=1e-05, normalized_shape=(8,), training=True   weight f32[8], bias f32[8]

Calls are seen where all modules are called, in `nn.Module.__call__`. Not by hooks on each module: a hook is seen by others (torch's
own fused encoder layer stops fusing, and its bits change; a pickled or copied model takes it along; torch.compile compiles it in).
A compiled or scripted module is seen from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from ...model.sites import Kind, Phase
from ..headroom import EVERY, headroom
from ..protocol import ModuleView, Open, Sink
from .gradients import Gradients, edges_of, next_sequence_number, unseen
from .patches import patch
from .quiet import quiet

in_backward: Callable[[], int] = torch._C._current_graph_task_id
_SCALARS = (bool, int, float, str, tuple, type(None))


def end_without_result(sink: Sink, call: Open, error: BaseException) -> None:
    """A call raised. A checkpointed block that has recomputed all that it needs stops itself by raising: that is no fault."""
    if type(error).__name__ == "_StopRecomputationError":
        sink.leave(call, None, missing=("the recomputation stopped here: everything that is needed has been computed",))
    else:
        sink.fail(call, error)


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, with its path; not what is inside a compiled or scripted one."""
    seen: set[int] = set()
    pending: list[tuple[str, nn.Module]] = [("", model)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        if not is_opaque(module):
            children = [
                (f"{path}.{name}" if path else name, child)
                for name, child in module._modules.items()
                if child is not None
            ]
            pending.extend(reversed(children))


def is_opaque(module: nn.Module) -> bool:
    """Does what happens inside escape us?"""
    if isinstance(module, torch.jit.ScriptModule) or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return _is_compiled(module)


def _is_compiled(module: nn.Module) -> bool:
    """Is it what torch.compile makes of a module?"""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def view_of(path: str, module: nn.Module) -> ModuleView:
    """Facts about a module that the sink may ask for."""
    inner: Any = module._orig_mod if _is_compiled(module) else module
    return ModuleView(
        path,
        inner.original_name if isinstance(inner, torch.jit.ScriptModule) else type(inner).__name__,
        own_parameters=lambda: {name: p for name, p in inner._parameters.items() if p is not None},
        own_buffers=lambda: {name: b for name, b in inner._buffers.items() if b is not None},
        configuration=lambda: configuration(inner),
        state=lambda: [value for value in vars(inner).values() if type(value) in _SCALARS],
    )


def configuration(module: nn.Module) -> Mapping[str, Any]:
    """Everything that the constructor left on the module, except parameters, submodules and torch's own bookkeeping."""
    found = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, Tensor | nn.Module)
    }
    if type(module).__module__.startswith("torch."):  # a user's class may have the same name, and do something else
        found["torch_class"] = f"{type(module).__module__}.{type(module).__qualname__}"
    return {**found, "training": module.training}


class Modules:
    """Reports the calls of some models' modules, and the gradients of their parameters."""

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        sink: Sink,
        gradients: Gradients,
        *,
        follow_thread: Callable[[], Callable[[], None]],
        grow: bool = True,
    ) -> None:
        """`grow`: hook parameters that come or thaw later, too. Finding their nodes is a kernel, which level op would see."""
        self._models, self._sink, self._gradients = models, sink, gradients
        self._follow_thread, self._grow = follow_thread, grow
        self._known: dict[int, tuple[nn.Module, ModuleView | None]] = {}
        self._threads: set[int] = set()
        self._unpatch: Callable[[], None] | None = None
        self._hooked: dict[int, tuple[Any, Any, Any]] = {}

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        self._threads = {threading.get_ident()}
        self._learn()
        yield self._known.clear
        self.resume()
        yield self.pause
        yield self._unhook_parameters
        self._hook_parameters()

    def rename(self, module: nn.Module, path: str) -> Callable[[], None]:
        """Report this one module as `path`, whether or not it belongs to a model; the result ends that."""
        before = self._known.get(id(module))
        self._known[id(module)] = (module, view_of(path, module))

        def undo() -> None:
            if before is None:
                self._known.pop(id(module), None)
            else:
                self._known[id(module)] = before

        return undo

    def resume(self) -> None:
        """Be told of module calls."""
        if self._unpatch is None:
            self._unpatch = patch(nn.Module, "__call__", self._layer)

    def pause(self) -> None:
        """Be told no longer."""
        unpatch, self._unpatch = self._unpatch, None
        if unpatch is not None:
            unpatch()

    def _learn(self) -> None:
        for prefix, model in self._models.items():
            for path, module in named_modules(model):
                full = ".".join(filter(None, (prefix, path)))
                if id(module) in self._known and self._known[id(module)][1] is not None:
                    continue
                view = view_of(full, module)
                self._known[id(module)] = (module, view)
                if is_opaque(module):
                    self._sink.note(
                        "compiled",
                        f"{full or 'the model'} ({view.type}) is compiled or scripted: it is recorded from outside, "
                        f"the calls inside it cannot be seen.",
                    )

    def _layer(self, original: Any) -> Any:
        def __call__(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._sink.busy:
                return original(module, *args, **kwargs)
            headroom.count += 1
            if not headroom.count % EVERY:
                headroom.grow()
            try:
                return self._call(original, module, args, kwargs)
            finally:
                if not headroom.count % EVERY:
                    headroom.shrink()
                headroom.count -= 1

        return __call__

    def _call(self, original: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        known = self._known.get(id(module))
        if known is None:
            known = self._meet(module)
        _, view = known
        if view is None or torch._C._get_tracing_state() is not None:
            return original(module, *args, **kwargs)
        phase = Phase.FORWARD if in_backward() == -1 else Phase.RECOMPUTE
        with unseen():
            if self._grow and view.path in self._models and torch.is_grad_enabled():
                self._hook_parameters()
            call = self._sink.enter(Kind.MODULE, view.path, args, kwargs, phase=phase, module=view)
            follows = call is not None and call.wants_gradients and torch.is_grad_enabled()
            inputs = edges_of(call) if call is not None and follows else []
        if call is None:
            return original(module, *args, **kwargs)
        start = next_sequence_number()
        leave_thread = self._enter_thread()
        try:
            output = original(module, *args, **kwargs)
        except BaseException as error:
            end_without_result(self._sink, call, error)
            raise
        finally:
            if leave_thread is not None:
                leave_thread()
        with unseen():
            self._sink.leave(call, output)
            if follows:
                self._gradients.follow(call, inputs, start)
        return output

    def _meet(self, module: nn.Module) -> tuple[nn.Module, ModuleView | None]:
        """A module that was not there when recording began: grown since, compiled from one of ours, or none of ours."""
        self._learn()
        inner = self._known.get(id(module._orig_mod)) if _is_compiled(module) else None
        found = self._known.setdefault(id(module), (module, inner[1] if inner else None))
        if found[1] is None:
            self._sink.stranger(type(module).__name__)
        return found

    def _enter_thread(self) -> Callable[[], None] | None:
        """Modes belong to a thread; a forward in another thread gets one for its duration."""
        here = threading.get_ident()
        if here in self._threads:
            return None
        self._threads.add(here)
        leave = self._follow_thread()

        def done() -> None:
            self._threads.discard(here)
            leave()

        return done

    def _hook_parameters(self) -> None:
        """Hook the parameters that there are by now: a model grows, thaws, and changes its element type."""
        for prefix, model in self._models.items():
            for name, parameter in model.named_parameters():
                if not parameter.requires_grad or isinstance(parameter, nn.parameter.UninitializedParameter):
                    continue
                known, kind = self._hooked.get(id(parameter)), (parameter.dtype, parameter.device)
                if known is not None and known[2] == kind:
                    continue  # torch gives a leaf another node only with another type or device
                # On the node that collects the gradient, not on the tensor: a tensor with hooks complains when it is pickled.
                with quiet():  # torch takes a view of it
                    node = get_gradient_edge(parameter).node
                handle = node.register_prehook(self._parameter_hook(f"{prefix}.{name}" if prefix else name))
                self._hooked[id(parameter)] = (node, handle, kind)  # the node lives only as long as somebody holds it

    def _unhook_parameters(self) -> None:
        while self._hooked:
            self._hooked.popitem()[1][1].remove()

    def _parameter_hook(self, name: str) -> Callable[[Any], None]:
        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            if gradients and gradients[0] is not None:
                with unseen():
                    self._sink.parameter_gradient(name, gradients[0])

        return hook
