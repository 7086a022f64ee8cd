"""The draft of a plan: a step that is recorded in full, as a list of events that later steps are held against.

    draft = Draft(…)          while a step is recorded in full
    draft.entered(call, …)    function or module, phase, place in the source, precision, settings, tensors, plain values
    draft.left(call, …)       structure of the result, tensors, plain values
    draft.hooked(…)           nodes of the graph at which its gradients are read
    draft.gradient(key, …)    whose it is, tensor
    draft.finish(…)           a `Script`, which `plans.Follower` follows

A tensor is noted as a `Sight`: the number that the recorder has given to its value, whether it was new, and a guard that tells
whether another tensor is like it. The guard is torch's own, in one call: class, element type, shape, strides, device, gradient
wanted, and whether it is conjugated, negated, sparse or wrapped (all of which are among its dispatch keys).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...model.records import Role
from ...model.sites import Kind, Phase
from ..protocol import ModuleView, Open
from . import tensors as looking
from .gradients import Hooked
from .precision import precision

ENTER, LEAVE, GRADIENT, FORGET = range(4)
TENSOR, VALUE, NUMBERS, ITEMS, ENTRIES, TOLD = range(6)
"""Kinds of places in a template: a tensor, a plain value, numbers in a row, a list or tuple, a dict, a value to be told anew."""
_PLAIN = (Tensor, nn.Parameter)
FIXED = (
    torch.dtype,
    torch.layout,
    torch.memory_format,
    type(None),
    type(Ellipsis),
    type(print),
    type(lambda: None),
    type,
)
"""Values of these types say the same for ever if they are the same object."""
SCALARS = (bool, int, float, str, tuple, type(None))
"""Types of the attributes of a module that its configuration is made of."""
EQUAL = (bool, int, str, torch.device)
_MAX_FRAMES = 400
MAX_THREADS = 8

Key = tuple[int, Role, str]
"""Owner of a gradient: the call (-1: none), the role, the slot."""
Slots = tuple[tuple[bool, int, Key], ...]
"""Gradients that one hook tells of: was it sent (else received), its position, its owner."""
Place = tuple[tuple[CodeType, int], ...]
ANCHORS: set[CodeType] = set()
"""Code of the recorder's frames in which modules run: what lies below one was compared when the module was entered."""
HANDLERS: set[CodeType] = set()
"""Code of the recorder's own frames in which calls arrive. They may stand at another place in a step that follows a plan."""
_PLUMBING = {
    getattr(nn.Module, name).__code__ for name in ("_call_impl", "_wrapped_call_impl") if hasattr(nn.Module, name)
}
"""Code of torch's own frames between a module's `forward` and what has called it."""
ANYWHERE = -2
_TENSORS = 2
"""Position of the number of tensors in a mark."""


@cache
def parameter_slots(name: str) -> Slots:
    """The slots of the hook of a parameter; always the same object."""
    return ((False, 0, (-1, Role.PARAMETER, name)),)


class Departed(Exception):
    """The step is not the planned one any more."""


Guard = Callable[[Any], bool]
"""Says of a value whether it is a tensor like the one that it was made of."""


def guard_of(tensor: Tensor) -> Guard:
    """A guard, made where it will be asked: torch's looks at the dispatch keys that are on in this thread, of autocast for one."""
    if _TensorGuards is not None:
        size, stride = list(tensor.shape), list(tensor.stride())
        check: Guard = _TensorGuards(tensor, dynamic_dims_sizes=[size], dynamic_dims_strides=[stride]).check
        return check
    kind, dtype, shape, steps = type(tensor), tensor.dtype, tensor.shape, tensor.stride()
    device, grad = tensor.device, tensor.requires_grad

    def is_alike(value: Any) -> bool:
        return (
            type(value) is kind
            and value.dtype is dtype
            and value.shape == shape
            and value.layout is torch.strided
            and value.stride() == steps
            and value.device == device
            and value.requires_grad is grad
            and not (value.is_neg() or value.is_conj() or value.is_inference() or looking._is_transformed(value))
        )

    return is_alike


_TensorGuards: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)


class Spec:
    """Facts that a tensor must have; one object for each combination."""

    __slots__ = ("device", "elsewhere", "facts", "grad", "guards", "number", "span")

    def __init__(self, tensor: Tensor, facts: Any) -> None:
        self.number = id(facts)  # the same in all plans
        self.device, self.grad = tensor.device, tensor.requires_grad
        self.facts, self.elsewhere, self.span = facts, facts.look.elsewhere, facts.span
        self.guards: list[Guard] = []

    def guard(self, tensor: Tensor) -> Guard:
        """A guard that lets this tensor pass, here."""
        for known in self.guards:
            if known(tensor):
                return known
        self.guards.append(guard_of(tensor))
        return self.guards[-1]


