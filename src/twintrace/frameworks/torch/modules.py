"""Modules: where in the network we are, what goes in and comes out, how it is configured.

    encoder.0.norm1 (LayerNorm)   eps=1e-05, normalized_shape=(8,), training=True   weight f32[8], bias f32[8]

Calls are seen where all modules are called, in `nn.Module.__call__`. Not by hooks on each module: a hook is seen by others (torch's
own fused encoder layer stops fusing, and its bits change; a pickled or copied model takes it along; torch.compile compiles it in).
A compiled or scripted module is seen from outside.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...model.sites import Kind, Phase
from ..headroom import EVERY, headroom
from ..protocol import ModuleView, Open, Sink
from .compiled import WAY_IN
from .drafts import ANCHORS, HANDLERS, draft_of
from .gradients import Gradients, edges_of, next_sequence_number, unseen
from .layers import LAYERS, Unit, leaves_arguments, written_by_layer
from .patches import patch
from .quiet import quiet
from .releases import gradient_edge, is_compiling
from .scripts import SCALARS, parameter_slots

in_backward: Callable[[], int] = torch._C._current_graph_task_id
_WRAPPED = "_orig_mod."
"""Of the name of a parameter, what torch.compile adds to it."""


def end_without_result(sink: Sink, call: Open, error: BaseException) -> None:
    """A call raised. A checkpointed block that has recomputed all that it needs stops itself by raising: that is no fault."""
    if type(error).__name__ == "_StopRecomputationError":
        sink.leave(call, None, missing=("the recomputation stopped here: everything that is needed has been computed",))
    else:
        sink.fail(call, error)


def end(
    sink: Sink,
    call: Open,
    output: Any,
    draft: Any,
    gradients: Gradients | None,
    inputs: list[tuple[str, Any, int]],
    start: int,
) -> None:
    """A call has ended; its graph is hooked where `gradients` are wanted. `draft`: the plan that is being made, or None."""
    sink.leave(call, output)
    if draft is not None:
        written = [place for place, (slot, _) in enumerate(call.inputs) if _is_within(slot, call.state.mutates)]
        returned = {id(tensor) for _, tensor in call.outputs}
        after = [(place, call.inputs[place][1]) for place in written if id(call.inputs[place][1]) not in returned]
        draft.left(call, output, after, written)
    if gradients is not None:
        hooked = gradients.follow(call, inputs, start, describe=draft is not None)
        if draft is not None:
            draft.hooked(hooked)


def written_by(call: Open, mutates: Sequence[str]) -> list[Tensor]:
    """The tensors among a call's arguments that it writes to."""
    return [tensor for slot, tensor in call.inputs if _is_within(slot, mutates)]


