"""The draft of a plan: a step that is recorded in full, as a list of events that later steps are held against.

    draft = Draft(…)          while a step is recorded in full
    draft.entered(call, …)    function or module, phase, place in the source, precision, settings, tensors, plain values
    draft.left(call, …)       structure of the result, tensors, plain values
    draft.hooked(…)           nodes of the graph at which its gradients are read
    draft.gradient(key, …)    whose it is, tensor
    draft.finish(…)           a `Script`, which `plans.Follower` follows

A tensor is noted as a `Sight`: the number that the recorder has given to its value, whether it was new, and a guard.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..protocol import ModuleView, Open
from . import tensors as looking
from .gradients import Hooked
from .precision import precision
from .scripts import (
    ANYWHERE,
    ENTER,
    ENTRIES,
    EQUAL,
    FIXED,
    FORGET,
    GRADIENT,
    ITEMS,
    LEAVE,
    NUMBERS,
    TENSOR,
    TENSORS_IN_MARK,
    TOLD,
    VALUE,
    Departed,
    Event,
    Item,
    Key,
    Place,
    Script,
    Settings,
    Sight,
    Spec,
)  # fmt: skip

_PLAIN = (Tensor, nn.Parameter)
_MAX_FRAMES = 400
MAX_THREADS = 8
ANCHORS: set[CodeType] = set()
"""Code of the recorder's frames in which modules run: what lies below one was compared when the module was entered."""
HANDLERS: set[CodeType] = set()
"""Code of the recorder's own frames in which calls arrive. They may stand at another place in a step that follows a plan."""
_PLUMBING = {
    getattr(nn.Module, name).__code__ for name in ("_call_impl", "_wrapped_call_impl") if hasattr(nn.Module, name)
}
"""Code of torch's own frames between a module's `forward` and what has called it."""


def _place_of(frame: FrameType | None) -> Place:
    """Place of a call in the source: frames up to the module around it, or to the bottom."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code = frame.f_code
        if code in ANCHORS:
            break
        found.append((code, ANYWHERE if code in HANDLERS else frame.f_lasti))
        frame = frame.f_back
    if frame is not None and frame.f_code in ANCHORS:
        while found and found[-1][0] in _PLUMBING:  # the same whatever is called
            found.pop()
    return tuple(found)


def caller() -> FrameType | None:
    """The frame in which the present call was made: the first that is not the recorder's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in HANDLERS:
        frame = frame.f_back
    while frame is not None and frame.f_code in HANDLERS:
        frame = frame.f_back
    return frame


def draft_of(planner: Any) -> Draft | None:
    """The draft that is being made, where a plan of the present step is wanted."""
    return None if planner is None else planner.draft


class Notebook(Protocol):
    """Questions of a draft to the sink."""

    def mark(self) -> tuple[int, ...]:
        """Position in the journal: lines, calls, tensors, stacks, configurations."""

    def take(self) -> list[int]:
        """Numbers of the tensors that were observed since the last time, in order."""