class Sight:
    """A tensor at its place: the number that it has, and whether it is seen for the first time."""

    __slots__ = ("grad", "is_alike", "is_given", "is_new", "number", "spec")

    def __init__(self, number: int, spec: Spec, is_new: bool, is_alike: Guard) -> None:
        self.number, self.spec, self.is_new, self.is_alike = number, spec, is_new, is_alike
        self.grad = spec.grad
        self.is_given = False
        """Is it an argument, of which nothing is known if it is new?"""


Item = tuple[int, Any]


class Settings:
    """Plain attributes of a module, as they were: those that its configuration in the trace is made of."""

    __slots__ = ("_get", "_kinds", "_values")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._kinds = tuple(map(type, attributes.values()))
        names = [name for name, value in attributes.items() if type(value) in SCALARS]
        self._get: Callable[[Any], Any] = itemgetter(*names) if names else lambda _: None
        self._values = self._get(attributes)

    def are_those_of(self, attributes: Mapping[str, Any]) -> bool:
        """Are they still the same?"""
        return tuple(map(type, attributes.values())) == self._kinds and bool(self._get(attributes) == self._values)


class Event:
    """One thing that happened in a step that was recorded in full."""

    __slots__ = (
        "after", "args", "buffers", "check", "depth", "hooked", "id", "is_layer", "kept", "key", "kind", "kwargs", "mark",
        "mutated", "mutates", "name", "names", "only", "output", "parameters", "phase", "place", "posts", "precision",
        "pres", "pushed", "run", "settings", "sight", "slots", "sort", "state", "text", "thread", "type", "unit", "whole",
        "written",
    )  # fmt: skip

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.id = -1
        self.key: Key | None = None
        self.name, self.type, self.text = "", "", ""
        self.sort: Kind | None = None
        self.phase: Phase | None = None
        self.mutates: Sequence[str] = ()
        self.mutated: list[int] = []
        self.args: list[Item] = []
        self.check: Any = None
        """Compares what has come with the event (`checks.py`)."""
        self.names: tuple[str, ...] = ()
        self.kept: list[tuple[str, list[Item]]] = []
        """Attributes of a module that are told of with its configuration and have tensors, by name."""
        self.kwargs: list[Item] = []
        self.parameters: tuple[tuple[str, ...], list[Sight | None]] = (), []
        self.buffers: tuple[tuple[str, ...], list[Sight | None]] = (), []
        self.output: list[Item] = []
        self.only = False
        """Is the result one tensor?"""
        self.after: list[tuple[int, Sight]] = []
        self.written: tuple[int, ...] | None = None
        """Places of the arguments that a call writes to, where each of its tensors is an argument by itself."""
        self.sight: Sight | None = None
        self.state: Any = None
        self.settings: Settings | None = None
        self.precision: Any = None
        self.place: Place = ()
        self.thread = 0
        self.depth = -1
        self.pushed: tuple[str, int | None] | None = None
        self.hooked: Hooked | None = None
        self.pres: list[tuple[int, type, Any]] = []
        self.posts: list[tuple[int, tuple[int, ...], list[type], Any]] = []
        self.whole: tuple[int, type, Any] | None = None
        """The one hook of a call that is one node: the result that has it, its class, the hook."""
        self.mark: tuple[int, ...] = ()
        self.is_layer = False
        """Is it a call of one of torch's own layers (`layers.py`)?"""
        self.unit: Any = None
        """Where such a layer makes one call: a `layers.Unit`."""
        self.slots: list[Slots] = []
        """Of the hooks on the graph of a call."""
        self.run: tuple[Any, int, Event, Any] | None = None
        """Of the first gradient that a hook tells of: the hook's slots, how many events they are, the last, a check of all."""

    @property
    def is_enter(self) -> bool:
        """Does a call begin?"""
        return self.kind == ENTER

    @property
    def is_flat(self) -> bool:
        """Is each tensor among the arguments an argument by itself?"""
        return not self.names and not any(kind in (ITEMS, ENTRIES) for kind, _ in self.args)

    def sights(self) -> list[Sight]:
        """The tensors among the arguments, or the results, in order."""
        return [*sights_of(self.args), *sights_of(self.kwargs), *sights_of(self.output)]

    def own_sights(self) -> list[Sight]:
        """The same with those that a module has."""
        own = (*sights_of([item for _, items in self.kept for item in items]), *self.parameters[1], *self.buffers[1])
        return [*(sight for sight in own if sight is not None), *self.sights()]

    def later_sights(self) -> list[Sight]:
        """Arguments that a call has written to, as they are afterwards; the gradient."""
        return [sight for _, sight in self.after] + ([self.sight] if self.sight else [])

    def signature(self) -> Any:
        """Equal for events that cannot be told apart by what is compared."""
        sights = [*self.own_sights(), *self.later_sights()]
        return (
            self.kind, self.id, self.key, self.name, self.type, self.text, self.phase, self.thread, self.depth, self.place,
            self.state, self.mark, [(sight.number, sight.is_new, id(sight.spec.facts)) for sight in sights],
        )  # fmt: skip


