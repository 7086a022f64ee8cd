"""Cells: where in the network we are, what goes in and comes out, how it is configured.

    encoder.0.norm1 (LayerNorm)   epsilon=1e-07, normalized_shape=(8,), training=True   gamma f32[8], beta f32[8]

Calls are seen where all Cells are called, in `nn.Cell.__call__`. Not by hooks on each Cell: they are seen by others, they are
compiled into graphs, and a backward hook inserts a node. A Cell that is compiled is seen from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mindspore import Parameter, Tensor, nn
from mindspore.ops import Primitive

from ...model.sites import Kind, Phase
from ...model.words import dotted
from ..headroom import EVERY, headroom
from ..protocol import ModuleView, Open, Sink
from .gradients import Gradients, in_backward, is_quiet, is_recomputing, next_sequence_number, unseen
from .patches import patch
from .precision import computing_in
from .tensors import wrote
from .updates import is_optimizer

_SCALARS = (bool, int, float, str, tuple, type(None))
_OF_EVERY_CELL = frozenset(vars(nn.Cell())) - {"training"}
_BOOKKEEPING = frozenset(("cls_name", "parameter_layout_dict", "phase", "param_prefix", "bprop_debug", "parallel_mode"))


def end_without_result(sink: Sink, call: Open, error: BaseException) -> None:
    """A call raised."""
    sink.fail(call, error)


def present_phase() -> Phase:
    """Forward, or what a backward pass calls: a block computed again, or a user's own `bprop`."""
    if not in_backward():
        return Phase.FORWARD
    return Phase.RECOMPUTE if is_recomputing() else Phase.BACKWARD


def walk(model: Any, table: str, is_other: Callable[[Any], bool] = lambda module: False) -> Iterator[tuple[str, Any]]:
    """Every module once, with its path; `table` is the attribute that holds its children. What is other is left out."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", model)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen or is_other(module):
            continue
        seen.add(id(module))
        yield path, module
        children = [(dotted(path, name), child) for name, child in getattr(module, table).items() if child is not None]
        pending.extend(reversed(children))


def named_modules(model: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Every Cell once, with its path; an optimizer is none of the network's modules."""
    return walk(model, "_cells", is_optimizer)


def named_parameters(model: nn.Cell) -> Iterator[tuple[str, Any]]:
    """Every parameter once, by the path of the Cell that has it; not an optimizer's own."""
    seen: set[int] = set()
    for path, cell in named_modules(model):
        for name, parameter in _own_parameters(cell).items():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield (f"{path}.{name}" if path else name), parameter


def named_buffers(model: nn.Cell) -> Iterator[tuple[str, Any]]:
    """Every buffer, by the path of the Cell that has it."""
    for path, cell in named_modules(model):
        for name, buffer in _own_buffers(cell).items():
            yield (f"{path}.{name}" if path else name), buffer


def view_of(path: str, cell: nn.Cell) -> ModuleView:
    """Facts about a Cell that the sink may ask for."""
    return ModuleView(
        path,
        type(cell).__name__,
        own_parameters=lambda: _own_parameters(cell),
        own_buffers=lambda: _own_buffers(cell),
        configuration=lambda: configuration(cell),
        state=lambda: [value for value in vars(cell).values() if type(value) in _SCALARS],
    )


def configuration(cell: nn.Cell) -> Mapping[str, Any]:
    """Everything that the constructor left on the Cell, except parameters, Cells, primitives and MindSpore's own bookkeeping."""
    settings = {
        name: value
        for name, value in vars(cell).items()
        if name[0] != "_"
        and name not in _OF_EVERY_CELL
        and name not in _BOOKKEEPING
        and not isinstance(value, Tensor | nn.Cell | Primitive)
    }
    if type(cell).__module__.startswith("mindspore."):  # a user's class may have the same name, and do something else
        settings["mindspore_class"] = f"{type(cell).__module__}.{type(cell).__qualname__}"
    return {**settings, "training": cell.training}


def _own_parameters(cell: nn.Cell) -> dict[str, Any]:
    """The parameters that are this Cell's and no other's: a Cell for training lists its network's as well, by their full names."""
    parameters = {name: parameter for name, parameter in cell._params.items() if parameter is not None}
    if any("." in name for name in parameters):
        below = {id(p) for _, child in named_modules(cell) if child is not cell for p in child._params.values()}
        parameters = {name: parameter for name, parameter in parameters.items() if id(parameter) not in below}
    return parameters


