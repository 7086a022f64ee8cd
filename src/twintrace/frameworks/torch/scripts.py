"""The plan of a step: its events in order, each with the facts that a later step has to repeat.

    Script(events, specs, …)    the events of a step, ready to be followed (`plans.Follower`)
    Event                       a call that begins or ends, a gradient, memory that is forgotten
    Sight                       a tensor at its place: the number of its value, whether that is new, a guard
    Spec                        facts that a tensor must have; one object for each combination

A guard tells whether another tensor is like the one it was made of. It is torch's own, in one call: class, element type, shape,
strides, device, gradient wanted, and whether it is conjugated, negated, sparse or wrapped (these are among its dispatch keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ...model.records import Role
from ...model.sites import Kind, Phase
from . import tensors as looking
from .gradients import Hooked

ENTER, LEAVE, GRADIENT, FORGET = range(4)
TENSOR, VALUE, NUMBERS, ITEMS, ENTRIES, TOLD = range(6)
"""Kinds of places in a template: a tensor, a plain value, numbers in a row, a list or tuple, a dict, a value to be told anew."""
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
Key = tuple[int, Role, str]
"""Owner of a gradient: the call (-1: none), the role, the slot."""
Slots = tuple[tuple[bool, int, Key], ...]
"""Gradients that one hook tells of: was it sent (else received), its position, its owner."""
Place = tuple[tuple[CodeType, int], ...]
ANYWHERE = -2
TENSORS_IN_MARK = 2
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
        """A `layers.Unit`, if such a layer makes one call."""
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
            (
                at,
                events[at - 1].mark[TENSORS_IN_MARK],
                [opened[event.id].sights()[place].number for place in event.mutated],
            )
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