class Draft:
    """Writes down the events of a step that is recorded in full."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self.events: list[Event] = []
        self.spoiled = ""
        """Why there will be no plan."""
        self._specs: dict[Any, Spec] = {}
        self._kinds: list[Spec] = []  # by number
        self._threads: dict[int, int] = {}
        self._open: list[int] = []  # calls that were entered

    @property
    def open_calls(self) -> list[int]:
        """Calls that were entered and have not ended."""
        return self._open

    def spoil(self, why: str) -> None:
        """There will be no plan of this step."""
        self.spoiled = self.spoiled or why

    def entered(
        self,
        call: Open,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        mutates: Sequence[str] = (),
        view: ModuleView | None = None,
        module: nn.Module | None = None,
        depth: int,
        pushed: tuple[str, int | None] | None = None,
        is_layer: bool = False,
    ) -> None:
        """A call was reported, and the sink has taken it; `depth` modules are around it."""
        if self.spoiled:
            return
        event = Event(ENTER)
        event.sort, event.name, event.phase, event.mutates = call.kind, call.name, call.phase, mutates
        event.id, event.depth, event.pushed, event.is_layer = call.id, depth, pushed, is_layer
        event.place = _place_of(caller())
        self._open.append(call.id)
        numbers = self._notebook.take()
        try:
            if call.id >= 0:
                event.text, event.precision = call.state.text, precision()
                found: list[Tensor] = []
                if view is not None and module is not None:
                    event.type, event.state, event.settings = view.type, view.state(), Settings(vars(module))
                    own = [*module._parameters.values(), *module._buffers.values()]
                    found += [tensor for tensor in own if tensor is not None]
                items = [_item(value, found) for value in (*args, *kwargs.values())]
                event.args, event.kwargs, event.names = items[: len(args)], items[len(args) :], tuple(kwargs)
                if view is not None and len(numbers) > len(found):  # its configuration was told as well
                    numbers = self._configured(event, view, numbers, len(numbers) - len(found))
                sights = self._sights(found, numbers)
                for sight in sights:
                    sight.is_given = True
                if view is not None and module is not None:
                    rest = iter(sights)
                    of_own = [None if tensor is None else next(rest) for tensor in own]
                    event.parameters = tuple(module._parameters), of_own[: len(module._parameters)]
                    event.buffers = tuple(module._buffers), of_own[len(module._parameters) :]
                    sights = list(rest)
                _fill(event.args, _fill(event.kwargs, sights, len(_tensors_in(event.args))), 0)
        except Departed as error:
            self.spoil(str(error))
        self._add(event)

    def _configured(self, event: Event, view: ModuleView, numbers: list[int], count: int) -> list[int]:
        """Note the tensors that a module has among its settings: lists of parameters, of DDP for one. The other numbers."""
        for name, value in view.configuration().items():
            found: list[Tensor] = []
            items = [_item(value, found)]
            if found:
                sights = self._sights(found, numbers[: len(found)])
                for sight in sights:
                    sight.is_given = True
                _fill(items, sights, 0)
                event.kept.append((name, items))
                numbers, count = numbers[len(found) :], count - len(found)
        if count:
            raise Departed("a tensor is where a plan does not look")
        return numbers

    def left(self, call: Open, output: Any, after: Sequence[tuple[int, Tensor]], mutated: Sequence[int]) -> None:
        """A call has ended. `after`: arguments that were written to and are told of once more, by their place among the tensors."""
        if self.spoiled:
            return
        if not self._open or self._open.pop() != call.id:
            self.spoil("calls are not nested")
            return
        event = Event(LEAVE)
        event.id, event.mutated = call.id, list(mutated)
        numbers = self._notebook.take()
        try:
            if call.id >= 0:
                found: list[Tensor] = []
                event.output = [_item(output, found)]
                event.only = event.output[0][0] == TENSOR
                results = len(found)
                found += [tensor for _, tensor in after]
                sights = self._sights(found, numbers)
                _fill(event.output, sights, 0)
                event.after = [(place, sight) for (place, _), sight in zip(after, sights[results:], strict=True)]
                event.text = call.state.written[len(call.state.text) :]
        except Departed as error:
            self.spoil(str(error))
        self._add(event)

    def hooked(self, hooked: Hooked | None) -> None:
        """Nodes at which the gradients of the call that has just ended are read."""
        if not self.spoiled:
            self.events[-1].hooked = hooked

    def gradient(self, key: Key, tensor: Tensor) -> None:
        """A gradient was recorded."""
        if self.spoiled:
            return
        event = Event(GRADIENT)
        event.key = key
        try:
            (event.sight,) = self._sights([tensor], self._notebook.take())
        except (Departed, ValueError) as error:
            self.spoil(str(error))
        self._add(event)

    def forgot(self, tensors: Sequence[Tensor]) -> None:
        """Tensors were said to have been written to."""
        if not self.spoiled:
            event = Event(FORGET)
            event.depth = len(tensors)
            self._add(event)

    def _add(self, event: Event) -> None:
        event.thread = self._threads.setdefault(get_ident(), len(self._threads))
        event.mark = self._notebook.mark()
        self.events.append(event)

    def _sights(self, tensors: Sequence[Tensor], numbers: Sequence[int]) -> list[Sight]:
        if len(tensors) != len(numbers):
            raise Departed("a tensor is where a plan does not look")
        found = []
        for tensor, number in zip(tensors, numbers, strict=True):
            if type(tensor) not in _PLAIN or looking._is_transformed(tensor) or tensor.layout is not torch.strided:
                raise Departed("a tensor of an unusual kind")
            facts = looking._plan(tensor)
            if not facts.is_usual or tensor.is_inference() or tensor.is_neg() or (facts.turns and tensor.is_conj()):
                raise Departed("a tensor of an unusual kind")
            spec = self._specs.get(facts)
            if spec is None:
                spec = self._specs[facts] = Spec(tensor, facts)
            is_new = number == len(self._kinds)
            if is_new:
                self._kinds.append(spec)
            elif number > len(self._kinds):
                raise Departed("a tensor was observed apart from the calls")
            found.append(Sight(number, spec, is_new, spec.guard(tensor)))
        return found

    def finish(self, shared: Mapping[int, int]) -> Script | None:
        """The plan's list of events, once the step has ended; `shared`: numbers that are said to have the values of others."""
        devices = {spec.device for spec in self._kinds if spec.elsewhere}
        if len(self._threads) > MAX_THREADS:
            self.spoil("calls come from many threads")
        if self.spoiled or self._open or len(devices) != 1 or not self.events:
            self.spoil(
                "there is nothing to be followed" if len(devices) < 2 else "there are tensors on several devices"
            )
            return None
        return Script(self.events, self._kinds, dict(shared), devices.pop())

    @classmethod
    def going_on(cls, notebook: Notebook, follower: Any) -> Draft:
        """The draft of a step that was followed so far, and is recorded in full from here on."""
        draft = cls(notebook)
        draft.events = follower.events[: follower.at]
        tensors = draft.events[-1].mark[TENSORS_IN_MARK] if draft.events else 0
        draft._kinds = follower.script.specs[:tensors]
        draft._specs = {spec.facts: spec for spec in draft._kinds}
        draft._threads = {thread: i for i, thread in enumerate(follower.threads) if thread is not None}
        for event in draft.events:
            if event.kind == ENTER:
                draft._open.append(event.id)
            elif event.kind == LEAVE:
                draft._open.pop()
        return draft