def _own_buffers(cell: nn.Cell) -> dict[str, Any]:
    buffers: Mapping[str, Any] = getattr(cell, "_buffers", None) or {}
    return {name: buffer for name, buffer in buffers.items() if buffer is not None}


class Modules:
    """Reports the calls of some models' Cells. What a Cell is, and what it has, is asked of these four: MSAdapter's are others."""

    _kind: type = nn.Cell
    _named_modules = staticmethod(named_modules)
    _named_parameters = staticmethod(named_parameters)
    _view_of: Callable[[str, Any], ModuleView] = staticmethod(view_of)

    def __init__(self, models: Mapping[str, nn.Cell], sink: Sink, gradients: Gradients) -> None:
        self._models, self._sink, self._gradients = models, sink, gradients
        self._known: dict[int, tuple[nn.Cell, ModuleView | None]] = {}

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        self._learn()
        yield self._known.clear
        yield patch(self._kind, "__call__", self._layer)

    def rename(self, module: nn.Cell, path: str) -> Callable[[], None]:
        """Report this one module as `path`, whether or not it belongs to a model; the result ends that."""
        before = self._known.get(id(module))
        self._known[id(module)] = (module, self._view_of(path, module))

        def undo() -> None:
            if before is None:
                self._known.pop(id(module), None)
            else:
                self._known[id(module)] = before

        return undo

    def parameter_names(self) -> dict[int, str]:
        """The parameters' names by object, those that there are by now: a model grows."""
        return {
            id(parameter): dotted(prefix, name)
            for prefix, model in self._models.items()
            for name, parameter in self._named_parameters(model)
        }

    def _learn(self) -> None:
        for prefix, model in self._models.items():
            for path, cell in self._named_modules(model):
                full = dotted(prefix, path)
                if id(cell) not in self._known or self._known[id(cell)][1] is None:
                    self._known[id(cell)] = (cell, self._view_of(full, cell))

    def _layer(self, original: Any) -> Any:
        def __call__(cell: nn.Cell, /, *args: Any, **kwargs: Any) -> Any:
            if self._sink.busy or is_quiet() or is_optimizer(cell):
                return original(cell, *args, **kwargs)
            headroom.count += 1
            if not headroom.count % EVERY:
                headroom.grow()
            try:
                kind = getattr(cell, "mixed_precision_type", None)
                if kind is None:
                    return self._call(original, cell, args, kwargs)
                with computing_in(kind):
                    return self._call(original, cell, args, kwargs)
            finally:
                if not headroom.count % EVERY:
                    headroom.shrink()
                headroom.count -= 1

        return __call__

    def _call(self, original: Any, cell: nn.Cell, args: Any, kwargs: Any) -> Any:
        known = self._known.get(id(cell))
        if known is None:
            known = self._meet(cell)
        _, view = known
        if view is None:
            return original(cell, *args, **kwargs)
        with unseen():
            call = self._sink.enter(Kind.MODULE, view.path, args, kwargs, phase=present_phase(), module=view)
            inputs = self._gradients.begin(call) if call is not None and call.wants_gradients else []
            given, named, restore = self._gradients.tap(call, args, kwargs)
        if call is None:
            return original(cell, *args, **kwargs)
        start = next_sequence_number(inputs)
        try:
            output = restore(original(cell, *given, **named))
        except BaseException as error:
            restore(None)
            end_without_result(self._sink, call, error)
            raise
        with unseen():
            if self._keeps_state(cell):
                wrote()
            self._sink.leave(call, output)
            if call.wants_gradients:
                self._gradients.follow(call, inputs, start)
        return output

    def _meet(self, cell: nn.Cell) -> tuple[nn.Cell, ModuleView | None]:
        """A Cell that was not there when recording began: grown since, or none of ours."""
        self._learn()
        known = self._known.setdefault(id(cell), (cell, None))
        if known[1] is None:
            self._sink.stranger(type(cell).__name__)
        return known

    def _keeps_state(self, cell: nn.Cell) -> bool:
        """May this Cell have written to something of its own (moving averages, buffers)? Its kernels do so unannounced."""
        return bool(_own_buffers(cell)) or any(
            isinstance(parameter, Parameter) and not parameter.requires_grad for parameter in cell._params.values()
        )
