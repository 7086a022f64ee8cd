"""Follow the plan of a step: check that a step repeats one that was recorded in full, and hand its new values over.

    draft = Draft(…)          while a step is recorded in full: a list of events, each with all that later steps are held against
    follower = Follower(…)    a later step: each event is compared with the next of the list; new tensors go to the device's reader

    event       compared                                                               handed over
    enter       function or module, phase, place in the source, precision, settings,   tensors that are new
                tensors
    leave       structure of the result, tensors, plain values; nodes of the graph     results
    gradient    whose it is, tensor                                                    the gradient, if it is new

"The same tensor" means what it means to a recorder that knows no plan: the same storage (held weakly, so that its identity is
not given away), address, shape, strides, type and version. A tensor that the plan says is new must not be known, and one that
it says is known must be the one of that number. So a step that was followed to its end has the lines of its plan, with other
numbers for its values. Plain values that differ (a learning rate) are told, and their line is made anew. At the first thing
else that differs the follower gives up: what was followed so far is written out, and the step goes on as if there had been no
plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn

from ...model.records import Role
from ...model.sites import Kind, Phase
from ..protocol import ModuleView, Open
from . import tensors as looking
from .gradients import Gradients, Hooked, unseen
from .precision import precision

ENTER, LEAVE, GRADIENT, FORGET = range(4)
_TENSOR, _VALUE, _NUMBERS, _ITEMS, _ENTRIES, _TOLD = range(6)
"""Kinds of places in a template: a tensor, a plain value, numbers in a row, a list or tuple, a dict, a value to be told anew."""
_PLAIN = (Tensor, nn.Parameter)
_FIXED = (
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
_EQUAL = (bool, int, str, torch.device)
_MAX_FRAMES = 400
_MAX_THREADS = 8

Key = tuple[int, Role, str]
"""Owner of a gradient: the call (-1: none), the role, the slot."""
Place = tuple[tuple[CodeType, int], ...]
ANCHORS: set[CodeType] = set()
"""Code of the recorder's frames in which modules run: what lies below one was compared when the module was entered."""
HANDLERS: set[CodeType] = set()
"""Code of the recorder's own frames in which calls arrive. They may stand at another place in a step that follows a plan."""
_PLUMBING = {
    getattr(nn.Module, name).__code__ for name in ("_call_impl", "_wrapped_call_impl") if hasattr(nn.Module, name)
}
"""Code of torch's own frames between a module's `forward` and what has called it."""
_ANYWHERE = -2
_TENSORS = 2
"""Position of the number of tensors in a mark."""


class Departed(Exception):
    """The step is not the planned one any more."""


class Spec:
    """Facts that a tensor must have; one object for each combination."""

    __slots__ = ("device", "dtype", "elsewhere", "facts", "grad", "number", "shape", "span", "stride", "turns")

    def __init__(self, tensor: Tensor, facts: Any) -> None:
        self.number = id(facts)  # the same in all plans
        self.dtype, self.shape, self.stride = tensor.dtype, tensor.shape, tensor.stride()
        self.device, self.grad = tensor.device, tensor.requires_grad
        self.facts, self.turns, self.elsewhere, self.span = facts, facts.turns, facts.look.elsewhere, facts.span


class Sight:
    """A tensor at its place: the number that it has, and whether it is seen for the first time."""

    __slots__ = ("is_given", "is_new", "number", "spec")

    def __init__(self, number: int, spec: Spec, is_new: bool) -> None:
        self.number, self.spec, self.is_new = number, spec, is_new
        self.is_given = False
        """Is it an argument, of which nothing is known if it is new?"""


Item = tuple[int, Any]