def sights_of(items: Sequence[Item]) -> list[Sight]:
    """The tensors in a template, in order."""
    found: list[Sight] = []
    for kind, content in items:
        if kind == TENSOR:
            found.append(content)
        elif kind in (ITEMS, ENTRIES):
            found += sights_of(content[1])
    return found


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
        tensors = draft.events[-1].mark[_TENSORS] if draft.events else 0
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


class Script:
    """The events of a step, ready to be followed."""

    def __init__(self, events: list[Event], specs: list[Spec], shared: dict[int, int], device: torch.device) -> None:
        self.events, self.specs, self.shared, self.device = events, specs, shared, device
        self.size = len(events)
        opened: dict[int, Event] = {}
        for event in events:
            if event.kind == ENTER:
                opened[event.id] = event
            elif event.kind == LEAVE and (enter := opened[event.id]).is_flat:
                places = [place for place, (kind, _) in enumerate(enter.args) if kind == TENSOR]
                enter.written = tuple(places[number] for number in event.mutated)
        self.voids = [
            (at, events[at - 1].mark[_TENSORS], [opened[event.id].sights()[place].number for place in event.mutated])
            for at, event in enumerate(events)
            if event.mutated
        ]
        """Of each call that writes to its arguments: place of its end, numbers known by then, numbers of what it writes to."""
        self.spans = [spec.span for spec in specs]
        self.rooms = list(self.spans)
        """Bytes of the storage of each tensor, as far as they are known from an earlier step."""
        given = {
            sight.number for event in events if event.kind == ENTER for sight in event.own_sights() if sight.is_new
        }
        self.is_given = [number in given for number in range(len(specs))]
        """Is it an argument, of which nothing was known when it was seen first?"""
        sights = [sight for event in events for sight in (*event.own_sights(), *event.later_sights())]
        self.again = {sight.number for sight in sights if not sight.is_new}
        """Numbers of tensors that are seen more than once."""
        self.plain = {
            n for n, spec in enumerate(specs) if spec.elsewhere and spec.span and n not in given and n not in shared
        }
        """Numbers of results and gradients that are read as they are."""
        self.copied: set[int] = set()
        """Numbers of tensors that are written to before they are read in a batch: they are copied when they are seen."""
        self.lasting: dict[int, Any] = {}
        """Of arguments, weak references to the tensors of the last step: weights and buffers are there before they are seen."""
        self.steady: set[int] = set()
        """Of these, those that were at the beginning of a step what they were when they were seen: they are read ahead."""
        self.fickle: set[int] = set()
        """Of arguments, those that were others, or had other values."""
        self.forms: Any = None
        """Forms in which the device reads the tensors, kept by whoever reads them."""
        self.facts = [spec.facts for spec in specs]
        self.kinds = [(facts.look.dtype, facts.whole) for facts in self.facts]
        self._signatures: list[Any] = []
        self._common: dict[Script, int] = {}

    def copies(self, numbers: Iterable[int]) -> None:
        """These were about to be written to while they waited: from now on a copy waits in their place. A copy has the strides
        of its original where that leaves no gaps.
        """
        self.copied.update(number for number in numbers if self.facts[number].order is not None)

    def gives_up(self, number: int) -> None:
        """This argument is another in each step, or is written to before it is seen: it is not read ahead."""
        self.lasting.pop(number, None)
        self.steady.discard(number)
        self.fickle.add(number)

    def signatures(self) -> list[Any]:
        """Of each event; made when a second plan is there to be compared with."""
        if not self._signatures:
            self._signatures = [event.signature() for event in self.events]
        return self._signatures

    def common(self, other: Script) -> int:
        """Number of events at the beginning that are the same in both."""
        count = self._common.get(other)
        if count is None:
            mine, theirs = self.signatures(), other.signatures()
            count = 0
            for left, right in zip(mine, theirs, strict=False):
                if left != right:
                    break
                count += 1
            self._common[other] = other._common[self] = count
        return count