def _is_within(slot: str, places: Sequence[str]) -> bool:
    return any(slot == place or slot.startswith(f"{place}.") for place in places)


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, with its path; not what is inside a compiled or scripted one."""
    return _walk(model, eager=False)


def _walk(model: nn.Module, *, eager: bool) -> Iterator[tuple[str, nn.Module]]:
    """The same; `eager`: what torch.compile has made is run uncompiled, so it is the module that it was made of."""
    seen: set[int] = set()
    pending: list[tuple[str, nn.Module]] = [("", model)]
    while pending:
        path, module = pending.pop()
        if eager and _is_compiled(module):
            pending.append((path, module._orig_mod))  # type: ignore[arg-type]
            continue
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        if not is_opaque(module, eager=eager):
            children = [
                (f"{path}.{name}" if path else name, child)
                for name, child in module._modules.items()
                if child is not None
            ]
            pending.extend(reversed(children))


def is_opaque(module: nn.Module, *, eager: bool = False) -> bool:
    """Does what happens inside escape us?"""
    if isinstance(module, torch.jit.ScriptModule):
        return True
    return not eager and (getattr(module, "_compiled_call_impl", None) is not None or _is_compiled(module))


def _inside(module: nn.Module) -> Any:
    """The module itself, of one that torch.compile has made of it."""
    return module._orig_mod if _is_compiled(module) else module


def _is_compiled(module: nn.Module) -> bool:
    """Is it what torch.compile makes of a module?"""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def view_of(path: str, module: nn.Module) -> ModuleView:
    """Facts about a module that the sink may ask for."""
    inner = _inside(module)
    return ModuleView(
        path,
        inner.original_name if isinstance(inner, torch.jit.ScriptModule) else type(inner).__name__,
        own_parameters=lambda: {name: p for name, p in inner._parameters.items() if p is not None},
        own_buffers=lambda: {name: b for name, b in inner._buffers.items() if b is not None},
        configuration=lambda: configuration(inner),
        state=lambda: [value for value in vars(inner).values() if type(value) in SCALARS],
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


def _edges_before(
    edges: list[tuple[str, Any, int]], call: Open, before: list[tuple[Tensor, Any, int]]
) -> list[tuple[str, Any, int]]:
    """The edges of a call's inputs as they were before it, where that was asked."""
    nodes = {id(tensor): (node, number) for tensor, node, number in before if node is not None}
    slots = {slot: nodes[id(tensor)] for slot, tensor in call.inputs if id(tensor) in nodes}
    return [(slot, *slots.get(slot, (source, number))) for slot, source, number in edges]


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
        eager: bool = False,
        may_be_off: Callable[[nn.Module, Any], bool] = lambda module, args: False,
        is_only_mode: Callable[[], bool] = lambda: False,
    ) -> None:
        """`grow`: hook parameters that come or thaw later, too. Finding their nodes is a kernel, which level op would see.

        `eager`: what is compiled runs uncompiled. `may_be_off`: need no mode see this call? `is_only_mode`: is the mode that
        reports calls the only one?
        """
        self._may_be_off, self._is_only_mode = may_be_off, is_only_mode
        self._models, self._sink, self._gradients = models, sink, gradients
        self._follow_thread, self._grow, self._eager = follow_thread, grow, eager
        self._known: dict[int, tuple[nn.Module, ModuleView | None]] = {}
        self._threads: set[int] = set()
        self._announced: set[tuple[int, int]] = set()  # thread and module, see `_is_announced`
        self._unpatch: Callable[[], None] | None = None
        self._hooked: dict[int, tuple[Any, Any, Any]] = {}
        self._notes: list[tuple[Mapping[str, Any], tuple[int, ...]]] = []  # children and parameters of each module
        self._facts: list[tuple[Any, bool, Any, Any]] = []  # of each parameter
        self.planner: Any = None

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        self._threads = {threading.get_ident()}
        self.planner = getattr(self._sink, "planner", None)
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
            for path, module in _walk(model, eager=self._eager):
                full = ".".join(filter(None, (prefix, path)))
                if id(module) in self._known and self._known[id(module)][1] is not None:
                    continue
                view = view_of(full, module)
                self._known[id(module)] = (module, view)
                if is_opaque(module, eager=self._eager):
                    way_in = "" if isinstance(module, torch.jit.ScriptModule) else WAY_IN
                    self._sink.note(
                        "compiled",
                        f"{full or 'the model'} ({view.type}) is compiled or scripted: it is recorded from outside, "
                        f"the calls inside it cannot be seen{way_in}.",
                    )

    def _layer(self, original: Any) -> Any:
        def __call__(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._sink.busy:
                return original(module, *args, **kwargs)
            known = self._known.get(id(module))
            view = (self._meet(module) if known is None else known)[1]
            if view is None or torch._C._get_tracing_state() is not None or self._is_announced(module):
                return original(module, *args, **kwargs)
            headroom.count += 1
            if not headroom.count % EVERY:
                headroom.grow()
            try:
                return self._call(original, module, view, args, kwargs)
            finally:
                if not headroom.count % EVERY:
                    headroom.shrink()
                headroom.count -= 1

        HANDLERS.add(__call__.__code__)
        return __call__

    def _call(self, original: Any, module: nn.Module, view: ModuleView, args: Any, kwargs: Any) -> Any:
        phase = Phase.FORWARD if in_backward() == -1 else Phase.RECOMPUTE
        sink, event = self._sink, None
        follower: Any = None
        call: Open | None
        edges: list[tuple[Tensor, Any, int]] = []
        with unseen():
            grad = torch.is_grad_enabled()
            if self._grow and view.path in self._models and grad:
                self._hook_parameters()
            if self.planner is not None:
                follower = self.planner.follower
                if follower is not None:
                    event = follower.enter(
                        Kind.MODULE, view.path, args, kwargs, phase, None, view, _inside(module), sys._getframe(2)
                    )
            call = None
            if event is None:
                call = sink.enter(Kind.MODULE, view.path, args, kwargs, phase=phase, module=view)
                draft = draft_of(self.planner)
                if draft is not None and call is not None:
                    around = self.planner.around()
                    pushed = around[-1] if len(around) > call.state.depth else None
                    draft.entered(
                        call, args, kwargs, view=view, module=_inside(module), depth=call.state.depth, pushed=pushed,
                        is_layer=type(module) in LAYERS,
                    )  # fmt: skip
            elif grad and event.id >= 0 and not leaves_arguments(module):
                # Asked before the call, in case that it ends otherwise than planned.
                edges = [(each, each.grad_fn, each.output_nr) for each in args if isinstance(each, Tensor)]
            unit = None
            if event is not None and event.unit is not None and not kwargs and self._is_unit(event.unit, module, args):
                unit = event.unit
            follows = grad and (event.id >= 0 if event is not None else call is not None and call.wants_gradients)
            inputs = edges_of(call) if call is not None and follows else []
        if call is None and event is None:
            return original(module, *args, **kwargs)
        start = next_sequence_number()
        leave_thread = self._enter_thread()
        try:
            if unit is not None or (event is not None and not kwargs and self._may_be_off(module, args)):
                with unseen():
                    output = original(module, *args)
            else:
                output = original(module, *args, **kwargs)
        except BaseException as error:
            if unit is not None and self.planner.follower is follower and follower.enter_call(unit):
                end_without_result(sink, self.planner.reopen(unit.call, *unit.arguments(module, args)), error)
            end_without_result(sink, call or self.planner.reopen(event, args, kwargs), error)
            raise
        finally:
            if self._announced and _is_compiled(module):  # it may not have come by
                self._announced.discard((threading.get_ident(), id(module._orig_mod)))
            if leave_thread is not None:
                leave_thread()
        with unseen():
            gradients = self._gradients if follows else None
            if event is not None:
                if unit is not None:
                    if self._leave_unit(follower, event, unit, module, args, output, gradients, start):
                        return output
                elif self.planner.follower is follower and follower.leave(event, args, kwargs, output, gradients):
                    return output
                call = self.planner.reopen(event, args, kwargs)
                inputs = _edges_before(edges_of(call), call, edges) if follows else []
            assert call is not None
            end(sink, call, output, draft_of(self.planner), gradients, inputs, start)
        return output

    ANCHORS.add(_call.__code__)
    HANDLERS.add(_call.__code__)

    def _is_unit(self, unit: Unit, module: nn.Module, args: Any) -> bool:
        """Is it certain that this layer makes its one call, and need nobody else see that? What it writes to has been read then."""
        forward: Any = type(module).forward
        if not self._is_only_mode() or forward.__code__ is not unit.forward or not self.planner.follower.is_unit(unit):
            return False
        written = written_by_layer(module, args)
        if written:
            self._sink.before_write(written)
        return written is not None

    def _leave_unit(
        self,
        follower: Any,
        event: Any,
        unit: Unit,
        module: nn.Module,
        args: Any,
        output: Any,
        gradients: Gradients | None,
        start: int,
    ) -> bool:
        """A layer that has made its one call has ended. False: not as planned; the call has been ended in full then."""
        if self.planner.follower is not follower or not follower.enter_call(unit):
            return False
        done = follower.leave_unit(event, unit, args, output, gradients)
        if done == 0:
            call = self.planner.reopen(unit.call, *unit.arguments(module, args))
            inputs = [] if gradients is None else edges_of(call)
            end(self._sink, call, output, draft_of(self.planner), gradients, inputs, start)
        return bool(done == 2)

    def _meet(self, module: nn.Module) -> tuple[nn.Module, ModuleView | None]:
        """A module that was not there when recording began: grown since, compiled from one of ours, or none of ours."""
        self._learn()
        inner = self._known.get(id(module._orig_mod)) if _is_compiled(module) else None
        found = self._known.setdefault(id(module), (module, inner[1] if inner else None))
        if found[1] is None:
            self._sink.stranger(type(module).__name__)
        return found

    def _is_announced(self, module: nn.Module) -> bool:
        """Is this the module inside one that torch.compile has made of it, and that is called as it? That one is recorded: it calls
        what `__call__` was when it was made, with us or without.
        """
        if not self._eager:
            return False
        here = threading.get_ident()
        if _is_compiled(module):
            self._announced.add((here, id(module._orig_mod)))
            return False
        if (here, id(module)) in self._announced:
            self._announced.discard((here, id(module)))
            return True
        return False

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
        if self._is_as_hooked():
            return
        self._notes = [
            (kept, tuple(map(id, kept.values())))
            for model in self._models.values()
            for module in model.modules()
            for kept in (module._modules, module._parameters)
        ]
        self._facts = [
            (parameter, parameter.requires_grad, parameter.dtype, parameter.device)
            for model in self._models.values()
            for parameter in model.parameters()
        ]
        for prefix, model in self._models.items():
            for name, parameter in model.named_parameters():
                name = name.replace(_WRAPPED, "")
                if not parameter.requires_grad or isinstance(parameter, nn.parameter.UninitializedParameter):
                    continue
                known, kind = self._hooked.get(id(parameter)), (parameter.dtype, parameter.device)
                if known is not None and known[2] == kind:
                    continue  # torch gives a leaf another node only with another type or device
                # On the node that collects the gradient, not on the tensor: a tensor with hooks complains when it is pickled.
                with quiet():  # torch takes a view of it
                    node = gradient_edge(parameter)[0]
                handle = node.register_prehook(self._parameter_hook(f"{prefix}.{name}" if prefix else name))
                self._hooked[id(parameter)] = (node, handle, kind)  # the node lives only as long as somebody holds it

    def _is_as_hooked(self) -> bool:
        """Are there the same parameters as when they were last hooked? Asked in every step: walking the model takes longer."""
        return (
            bool(self._notes)
            and all(tuple(map(id, kept.values())) == ids for kept, ids in self._notes)
            and all(
                parameter.requires_grad is grad and parameter.dtype is dtype and parameter.device == device
                for parameter, grad, dtype, device in self._facts
            )
        )

    def _unhook_parameters(self) -> None:
        self._notes, self._facts = [], []
        while self._hooked:
            self._hooked.popitem()[1][1].remove()

    def _parameter_hook(self, name: str) -> Callable[[Any], None]:
        slots, planner = parameter_slots(name), self.planner

        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            gradient = gradients[0] if gradients else None
            if gradient is not None:
                with unseen():
                    follower = None if planner is None else planner.follower
                    if follower is None or not follower.gradients(slots, (), gradients):
                        self._sink.parameter_gradient(name, gradient)

        return hook