class Event:
    """One thing that happened in a step that was recorded in full."""

    __slots__ = (
        "after", "args", "buffers", "depth", "hooked", "id", "key", "kind", "kwargs", "mark", "mutated", "mutates", "name",
        "names", "output", "parameters", "phase", "place", "posts", "precision", "pres", "pushed", "sight", "sort", "state",
        "text", "thread", "type", "whole",
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
        self.names: tuple[str, ...] = ()
        self.kwargs: list[Item] = []
        self.parameters: tuple[tuple[str, ...], list[Sight]] = (), []
        self.buffers: tuple[tuple[str, ...], list[Sight]] = (), []
        self.output: list[Item] = []
        self.after: list[tuple[int, Sight]] = []
        self.sight: Sight | None = None
        self.state: Any = None
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

    @property
    def is_enter(self) -> bool:
        """Does a call begin?"""
        return self.kind == ENTER

    def sights(self) -> list[Sight]:
        """The tensors among the arguments, or the results, in order."""
        return [*_sights(self.args), *_sights(self.kwargs), *_sights(self.output)]

    def signature(self) -> Any:
        """Equal for events that cannot be told apart by what is compared."""
        sights = [*self.parameters[1], *self.buffers[1], *self.sights()]
        sights += [sight for _, sight in self.after] + ([self.sight] if self.sight else [])
        return (
            self.kind, self.id, self.key, self.name, self.type, self.text, self.phase, self.thread, self.depth, self.place,
            self.state, self.mark, [(sight.number, sight.is_new, id(sight.spec.facts)) for sight in sights],
        )  # fmt: skip


def _sights(items: Sequence[Item]) -> list[Sight]:
    found: list[Sight] = []
    for kind, content in items:
        if kind == _TENSOR:
            found.append(content)
        elif kind in (_ITEMS, _ENTRIES):
            found += _sights(content[1])
    return found


def _place_of(frame: FrameType | None) -> Place:
    """Place of a call in the source: frames up to the module around it, or to the bottom."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code = frame.f_code
        if code in ANCHORS:
            break
        found.append((code, _ANYWHERE if code in HANDLERS else frame.f_lasti))
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
        depth: int,
        pushed: tuple[str, int | None] | None = None,
    ) -> None:
        """A call was reported, and the sink has taken it; `depth` modules are around it."""
        if self.spoiled:
            return
        event = Event(ENTER)
        event.sort, event.name, event.phase, event.mutates = call.kind, call.name, call.phase, mutates
        event.id, event.depth, event.pushed = call.id, depth, pushed
        event.place = _place_of(caller())
        self._open.append(call.id)
        numbers = self._notebook.take()
        try:
            if call.id >= 0:
                event.text, event.precision = call.state.text, precision()
                found: list[Tensor] = []
                if view is not None:
                    event.type, event.state = view.type, view.state()
                    parameters, buffers = view.own_parameters(), view.own_buffers()
                    found += [*parameters.values(), *buffers.values()]
                items = [_item(value, found) for value in (*args, *kwargs.values())]
                event.args, event.kwargs, event.names = items[: len(args)], items[len(args) :], tuple(kwargs)
                sights = self._sights(found, numbers)
                for sight in sights:
                    sight.is_given = True
                if view is not None:
                    event.parameters = tuple(parameters), sights[: len(parameters)]
                    event.buffers = tuple(buffers), sights[len(parameters) : len(parameters) + len(buffers)]
                    sights = sights[len(parameters) + len(buffers) :]
                _fill(event.args, _fill(event.kwargs, sights, len(_tensors_in(event.args))), 0)
        except Departed as error:
            self.spoil(str(error))
        self._add(event)

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
            found.append(Sight(number, spec, is_new))
        return found

    def finish(self, shared: Mapping[int, int]) -> Script | None:
        """The plan's list of events, once the step has ended; `shared`: numbers that are said to have the values of others."""
        devices = {spec.device for spec in self._kinds if spec.elsewhere}
        if len(self._threads) > _MAX_THREADS:
            self.spoil("calls come from many threads")
        if self.spoiled or self._open or len(devices) != 1 or not self.events:
            self.spoil(
                "there is nothing to be followed" if len(devices) < 2 else "there are tensors on several devices"
            )
            return None
        return Script(self.events, self._kinds, dict(shared), devices.pop())

    @classmethod
    def going_on(cls, notebook: Notebook, follower: Follower) -> Draft:
        """The draft of a step that was followed so far, and is recorded in full from here on."""
        draft = cls(notebook)
        draft.events = follower.events[: follower.at]
        tensors = draft.events[-1].mark[_TENSORS] if draft.events else 0
        draft._kinds = follower.script.specs[:tensors]
        draft._specs = {spec.facts: spec for spec in draft._kinds}
        draft._threads = {thread: i for i, thread in enumerate(follower._threads) if thread is not None}
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
        return _TENSOR, None
    if isinstance(value, Tensor):
        raise Departed("a tensor of an unusual kind")
    if kind in _FIXED or kind is float or kind in _EQUAL:
        return _VALUE, value
    if isinstance(value, tuple | list):
        if not value or all(type(item) is int for item in value):
            return _NUMBERS, (kind, value if isinstance(value, tuple) else list(value), [int] * len(value))
        return _ITEMS, (kind, [_item(item, found) for item in value])
    if kind is dict:
        return _ENTRIES, (tuple(value), [_item(item, found) for item in value.values()])
    if kind is slice and all(part is None or type(part) is int for part in (value.start, value.stop, value.step)):
        return _VALUE, value
    return _TOLD, None


def _tensors_in(items: Sequence[Item]) -> list[int]:
    found: list[int] = []
    for kind, content in items:
        if kind == _TENSOR:
            found.append(1)
        elif kind in (_ITEMS, _ENTRIES):
            found += _tensors_in(content[1])
    return found


def _fill(items: list[Item], sights: Any, start: int) -> Any:
    """Put the sights into a template, from the one at `start` on; gives them back."""
    rest = iter(sights[start:])

    def fill(places: list[Item]) -> None:
        for position, (kind, content) in enumerate(places):
            if kind == _TENSOR:
                places[position] = _TENSOR, next(rest)
            elif kind in (_ITEMS, _ENTRIES):
                fill(content[1])

    fill(items)
    return sights


class Script:
    """The events of a step, ready to be followed."""

    def __init__(self, events: list[Event], specs: list[Spec], shared: dict[int, int], device: torch.device) -> None:
        self.events, self.specs, self.shared, self.device = events, specs, shared, device
        self.size = len(events)
        self.copied: set[int] = set()
        """Numbers of tensors that are written to before they are read in a batch: they are copied when they are seen."""
        self.lasting: dict[int, Any] = {}
        """Of these, weak references to those of the last step: buffers of modules are there before they are seen."""
        self.forms: Any = None
        """Forms in which the device reads the tensors, kept by whoever reads them."""
        self.facts = [spec.facts for spec in specs]
        self.kinds = [(facts.look.dtype, facts.whole) for facts in self.facts]
        self._signatures: list[Any] = []
        self._common: dict[Script, int] = {}

    def wire(self, report: Callable[[Key, Tensor], None]) -> None:
        """Make the hooks once: every step registers the same functions. `report` is told of each gradient."""
        for event in self.events:
            if event.hooked is None or event.pres:  # an event may belong to several plans that begin alike
                continue
            if _is_one_node(event.hooked):
                ((place, kind, slots),) = event.hooked.ends
                before = [(number, (event.id, Role.OUTPUT, slot)) for slot, number in slots]
                after = [
                    (position, (event.id, Role.INPUT, slot)) for position, slot, _ in event.hooked.layout.inner[0][2]
                ]
                event.pres.append((place, kind, None))
                event.whole = place, kind, _whole_hook(before, after, report)
                continue
            for place, kind, slots in event.hooked.ends:
                keys = [(number, (event.id, Role.OUTPUT, slot)) for slot, number in slots]
                event.pres.append((place, kind, _pre_hook(keys, report)))
            for (end, way, edges), kinds in zip(event.hooked.layout.inner, event.hooked.kinds, strict=True):
                wanted = [(position, (event.id, Role.INPUT, slot), total) for position, slot, total in edges]
                hook = None
                if all(total < 0 for _, _, total in wanted):
                    hook = _post_hook([(position, key) for position, key, _ in wanted], report)
                event.posts.append((end, way, kinds, hook or wanted))

    def copies(self, numbers: Iterable[int]) -> None:
        """These were about to be written to while they waited: from now on a copy waits in their place. A copy has the strides
        of its original where that leaves no gaps.
        """
        self.copied.update(number for number in numbers if self.facts[number].order is not None)

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


def _is_one_node(hooked: Hooked) -> bool:
    """Is the call one node of torch's own, to which nothing comes between what it receives and what it sends? Then one hook, after
    it, reads both: no node of torch's own writes to what it has received.
    """
    if len(hooked.ends) != 1 or len(hooked.layout.inner) != 1 or hooked.layout.sums:
        return False
    return not hooked.layout.inner[0][1] and not issubclass(
        hooked.ends[0][1], torch.autograd.function.BackwardCFunction
    )


def _whole_hook(
    before: list[tuple[int, Key]], after: list[tuple[int, Key]], report: Callable[[Key, Tensor], None]
) -> Any:
    def hook(sent: tuple[Tensor | None, ...], received: tuple[Tensor | None, ...]) -> None:
        with unseen():
            for number, key in before:
                gradient = received[number] if number < len(received) else None
                if gradient is not None:
                    report(key, gradient)
            for position, key in after:
                gradient = sent[position] if position < len(sent) else None
                if gradient is not None:
                    report(key, gradient)

    return hook


def _pre_hook(slots: list[tuple[int, Key]], report: Callable[[Key, Tensor], None]) -> Any:
    if len(slots) == 1 and slots[0][0] == 0:
        key = slots[0][1]

        def only(gradients: tuple[Tensor | None, ...]) -> None:
            gradient = gradients[0] if gradients else None
            if gradient is not None:
                with unseen():
                    report(key, gradient)

        return only

    def hook(gradients: tuple[Tensor | None, ...]) -> None:
        with unseen():
            for number, key in slots:
                gradient = gradients[number] if number < len(gradients) else None
                if gradient is not None:
                    report(key, gradient)

    return hook


def _post_hook(edges: list[tuple[int, Key]], report: Callable[[Key, Tensor], None]) -> Any:
    def hook(sent: tuple[Tensor | None, ...], _received: Any) -> None:
        with unseen():
            for position, key in edges:
                gradient = sent[position] if position < len(sent) else None
                if gradient is not None:
                    report(key, gradient)

    return hook


def _summing_hook(receivers: list[tuple[int, Callable[[Any], None]]]) -> Any:
    def hook(sent: tuple[Tensor | None, ...], _received: Any) -> None:
        with unseen():
            for position, receive in receivers:
                receive(sent[position] if position < len(sent) else None)

    return hook


class Desk(Protocol):
    """Questions of a follower to the sink."""

    def begin(self) -> bool:
        """The step's first event has come: its journal is begun. False: a plan cannot be followed."""

    def around(self) -> list[tuple[str, int | None]]:
        """The modules around this thread."""

    def depart(self, error: Exception | None = None) -> None:
        """Write down what was followed; the rest of the step is recorded in full. `error`: what was not expected at all."""

    def reporter(self, key: Key) -> Callable[[Any], None]:
        """Tells of one gradient."""

    def retell(self, event: Event, enter: Event, values: Any) -> None:
        """Plain values of a call are others than in the plan: make its line anew. ValueError where that cannot be."""

    def read(self, number: int, tensor: Tensor) -> Any:
        """A new tensor whose values are on the host."""

    def sample(self, tensor: Tensor) -> Any:
        """A few words of a tensor on the host: others mean other values."""


class Follower:
    """One step that is held against a plan."""

    def __init__(self, scripts: Sequence[Script], desk: Desk, digests: Any, lock: Any) -> None:
        """`scripts`: the most likely first; others that begin alike are gone over to where the first departs."""
        self.scripts, self._desk, self._digests, self._lock = list(scripts), desk, digests, lock
        self._hand_over = digests.take
        self.script = script = scripts[0]
        self.events, self.size = script.events, script.size
        self.at = 0
        # What is known of each number: plain lists of numbers, which Python's garbage collector does not walk.
        self.refs: list[Any] = []  # weak references to the tensors; None: of the host
        self.versions: list[int] = []
        self.addresses: list[int] = []
        self.storages: list[int] = []
        self.samples: dict[int, Any] = {}
        self.rows = list(range(max(len(script.specs) for script in scripts)))
        self._table: dict[tuple[int, int], int] = {}  # (address, number of the spec) to the latest number
        self.holds: dict[Any, Any] = {}
        # Of storages that were written to unseen by their version: numbers below it are void.
        self.lives: dict[Any, int] = {}
        self._met = 0  # numbers that were known before the present event
        self._told = False
        self._threads: list[int | None] = [None] * _MAX_THREADS
        self._arounds: list[Any] = [None] * _MAX_THREADS  # by thread: the modules around it
        self._shared, self._copied = script.shared, script.copied

    @property
    def is_complete(self) -> bool:
        """Has everything happened that a plan says? Another plan that ends here will do."""
        if self.at == self.size:
            return True
        for other in self.scripts:
            if other.size == self.at and other is not self.script and other.common(self.script) >= self.at:
                self._take_up(other)
                return True
        return False

    def release(self) -> None:
        """Let go of the storages."""
        release = looking.release
        for hold in self.holds.values():
            release(hold)
        self.holds = {}

    # --- events -------------------------------------------------------------------------------------------------------

    def enter(
        self,
        sort: Kind,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        phase: Phase,
        mutates: Sequence[str],
        view: ModuleView | None,
        frame: FrameType | None,
    ) -> Event | None:
        """The planned call that this is; None: it is not planned, and the step is recorded in full from here on."""
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.name != name or event.kind != ENTER or event.sort is not sort or event.phase is not phase:
                        raise Departed
                    if self._threads[event.thread] != get_ident():
                        self._thread(event)
                    below = frame
                    for code, last in event.place:
                        if below is None or below.f_code is not code or (below.f_lasti != last and last != _ANYWHERE):
                            raise Departed
                        below = below.f_back
                    if not self.at:
                        self._begin()
                    around = self._arounds[event.thread]
                    if around is None:
                        around = self._arounds[event.thread] = self._desk.around()
                    if len(around) != event.depth:
                        raise Departed
                    if event.id >= 0:
                        if event.precision is not precision() or event.mutates != mutates:
                            raise Departed
                        self._told = False
                        if view is not None:
                            self._check_view(event, view)
                        self._check(event.args, args)
                        if kwargs or event.names:
                            if kwargs is None or tuple(kwargs) != event.names:
                                raise Departed
                            self._check(event.kwargs, kwargs.values())
                        if self._told:
                            self._desk.retell(event, event, (args, kwargs or {}))
                    if event.pushed is not None:
                        around.append(event.pushed)
                    self._met = len(self.refs)
                    self.at += 1
                    return event
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return None

    def written_by(self, enter: Event, args: Sequence[Any], kwargs: Any) -> list[Tensor]:
        """The tensors that a planned call, which was just entered, writes to; all of its tensors where that is not known."""
        inputs = inputs_of(enter, args, kwargs)
        event = self.events[self.at] if self.at < self.size else enter
        return [inputs[place] for place in event.mutated] if event.kind == LEAVE and event.id == enter.id else inputs

    def leave(self, enter: Event, args: Sequence[Any], kwargs: Any, output: Any, gradients: Gradients | None) -> bool:
        """The call has ended. `gradients`: where its graph is hooked, None where gradients are off. False: not as planned."""
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.kind != LEAVE or event.id != enter.id:
                        raise Departed
                    if event.id >= 0:
                        self._check_results(event, enter, args, kwargs, output, gradients)
                    if enter.pushed is not None:
                        del self._arounds[enter.thread][enter.depth :]
                    self._met = len(self.refs)
                    self.at += 1
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    def gradient(self, key: Key, tensor: Tensor) -> bool:
        """A gradient has come. False: not as planned."""
        with self._lock:
            while True:
                try:
                    at = self.at
                    event = self.events[at]
                    if event.key != key:
                        raise Departed
                    sight: Any = event.sight
                    if sight.is_new:
                        if self._threads[event.thread] != get_ident():
                            self._thread(event)
                        self._look(sight, tensor)
                    else:
                        self._take(sight, tensor)
                    self.at = at + 1
                    self._met = len(self.refs)
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    def forget(self, tensors: Sequence[Tensor]) -> bool:
        """These were written to. False: not as planned."""
        with self._lock:
            while True:
                try:
                    event = self._next(FORGET)
                    if event.depth != len(tensors):
                        raise Departed
                    self._void(tensors)
                    self.at += 1
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    # --- comparing ----------------------------------------------------------------------------------------------------

    def _next(self, kind: int) -> Event:
        if self.at >= self.size:
            raise Departed
        event = self.events[self.at]
        if event.kind != kind:
            raise Departed
        self._thread(event)
        return event

    def _thread(self, event: Event) -> None:
        known = self._threads[event.thread]
        if known is None:
            self._threads[event.thread] = get_ident()
        elif known != get_ident():
            raise Departed

    def _begin(self) -> None:
        """The first event has come."""
        if not self._desk.begin():
            raise Departed
        found = []
        for number, known in self.script.lasting.items():
            tensor = known()
            if tensor is not None and looking._plan(tensor) is self.script.facts[number]:
                memory, address = tensor.untyped_storage(), tensor.data_ptr()
                if address + self.script.facts[number].span <= memory.data_ptr() + memory.nbytes():
                    found.append((number, tensor, memory._cdata, memory.nbytes(), address, tensor._version))
        self._digests.read_ahead(found)

    def _check_view(self, event: Event, view: ModuleView) -> None:
        if event.type != view.type or event.state != view.state():
            raise Departed
        self._check_named(event.parameters, view.own_parameters())
        self._check_named(event.buffers, view.own_buffers())

    def _check_results(
        self, event: Event, enter: Event, args: Sequence[Any], kwargs: Any, output: Any, gradients: Gradients | None
    ) -> None:
        inputs: list[Tensor] = []
        if event.mutated:
            inputs = inputs_of(enter, args, kwargs)
            self._void([inputs[place] for place in event.mutated])
        items = event.output
        self._told = False
        kind, planned = items[0]
        if kind == _TENSOR:
            self._take(planned, output)
        else:
            self._check(items, (output,))
        for place, sight in event.after:
            self._take(sight, inputs[place])
        if self._told:
            self._desk.retell(event, enter, output)
        if event.pres:
            results: list[Tensor] = []
            if kind == _TENSOR:
                results.append(output)
            else:
                _gather(items, (output,), results)
            self._hook(event, results, gradients)

    def _hook(self, event: Event, results: list[Tensor], gradients: Gradients | None) -> None:
        if gradients is None:
            raise Departed
        ends: list[Any] = []
        node: Any
        keep = gradients.nodes.keep
        if event.whole is not None:  # one node, one hook
            place, kind, hook = event.whole
            node = results[place].grad_fn
            if type(node) is not kind:
                raise Departed
            keep(node.register_hook(hook))  # type: ignore[attr-defined]
            return
        for place, kind, _ in event.pres:
            node = results[place].grad_fn
            if type(node) is not kind:
                raise Departed
            ends.append(node)
        posts: list[tuple[Any, Any]] = []
        for end, way, kinds, hook in event.posts:
            node = ends[end]
            for position, kind in zip(way, kinds, strict=True):
                node = node.next_functions[position][0]
                if type(node) is not kind:
                    raise Departed
            posts.append((node, hook))
        for node, (_, _, pre) in zip(ends, event.pres, strict=True):
            keep(node.register_prehook(pre))
        sums: dict[int, Any] = {}
        for node, hook in posts:
            if type(hook) is list:
                receivers = []
                for position, key, total in hook:
                    receive = self._desk.reporter(key)
                    if total >= 0:
                        if total not in sums:
                            edges, _ = event.hooked.layout.sums[total]  # type: ignore[union-attr]
                            sums[total] = gradients.nodes.sum_up(edges, receive)
                        receive = sums[total]
                    receivers.append((position, receive))
                hook = _summing_hook(receivers)
            keep(node.register_hook(hook))

    def _check_named(self, planned: tuple[tuple[str, ...], list[Sight]], found: Mapping[str, Any]) -> None:
        if tuple(found) != planned[0]:
            raise Departed
        for sight, tensor in zip(planned[1], found.values(), strict=True):
            self._take(sight, tensor)

    def _check(self, items: Sequence[Item], values: Any) -> None:
        if len(items) != len(values):
            raise Departed
        for (kind, planned), value in zip(items, values, strict=True):
            if kind == _TENSOR:
                if planned.is_new:
                    self._look(planned, value)
                else:
                    self._take(planned, value)
            elif kind == _VALUE:
                if value is not planned and not _is_same(planned, value):
                    self._told = True
            elif kind == _NUMBERS:
                expected, numbers, types = planned
                if type(value) is not expected or len(value) != len(types):
                    raise Departed
                if value != numbers or list(map(type, value)) != types:
                    if not all(type(number) in (int, float, bool, str) for number in value):
                        raise Departed
                    self._told = True
            elif kind == _ITEMS:
                if type(value) is not planned[0]:
                    raise Departed
                self._check(planned[1], value)
            elif kind == _ENTRIES:
                if type(value) is not dict or tuple(value) != planned[0]:
                    raise Departed
                self._check(planned[1], value.values())
            else:
                self._told = True

    def _take(self, sight: Sight, tensor: Any) -> None:
        """A tensor at its place: it is known as planned, or new as planned."""
        if not sight.is_new:
            number = sight.number
            known = self.refs[number]
            if (
                known is not None
                and known() is tensor
                and tensor._version == self.versions[number]
                and tensor.data_ptr() == self.addresses[number]
                and tensor.requires_grad is sight.spec.grad
                and (not self.lives or number >= self.lives.get(self.storages[number], 0))
            ):
                return
        self._look(sight, tensor)

    def _look(self, sight: Sight, tensor: Any) -> None:
        spec = sight.spec
        if (
            type(tensor) not in _PLAIN
            or tensor.dtype is not spec.dtype
            or tensor.shape != spec.shape
            or tensor.stride() != spec.stride
            or tensor.device != spec.device
            or tensor.requires_grad is not spec.grad
            or (sight.is_given and tensor.is_neg())  # of a result that follows from its arguments
            or (spec.turns and tensor.is_conj())
        ):
            raise Departed
        memory, address, version, number = tensor.untyped_storage(), tensor.data_ptr(), tensor._version, sight.number
        room, storage, span = memory.nbytes(), memory._cdata, spec.span
        if room < span or (not address and span) or (sight.is_given and address + span > memory.data_ptr() + room):
            raise Departed  # it was freed or cut
        key = address, spec.number
        found = self._table.get(key)
        if (
            found is not None
            and self._is_at(found, storage, address, version)
            and (spec.elsewhere or self.samples.get(found) == self._desk.sample(tensor))
        ):
            if found != number or sight.is_new:
                raise Departed
            return
        if not sight.is_new or number != len(self.refs):
            raise Departed
        if not spec.elsewhere:
            self.samples[number] = self._desk.sample(tensor)
            self._desk.read(number, tensor)
            known = None  # of a host's tensor a few words are compared as well, each time
        else:
            known = ref(tensor)
            base = self._shared.get(number)
            if base is not None and self._is_at(base, storage, address, version):
                self.rows[number] = self.rows[base]
            elif span:
                copied = number in self._copied
                if copied:
                    self.script.lasting[number] = known
                if not copied or not self._digests.is_ahead(number, storage, address, version):
                    self._hand_over(number, tensor, storage, room, address, version, copied)
        if storage not in self.holds:
            self.holds[storage] = memory._weak_ref()
        self.refs.append(known)
        self.versions.append(version)
        self.addresses.append(address)
        self.storages.append(storage)
        self._table[key] = number

    def _is_at(self, number: int, storage: int, address: int, version: int) -> bool:
        """Was the tensor of that number there, with the same values?"""
        return (
            self.storages[number] == storage
            and self.versions[number] == version
            and self.addresses[number] == address
            and (not self.lives or number >= self.lives.get(storage, 0))
        )

    def seats(self) -> dict[int, tuple[int, int]]:
        """Storage and address of each number that is known by now, and would be recognised."""
        latest = {key: number for number, key in enumerate(self._keys())}
        return {
            number: (self.storages[number], self.addresses[number])
            for number in latest.values()
            if number >= self.lives.get(self.storages[number], 0)
        }

    def _keys(self) -> Iterable[tuple[int, int]]:
        return ((address, self.script.specs[number].number) for number, address in enumerate(self.addresses))

    def _void(self, tensors: Sequence[Tensor]) -> None:
        """These were written to: nothing that is known of their memory holds any more."""
        for tensor in tensors:
            storage = tensor.untyped_storage()._cdata
            if storage in self.holds:
                self.lives[storage] = len(self.refs)

    # --- departing ----------------------------------------------------------------------------------------------------

    def _go_over(self, error: Exception) -> bool:
        """Another plan that begins alike is taken up; False where there is none, and the step departs."""
        if len(self.refs) > self._met:  # of this event
            for known in (self.refs, self.versions, self.addresses, self.storages):
                del known[self._met :]
            self._table = {key: number for number, key in enumerate(self._keys())}
            self.rows[self._met :] = range(self._met, len(self.rows))
        for other in self.scripts:
            if other is not self.script and other.size > self.at and self.script.common(other) >= self.at:
                self.scripts = [script for script in self.scripts if script is not self.script]
                self._take_up(other)
                return True
        self._desk.depart(None if isinstance(error, _NOT_AS_PLANNED) else error)
        return False

    def _take_up(self, script: Script) -> None:
        self.script, self.events, self.size = script, script.events, script.size
        self._shared, self._copied = script.shared, script.copied
        self._digests.go_over(script)


_NOT_AS_PLANNED = (Departed, RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, AttributeError)


def inputs_of(event: Event, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Tensor]:
    """The tensors among the arguments of a planned call, in order."""
    found: list[Tensor] = []
    _gather(event.args, args, found)
    if kwargs:
        _gather(event.kwargs, kwargs.values(), found)
    return found


def _gather(items: Sequence[Item], values: Any, found: list[Tensor]) -> None:
    for (kind, planned), value in zip(items, values, strict=True):
        if kind == _TENSOR:
            found.append(value)
        elif kind == _ITEMS:
            _gather(planned[1], value, found)
        elif kind == _ENTRIES:
            _gather(planned[1], value.values(), found)


def _is_same(planned: Any, value: Any) -> bool:
    """Do two plain values say the same? Departed where the other is no plain value."""
    kind = type(value)
    if kind is type(planned):
        if kind is float:
            return bool(value == planned and (value != 0.0 or repr(value) == repr(planned)))
        if kind in _EQUAL or kind is slice:
            return bool(value == planned)
    if kind in _FIXED or kind is float or kind in _EQUAL or kind is slice:
        return False
    raise Departed
