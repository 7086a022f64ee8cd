"""Layers of torch's own, in which no code of the user's runs: what they write to is known, and which call they make.

written_by_layer(layer, args)    [running_mean, running_var, num_batches_tracked]    None: another module
find_units(script)               of a plan at level mix, the layers that make one call with what they have and are given

    ENTER conv   weight 3, input 7          a unit: the function mode is off while the layer runs, and what the inner call
      ENTER torch.conv2d   7, 3, stride …   was given, and that it was made, follow from what was compared when the
      LEAVE torch.conv2d   new 8            layer was entered: its class, its settings, its tensors, the precision
    LEAVE conv   8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from ...model.sites import Kind, Phase
from .scripts import ENTER, LEAVE, NUMBERS, TENSOR, VALUE, Event, Item, Script, Slots

LAYERS = frozenset(
    getattr(nn, name)
    for name in (
        "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding",
        "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Dropout", "Identity", "Flatten",
        "ReLU", "ReLU6", "LeakyReLU", "ELU", "GELU", "SiLU", "Hardswish", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
        "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
    )
    if hasattr(nn, name)
)  # fmt: skip
"""Layers of torch's own that write to nothing but their buffers and, where they say `inplace`, their argument."""
_PLAIN = (Tensor, nn.Parameter)


def leaves_arguments(layer: nn.Module) -> bool:
    """Is this a layer that does not write to its arguments, and in which no code of the user's runs?"""
    kept = layer.__dict__
    return (
        type(layer) in LAYERS and not kept.get("inplace") and not kept["_forward_pre_hooks"] and "forward" not in kept
    )


def written_by_layer(layer: nn.Module, args: Any) -> list[Any] | None:
    """Tensors that this call of a layer writes to; None where that is not known, because code of the user's may run in it."""
    kept = layer.__dict__
    if (
        type(layer) not in LAYERS
        or kept["_forward_pre_hooks"]
        or kept["_forward_hooks"]
        or kept["_backward_pre_hooks"]
        or kept["_backward_hooks"]
        or hooks_of_all._global_forward_pre_hooks
        or hooks_of_all._global_forward_hooks
        or hooks_of_all._global_backward_pre_hooks
        or hooks_of_all._global_backward_hooks
        or "forward" in kept
        or kept.get("_compiled_call_impl") is not None  # compiled for the modes that are on
        or kept.get("max_norm") is not None  # of an embedding, whose weight is scaled
    ):
        return None
    for value in args:
        if type(value) not in _PLAIN:
            return None
    found = [buffer for buffer in kept["_buffers"].values() if buffer is not None] if kept["_buffers"] else []
    return [*found, *args] if kept.get("inplace") else found


Source = tuple[str, Any]
"""Where an argument of the inner call comes from: (kind, name, place or value)."""


class Unit:
    """A layer and the one call that it makes."""

    __slots__ = ("_args", "_kwargs", "call", "end", "forward", "hook", "left", "slots")

    def __init__(self, call: Event, left: Event, end: Event, args: list[Source], kwargs: dict[str, Source]) -> None:
        self.call, self.left, self.end = call, left, end
        self._args, self._kwargs = args, kwargs
        self.forward: CodeType = call.place[-1][0]
        self.hook: Callable[..., None] | None = None
        """The hook of both on the one node that they are, where they are one."""
        self.slots: Slots = ()

    def arguments(self, layer: nn.Module, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that the inner call had."""
        given: dict[str, Any] = {"parameters": layer._parameters, "buffers": layer._buffers, "args": args}

        def find(source: Source) -> Any:
            kind, place = source
            return place if kind == "value" else given[kind][place]

        return [find(source) for source in self._args], {name: find(source) for name, source in self._kwargs.items()}


def find_units(script: Script) -> None:
    """Note the units of a plan at the events with which they begin."""
    events = script.events
    for at in range(len(events) - 3):
        enter, call, left, end = events[at : at + 4]
        if enter.is_layer and enter.unit is None:
            enter.unit = _unit(enter, call, left, end)


def _unit(enter: Event, call: Event, left: Event, end: Event) -> Unit | None:
    if (
        (call.kind, left.kind, end.kind) != (ENTER, LEAVE, LEAVE)
        or (left.id, end.id) != (call.id, enter.id)
        or enter.id < 0
        or call.id < 0
        or call.sort is not Kind.API
        or not enter.phase is call.phase is Phase.FORWARD
        or call.precision is not enter.precision
        or enter.names
        or left.after
        or end.after
        or not call.place
        or not (left.only and end.only)
        or end.output[0][1].is_new
        or left.output[0][1].number != end.output[0][1].number
        or len({event.thread for event in (enter, call, left, end)}) > 1
    ):
        return None
    sources: dict[int, Source] = {
        content.number: ("args", place) for place, (kind, content) in enumerate(enter.args) if kind == TENSOR
    }
    for kind, (names, sights) in (("parameters", enter.parameters), ("buffers", enter.buffers)):
        sources |= {sight.number: (kind, name) for name, sight in zip(names, sights, strict=True) if sight is not None}
    args = [_source(item, sources) for item in call.args]
    kwargs = {name: _source(item, sources) for name, item in zip(call.names, call.kwargs, strict=True)}
    found = [source for source in args if source is not None]
    named = {name: source for name, source in kwargs.items() if source is not None}
    complete = len(found) == len(args) and len(named) == len(kwargs)
    return Unit(call, left, end, found, named) if complete else None


def _source(item: Item, sources: Mapping[int, Source]) -> Source | None:
    kind, content = item
    if kind == TENSOR:
        return None if content.is_new else sources.get(content.number)
    if kind == VALUE:
        return "value", content
    return ("value", content[0](content[1])) if kind == NUMBERS else None
