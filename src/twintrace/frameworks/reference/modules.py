"""Modules: where in the network we are, what goes in and comes out, how it is configured.

    norm (LayerNorm)   size=4, eps=1e-05, training=True   weight f32[4], bias f32[4]

A module is looked up when it is called, so one that was put in after the start is found too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...model.sites import Kind, Phase
from ...model.words import dotted
from ..protocol import ModuleView, Sink
from .gradients import Gradients, in_backward
from .miniature import HOOKS, Module, Parameter, Tensor


def named_modules(model: Module) -> Iterator[tuple[str, Module]]:
    """Every module once, with its path."""
    seen: set[int] = set()
    for path, module in model.modules().items():
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module


def view_of(path: str, module: Module) -> ModuleView:
    """Facts about a module that the sink may ask for."""

    def own(learned: bool) -> Mapping[str, Tensor]:
        tensors = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
        return {name: value for name, value in tensors.items() if isinstance(value, Parameter) is learned}

    return ModuleView(
        path,
        type(module).__name__,
        own_parameters=lambda: own(True),
        own_buffers=lambda: own(False),
        configuration=lambda: configuration(module),
        state=lambda: module.training,
    )


def configuration(module: Module) -> Mapping[str, Any]:
    """Everything that the constructor left on the module, except tensors and submodules."""
    settings = {name: value for name, value in vars(module).items() if not isinstance(value, Tensor | Module)}
    return {name: value for name, value in settings.items() if name[0] != "_"} | {"training": module.training}


class Modules:
    """Reports the calls of some models' modules, and the gradients of their parameters."""

    def __init__(self, models: Mapping[str, Module], sink: Sink, gradients: Gradients) -> None:
        self._models, self._sink, self._gradients = models, sink, gradients
        self._views: dict[int, ModuleView] = {}

    def install(self, *, parameter_gradients: bool) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        if parameter_gradients:
            for prefix, model in self._models.items():
                for path, tensor in model.tensors().items():
                    if isinstance(tensor, Parameter) and tensor.node is not None:
                        yield self._hook_parameter(dotted(prefix, path), tensor)
        HOOKS.modules.append(self._call)
        yield lambda: HOOKS.modules.remove(self._call)
        yield self._views.clear

    def rename(self, module: Module, path: str) -> Callable[[], None]:
        """Report this one module as `path`, whether or not it belongs to a model; the result ends that."""
        before = self._views.get(id(module))
        self._views[id(module)] = view_of(path, module)

        def undo() -> None:
            if before is None:
                self._views.pop(id(module), None)
            else:
                self._views[id(module)] = before

        return undo

    def _call(self, module: Module, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        view = self._views.get(id(module)) or self._meet(module)
        if view is None or self._sink.busy:
            return run()
        phase = Phase.RECOMPUTE if in_backward() else Phase.FORWARD
        call = self._sink.enter(Kind.MODULE, view.path, args, kwargs, phase=phase, module=view)
        return run() if call is None else self._gradients.follow(call, self._sink, run)

    def _meet(self, module: Module) -> ModuleView | None:
        """A module that is called for the first time: one of ours, perhaps added since recording began, or none."""
        for prefix, model in self._models.items():
            for path, known in named_modules(model):
                if known is module:
                    return self._views.setdefault(id(module), view_of(dotted(prefix, path), module))
        self._sink.stranger(type(module).__name__)
        return None

    def _hook_parameter(self, name: str, parameter: Tensor) -> Callable[[], None]:
        def hook(gradient: Tensor) -> None:
            self._sink.parameter_gradient(name, gradient)

        node = parameter.node
        assert node is not None
        node.before.append(hook)
        return lambda: node.before.remove(hook)