def _item(value: Any, found: list[Tensor]) -> Item:
    """A place of a template; tensors go to `found`, in the order in which a recorder meets them."""
    kind = type(value)
    if kind in _PLAIN:
        found.append(value)
        return TENSOR, None
    if isinstance(value, Tensor):
        raise Departed("a tensor of an unusual kind")
    if kind in FIXED or kind is float or kind in EQUAL:
        return VALUE, value
    if isinstance(value, tuple | list):
        if not value or all(type(item) is int for item in value):
            return NUMBERS, (kind, value if isinstance(value, tuple) else list(value), [int] * len(value))
        return ITEMS, (kind, [_item(item, found) for item in value])
    if kind is dict:
        return ENTRIES, (tuple(value), [_item(item, found) for item in value.values()])
    if kind is slice and all(part is None or type(part) is int for part in (value.start, value.stop, value.step)):
        return VALUE, value
    return TOLD, None


def _tensors_in(items: Sequence[Item]) -> list[int]:
    found: list[int] = []
    for kind, content in items:
        if kind == TENSOR:
            found.append(1)
        elif kind in (ITEMS, ENTRIES):
            found += _tensors_in(content[1])
    return found


def _fill(items: list[Item], sights: Any, start: int) -> Any:
    """Put the sights into a template, from the one at `start` on; gives them back."""
    rest = iter(sights[start:])

    def fill(places: list[Item]) -> None:
        for position, (kind, content) in enumerate(places):
            if kind == TENSOR:
                places[position] = TENSOR, next(rest)
            elif kind in (ITEMS, ENTRIES):
                fill(content[1])

    fill(items)
    return sights
