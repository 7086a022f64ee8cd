"""Follow the plan of a step: check that a step repeats one that was recorded in full, and hand its new values over.

    draft = Draft(…)          while a step is recorded in full (`drafts.py`)
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

All of this is paid for in every step, on a host that the device waits for. So a tensor is asked as little as possible: torch's own
guard looks at all that does not change (`drafts.guard_of`), and arguments that were there when the step began, and are what they
were then, are read at its beginning, in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from types import FrameType
from typing import Any, Protocol
from weakref import ref

from torch import Tensor, nn

from ...model.sites import Kind, Phase
from ..protocol import ModuleView
from . import tensors as looking
from .drafts import (
    ANCHORS,
    ANYWHERE,
    ENTER,
    ENTRIES,
    EQUAL,
    FIXED,
    FORGET,
    HANDLERS,
    ITEMS,
    LEAVE,
    MAX_THREADS,
    NUMBERS,
    TENSOR,
    VALUE,
    Departed,
    Draft,
    Event,
    Item,
    Key,
    Script,
    Sight,
    caller,
    draft_of,
    sights_of,
)
from .gradients import Gradients
from .precision import precision
from .wiring import Slots, hook_up, wire

__all__ = ["ANCHORS", "HANDLERS", "Draft", "Follower", "caller", "draft_of", "wire"]


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
        most = max(len(script.specs) for script in scripts)
        self.refs: list[Any] = [None] * most  # weak references to the tensors; None: of the host
        self.versions, self.addresses, self.storages = [0] * most, [0] * most, [0] * most
        self.samples: dict[int, Any] = {}
        self.rows = list(range(most))
        self.count = 0
        """Numbers that are known by now."""
        self._table: dict[tuple[int, int], int] = {}  # (address, number of the spec) to the latest number
        self.holds: dict[Any, Any] = {}
        # Of storages that were written to unseen by their version: numbers below it are void.
        self.lives: dict[Any, int] = {}
        self._met = 0  # numbers that were known before the present event
        self._told = False
        self.threads: list[int | None] = [None] * MAX_THREADS
        self._arounds: list[Any] = [None] * MAX_THREADS  # by thread: the modules around it
        self._shared, self._copied = script.shared, script.copied
        # By number, of arguments that were there at the beginning: version and address then.
        self._before: dict[int, tuple[int, int]] = {}

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
        module: nn.Module | None,
        frame: FrameType | None,
    ) -> Event | None:
        """The planned call that this is; None: it is not planned, and the step is recorded in full from here on."""
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.name != name or event.kind != ENTER or event.sort is not sort or event.phase is not phase:
                        raise Departed
                    if self.threads[event.thread] != get_ident():
                        self._thread(event)
                    below = frame
                    for code, last in event.place:
                        if below is None or below.f_code is not code or (below.f_lasti != last and last != ANYWHERE):
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
                        if module is not None:
                            self._check_module(event, view, module)
                        self._check_arguments(event, args)
                        if kwargs or event.names:
                            if kwargs is None or tuple(kwargs) != event.names:
                                raise Departed
                            self._check(event.kwargs, kwargs.values())
                        if self._told:
                            self._desk.retell(event, event, (args, kwargs or {}))
                    if event.pushed is not None:
                        around.append(event.pushed)
                    self._met = self.count
                    self.at += 1
                    return event
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return None

    def written_by(self, enter: Event, args: Sequence[Any], kwargs: Any) -> list[Tensor]:
        """The tensors that a planned call, which was just entered, writes to; all of its tensors where that is not known."""
        if enter.written is not None:
            return [args[place] for place in enter.written]
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
                        only = event.only
                        if only is None or event.after or (event.mutated and event.written is None):
                            self._check_results(event, enter, args, kwargs, output, gradients)
                        else:  # as nearly always
                            if event.written:
                                self._void([args[place] for place in event.written])
                            if only.is_new:
                                self._look(only, output)
                            else:
                                self._take(only, output)
                            whole = event.whole
                            if whole is not None and gradients is not None:
                                node: Any = output.grad_fn
                                if type(node) is not whole[1]:
                                    raise Departed
                                gradients.nodes.keep(node.register_hook(whole[2]))  # type: ignore[attr-defined]
                            elif event.pres:
                                self._hook(event, (output,), gradients)
                    if enter.pushed is not None:
                        del self._arounds[enter.thread][enter.depth :]
                    self._met = self.count
                    self.at += 1
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    def gradients(self, slots: Slots, sent: Sequence[Any], received: Sequence[Any]) -> int:
        """Gradients of one node of the graph have come. The number of slots that were as planned: all, or those before the step
        departed.
        """
        done = 0
        with self._lock:
            for is_sent, position, key in slots:
                given = sent if is_sent else received
                tensor = given[position] if position < len(given) else None
                if tensor is not None and not self._gradient(key, tensor):
                    break
                done += 1
        return done

    def gradient(self, key: Key, tensor: Tensor) -> bool:
        """A gradient has come. False: not as planned."""
        with self._lock:
            return self._gradient(key, tensor)

    def _gradient(self, key: Key, tensor: Tensor) -> bool:
        while True:
            try:
                event = self.events[self.at]
                if event.key != key:
                    raise Departed
                sight: Any = event.sight
                if sight.is_new:
                    if self.threads[event.thread] != get_ident():
                        self._thread(event)
                    self._look(sight, tensor)
                else:
                    self._take(sight, tensor)
                self.at += 1
                self._met = self.count
                return True
            except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                if not self._go_over(error):
                    return False

    def forget(self, tensors: Sequence[Tensor]) -> bool:
        """These were written to. False: not as planned."""
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.kind != FORGET or event.depth != len(tensors):
                        raise Departed
                    self._thread(event)
                    self._void(tensors)
                    self.at += 1
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    # --- comparing ----------------------------------------------------------------------------------------------------

    def _thread(self, event: Event) -> None:
        known = self.threads[event.thread]
        if known is None:
            self.threads[event.thread] = get_ident()
        elif known != get_ident():
            raise Departed

    def _begin(self) -> None:
        """The first event has come."""
        if not self._desk.begin():
            raise Departed
        script, found = self.script, []
        for number, known in list(script.lasting.items()):
            tensor = known()
            if tensor is None:
                script.gives_up(number)
                continue
            address, version = tensor.data_ptr(), tensor._version
            self._before[number] = version, address
            if number in script.steady:
                memory = tensor.untyped_storage()
                room = memory.nbytes()
                if address and address + script.facts[number].span <= memory.data_ptr() + room:
                    found.append((number, tensor, memory._cdata, room, address, version))
        self._digests.read_ahead(found)

    def _check_module(self, event: Event, view: ModuleView | None, module: nn.Module) -> None:
        settings = event.settings
        if view is None or event.type != view.type or settings is None or not settings.are_those_of(module.__dict__):
            raise Departed
        for name, items in event.kept:
            kept: list[Tensor] = []
            _gather(items, (module.__dict__[name],), kept)
            for planned, each in zip(sights_of(items), kept, strict=True):
                self._take(planned, each)
        for (names, sights), found in ((event.parameters, module._parameters), (event.buffers, module._buffers)):
            if tuple(found) != names:
                raise Departed
            for sight, tensor in zip(sights, found.values(), strict=True):
                if sight is not None:
                    self._take(sight, tensor)
                elif tensor is not None:
                    raise Departed

    def _check_arguments(self, event: Event, args: Sequence[Any]) -> None:
        if event.flat is None:
            self._check(event.args, args)
            return
        if len(args) != event.arity:
            raise Departed
        tensors, values, others = event.flat
        for place, sight in tensors:
            if sight.is_new:
                self._look(sight, args[place])
            else:
                self._take(sight, args[place])
        for place, planned in values:
            value = args[place]
            if value is not planned and not _is_same(planned, value):
                self._told = True
        for place, item in others:
            self._check((item,), (args[place],))

    def _check_results(
        self, event: Event, enter: Event, args: Sequence[Any], kwargs: Any, output: Any, gradients: Gradients | None
    ) -> None:
        inputs: list[Tensor] = []
        if event.mutated:
            inputs = inputs_of(enter, args, kwargs)
            self._void([inputs[place] for place in event.mutated])
        self._told = False
        self._check(event.output, (output,))
        for place, sight in event.after:
            self._take(sight, inputs[place])
        if self._told:
            self._desk.retell(event, enter, output)
        if event.pres:
            results: list[Tensor] = []
            _gather(event.output, (output,), results)
            self._hook(event, results, gradients)

    def _hook(self, event: Event, results: Sequence[Tensor], gradients: Gradients | None) -> None:
        if gradients is None:
            raise Departed
        hook_up(event, results, gradients)

    def _check(self, items: Sequence[Item], values: Any) -> None:
        if len(items) != len(values):
            raise Departed
        for (kind, planned), value in zip(items, values, strict=True):
            if kind == TENSOR:
                if planned.is_new:
                    self._look(planned, value)
                else:
                    self._take(planned, value)
            elif kind == VALUE:
                if value is not planned and not _is_same(planned, value):
                    self._told = True
            elif kind == NUMBERS:
                expected, numbers, types = planned
                if type(value) is not expected or len(value) != len(types):
                    raise Departed
                if value != numbers or list(map(type, value)) != types:
                    if not all(type(number) in (int, float, bool, str) for number in value):
                        raise Departed
                    self._told = True
            elif kind == ITEMS:
                if type(value) is not planned[0]:
                    raise Departed
                self._check(planned[1], value)
            elif kind == ENTRIES:
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
                and tensor.requires_grad is sight.grad
                and (not self.lives or number >= self.lives.get(self.storages[number], 0))
            ):
                return
        self._look(sight, tensor)

    def _look(self, sight: Sight, tensor: Any) -> None:
        if not sight.is_alike(tensor):
            raise Departed
        memory, address, version, number = tensor.untyped_storage(), tensor.data_ptr(), tensor._version, sight.number
        storage, spec = memory._cdata, sight.spec
        key = address, spec.number
        found = self._table.get(key)
        if (
            found is not None
            and self.storages[found] == storage
            and self.versions[found] == version
            and (not self.lives or found >= self.lives.get(storage, 0))
            and (spec.elsewhere or self.samples.get(found) == self._desk.sample(tensor))
        ):
            if found != number or sight.is_new:
                raise Departed
            return
        if not sight.is_new or number != self.count:
            raise Departed
        room, span = memory.nbytes(), spec.span
        if room < span or (not address and span) or (sight.is_given and address + span > memory.data_ptr() + room):
            raise Departed  # it was freed or cut
        if not spec.elsewhere:
            self.samples[number] = self._desk.sample(tensor)
            self._desk.read(number, tensor)
            known = None  # of a host's tensor a few words are compared as well, each time
        else:
            known = ref(tensor)
            base = self._shared.get(number)
            if base is not None and self._is_at(base, storage, address, version):
                self.rows[number] = self.rows[base]
            elif span and not (sight.is_given and self._was_read(number, known, storage, address, version)):
                self._hand_over(number, tensor, storage, room, address, version, number in self._copied)
        if storage not in self.holds:
            self.holds[storage] = memory._weak_ref()
        self.refs[number], self.versions[number] = known, version
        self.addresses[number], self.storages[number] = address, storage
        self._table[key] = number
        self.count = number + 1

    def _was_read(self, number: int, known: Any, storage: int, address: int, version: int) -> bool:
        """Was this argument read when the step began? Those that could have been are from the next step on."""
        script = self.script
        before = self._before.get(number)
        if before is None:
            if number not in script.fickle:
                script.lasting[number] = known
        elif before != (version, address) or script.lasting[number]() is not known():
            script.gives_up(number)
        elif number not in script.steady:
            script.steady.add(number)
        else:
            return bool(self._digests.is_ahead(number, storage, address, version))
        return False

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
        specs = self.script.specs
        return ((address, specs[number].number) for number, address in enumerate(self.addresses[: self.count]))

    def _void(self, tensors: Sequence[Tensor]) -> None:
        """These were written to: nothing that is known of their memory holds any more."""
        for tensor in tensors:
            storage = tensor.untyped_storage()._cdata
            if storage in self.holds:
                self.lives[storage] = self.count

    # --- departing ----------------------------------------------------------------------------------------------------

    def _go_over(self, error: Exception) -> bool:
        """Another plan that begins alike is taken up; False where there is none, and the step departs."""
        if self.count > self._met:  # of this event
            self.count = self._met
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
        self._before = {}  # the numbers to come are other tensors
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
        if kind == TENSOR:
            found.append(value)
        elif kind == ITEMS:
            _gather(planned[1], value, found)
        elif kind == ENTRIES:
            _gather(planned[1], value.values(), found)


def _is_same(planned: Any, value: Any) -> bool:
    """Do two plain values say the same? Departed where the other is no plain value."""
    kind = type(value)
    if kind is type(planned):
        if kind is float:
            return bool(value == planned and (value != 0.0 or repr(value) == repr(planned)))
        if kind in EQUAL or kind is slice:
            return bool(value == planned)
    if kind in FIXED or kind is float or kind in EQUAL or kind is slice:
        return False
    raise Departed
