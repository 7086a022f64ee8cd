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

All of this is paid for in every step, on a host that the device waits for. So the comparisons are functions that were written out
for each event (`checks.py`), and a tensor is asked at once only for what may be another a moment later: torch's own guard looks at
all that does not change (`scripts.guard_of`), its address and version tell whether it is known. The rest (its storage, room for it
among those that wait) is done by `settle`, for many tensors in a row: in the middle of a step none of torch's code for it is in the
processor's caches. Arguments that were there when the step began, and are what they were then, are read at its beginning, in one
batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import lt
from threading import get_ident
from types import FrameType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn

from ...model.sites import Kind, Phase
from ..protocol import ModuleView
from . import tensors as looking
from .checks import write_out
from .drafts import ANCHORS, HANDLERS, MAX_THREADS, Draft, caller, draft_of
from .gradients import Gradients
from .layers import Unit
from .names import Api
from .precision import precision
from .scripts import (
    ANYWHERE,
    ENTER,
    ENTRIES,
    FORGET,
    ITEMS,
    LEAVE,
    TENSOR,
    Departed,
    Event,
    Item,
    Key,
    Script,
    Sight,
    Slots,
)  # fmt: skip
from .wiring import hook_up, wire

__all__ = ["ANCHORS", "HANDLERS", "Draft", "Follower", "caller", "draft_of", "wire", "write_out"]

_BEHIND = 128
"""Tensors that are asked for their storages in a row, at most."""
_ASKED = 16
"""Tensors that are looked through, before memory is written to, rather than settled."""
_graph_task: Callable[[], int] = torch._C._current_graph_task_id


class Desk(Protocol):
    """Questions of a follower to the sink."""

    def begin(self) -> bool:
        """The step's first event has come: its journal is begun. False: a plan cannot be followed."""

    def around(self) -> list[tuple[str, int | None]]:
        """The modules around this thread."""

    def depart(self, error: Exception | None = None) -> None:
        """Write down what was followed; the rest of the step is recorded in full. `error`: what was not expected at all."""

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
        self.script = script = scripts[0]
        self.events, self.size = script.events, script.size
        self.at = 0
        # What is known of each number.
        most = max(len(script.specs) for script in scripts)
        # Tensors that are not settled; weak references to others; None: of the host.
        self.seen: list[Any] = [None] * most
        self.versions, self.addresses, self.storages = [0] * most, [0] * most, [0] * most
        self.samples: dict[int, Any] = {}
        self.rows = list(range(most))
        self.count = 0
        """Numbers that are known by now."""
        self._settled = 0  # of these, those whose storages are known
        self._behind = 0  # bytes of the others
        self._copies: dict[int, Tensor] = {}  # of the others, what is read in their place
        self.table: dict[tuple[int, int], int] = {}  # (address, number of the spec) to the latest number
        self.holds: dict[Any, Any] = {}
        # Of storages that were written to unseen by their version: numbers below it are void.
        self.lives: dict[Any, int] = {}
        self._voided = 0  # calls that write, in the order of the script, that are in `lives`
        self._void_below = 0  # numbers known when the last of them ended
        self.sure = 0
        """Numbers from here on are held, and nothing was written to since that their versions do not tell."""
        self._met = 0  # numbers that were known before the present event: they wait, or have been read
        self.threads: list[int | None] = [None] * MAX_THREADS
        self._arounds: list[Any] = [None] * MAX_THREADS  # by thread: the modules around it
        self._task = -1  # the backward pass at whose end all is read
        self._stream: Callable[[], int] = int  # the present stream of the device
        self._stream_then = 0
        self.ahead: set[int] = set()
        """Numbers of arguments that were read when the step began, and are what they were."""
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
        self._digests.unfollow(self)
        deque(map(torch.UntypedStorage._free_weak_ref, self.holds.values()), maxlen=0)
        self.holds = {}

    # --- events -------------------------------------------------------------------------------------------------------

    def enter(
        self,
        sort: Kind,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        phase: Phase,
        api: Api | None,
        view: ModuleView | None,
        module: nn.Module | None,
        frame: FrameType | None,
    ) -> Event | None:
        """The planned call that this is; None: it is not planned, and the step is recorded in full from here on.

        `api`: the function, where it depends on its arguments what is written to.
        """
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
                        if event.precision is not precision() or (view is not None and event.type != view.type):
                            raise Departed
                        if event.check(self, args, kwargs, module):
                            if api is not None and api.mutates(args, kwargs or {}) != event.mutates:
                                raise Departed
                            self._desk.retell(event, event, (args, kwargs or {}))
                        if self.count > self._met:
                            self._wait()
                    if event.pushed is not None:
                        around.append(event.pushed)
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

    def is_unit(self, unit: Unit) -> bool:
        """Do the next events say that a layer, which was just entered, makes its one call?"""
        at = self.at
        return at + 2 < self.size and self.events[at] is unit.call and self.events[at + 2] is unit.end

    def enter_call(self, unit: Unit) -> bool:
        """The layer that was just entered has made its call. False: nothing is followed any more."""
        with self._lock:
            if not self.is_unit(unit):
                return False
            self.at += 1
            return True

    def leave_unit(
        self, enter: Event, unit: Unit, args: Sequence[Any], output: Any, gradients: Gradients | None
    ) -> int:
        """A layer has ended, whose call was entered. How many of the two, its call and itself, have ended as planned."""
        with self._lock:
            node: Any = output.grad_fn if gradients is not None else None
            whole, hook = unit.left.whole, unit.hook
            if hook is None or whole is None or gradients is None or type(node) is not whole[1]:
                if not self.leave(unit.call, (), None, output, gradients):
                    return 0
                return 2 if self.leave(enter, args, None, output, gradients) else 1
            if not self.leave(unit.call, (), None, output, gradients, is_hooked=True):
                return 0
            done = 2 if self.leave(enter, args, None, output, gradients, is_hooked=True) else 1
            gradients.nodes.keep(node.register_hook(hook if done == 2 else whole[2]))  # type: ignore[attr-defined]
            return done

    def leave(
        self,
        enter: Event,
        args: Sequence[Any],
        kwargs: Any,
        output: Any,
        gradients: Gradients | None,
        *,
        is_hooked: bool = False,
    ) -> bool:
        """The call has ended. `gradients`: where its graph is hooked, None where gradients are off. False: not as planned.

        `is_hooked`: somebody else sees to that.
        """
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.kind != LEAVE or event.id != enter.id:
                        raise Departed
                    if event.id >= 0:
                        if event.mutated:
                            self._note_voids()
                        if event.check(self, args, kwargs, output):
                            self._desk.retell(event, enter, output)
                        whole = event.whole
                        if is_hooked:
                            pass
                        elif whole is not None and gradients is not None:
                            node: Any = (output if event.only else _results(event, output)[whole[0]]).grad_fn
                            if type(node) is not whole[1]:
                                raise Departed
                            gradients.nodes.keep(node.register_hook(whole[2]))  # type: ignore[attr-defined]
                        elif event.pres:
                            self._hook(event, output, gradients)
                        if self.count > self._met:
                            self._wait()
                    if enter.pushed is not None:
                        del self._arounds[enter.thread][enter.depth :]
                    self.at += 1
                    return True
                except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                    if not self._go_over(error):
                        return False

    def gradients(self, slots: Slots, sent: Sequence[Any], received: Sequence[Any]) -> int:
        """Gradients of one node of the graph have come. The number of slots that were as planned: all, or those before the step
        departed.
        """
        with self._lock:
            at = self.at
            try:
                event = self.events[at]
                told, count, last, check = event.run  # type: ignore[misc]
                if told is slots and self.events[at + count - 1] is last and self.threads[event.thread] == get_ident():
                    check(self, sent, received)
                    if self.count > self._met:
                        self._wait()
                    self.at = at + count
                    return len(slots)
            except Exception:  # noqa: BLE001 - told one by one it may be as planned
                self._take_back()
            return self._gradients(slots, sent, received)

    def _gradients(self, slots: Slots, sent: Sequence[Any], received: Sequence[Any]) -> int:
        """The same one by one."""
        done = 0
        while True:
            try:
                for is_sent, position, key in slots[done:]:
                    given = sent if is_sent else received
                    tensor = given[position] if position < len(given) else None
                    if tensor is not None:
                        event = self.events[self.at]
                        if event.key != key or self.threads[event.thread] != get_ident():
                            self._expect(event, key)
                        event.check(self, tensor)
                        if self.count > self._met:
                            self._wait()
                        self.at += 1
                    done += 1
                return done
            except Exception as error:  # noqa: BLE001 - whatever cannot be looked at is not as planned
                if not self._go_over(error):
                    return done

    def _expect(self, event: Event, key: Key) -> None:
        if event.key != key:
            raise Departed
        self._thread(event)

    def forget(self, tensors: Sequence[Tensor]) -> bool:
        """These were written to. False: not as planned."""
        with self._lock:
            while True:
                try:
                    event = self.events[self.at]
                    if event.kind != FORGET or event.depth != len(tensors):
                        raise Departed
                    self._thread(event)
                    self.settle()
                    for tensor in tensors:
                        self.lives[tensor.untyped_storage()._cdata] = self.count
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
        self.ahead = self._digests.follow(self.script, self)
        self._stream = self._digests.stream
        self._stream_then = self._stream()
        script = self.script
        there = {number: known() for number, known in script.lasting.items()}
        for number in [number for number, tensor in there.items() if tensor is None]:
            script.gives_up(number)
        tensors = [there[number] for number in script.lasting]
        addresses, versions = [tensor.data_ptr() for tensor in tensors], [tensor._version for tensor in tensors]
        self._before = dict(zip(script.lasting, zip(versions, addresses, strict=True), strict=True))
        memories = [tensor.untyped_storage() for tensor in tensors]
        storages, rooms = [memory._cdata for memory in memories], [memory.nbytes() for memory in memories]
        places = []
        for place, (number, known) in enumerate(script.lasting.items()):
            memory, address = memories[place], addresses[place]
            if (
                number in script.steady
                and address
                and address + script.spans[number] <= memory.data_ptr() + rooms[place]
            ):
                places.append(place)
                storage = storages[place]
                if storage not in self.holds:
                    self.holds[storage] = memory._weak_ref()
                self.seen[number], self.storages[number], script.rooms[number] = known, storage, 0
                self.addresses[number], self.versions[number] = address, versions[place]
        columns: Sequence[list[Any]] = (list(script.lasting), tensors, storages, rooms, addresses, versions)
        if len(places) < len(tensors):
            columns = [[column[place] for place in places] for column in columns]
        self._digests.read_ahead(*columns)

    def _hook(self, event: Event, output: Any, gradients: Gradients | None) -> None:
        if gradients is None:
            raise Departed
        hook_up(event, (output,) if event.only else _results(event, output), gradients)

    @staticmethod
    def inputs_of(event: Event, args: Sequence[Any], kwargs: Any, places: Sequence[int]) -> list[Tensor]:
        """Some of the tensors among a call's arguments."""
        found = inputs_of(event, args, kwargs)
        return [found[place] for place in places]

    def recognise(self, sight: Sight, tensor: Any) -> None:
        """A tensor that is known, as planned; perhaps by another object."""
        number = sight.number
        if (
            not sight.is_alike(tensor)
            or self.table.get((tensor.data_ptr(), sight.spec.number)) != number
            or tensor._version != self.versions[number]
            or not self.is_known(number, tensor)
        ):
            raise Departed

    def is_known(self, number: int, tensor: Any) -> bool:
        """Is this tensor, which has the address and the version of a number, the one of that number?"""
        is_held = number >= self._settled and self.seen[number].__class__ in looking._PLAIN
        if is_held and number >= self._void_below:
            return True  # its memory is held, and nothing was written to since that its version does not tell
        storage = tensor.untyped_storage()._cdata
        if is_held:
            return bool(number >= self.lives.get(storage, 0))
        return (
            bool(self.storages[number] == storage)
            and number >= self.lives.get(storage, 0)
            and (self.script.specs[number].elsewhere or self.samples.get(number) == self._desk.sample(tensor))
        )

    def meet(self, sight: Sight, tensor: Any) -> None:
        """A tensor that is new, as planned: an argument, or one of the host."""
        number, spec = sight.number, sight.spec
        if number != self.count or not sight.is_alike(tensor):
            raise Departed
        address, version = tensor.data_ptr(), tensor._version
        key = address, spec.number
        found = self.table.get(key)
        if found is not None and self.versions[found] == version and self.is_known(found, tensor):
            raise Departed
        if not spec.elsewhere:
            memory = tensor.untyped_storage()
            if memory.nbytes() < spec.span:
                raise Departed  # it was freed or cut
            self._hold(number, memory)
            self.samples[number] = self._desk.sample(tensor)
            self._desk.read(number, tensor)
        elif sight.is_given and self._is_read(number, tensor, address, version):
            self.seen[number] = ref(tensor)
        else:
            self.seen[number] = tensor if _graph_task() == -1 else tensor.detach()
        self.addresses[number], self.versions[number], self.table[key] = address, version, number
        self.count = number + 1

    def _wait(self) -> None:
        """There are new tensors: they wait from here and now on."""
        if self._stream() != self._stream_then:
            raise Departed  # a graph is captured on a stream of its own
        digests, task = self._digests, _graph_task()
        if not digests.is_watched:
            digests.watch()
        if task != self._task and task != -1:
            self._task = task
            digests.end_with(task)
        first, last, script = self._met, self.count, self.script
        copied = script.copied
        if copied:
            for number in range(first, last):
                if number in copied and self.seen[number].__class__ is not ref:
                    digests.copy(number, self.seen[number], self._copies)
        self._behind += script.rooms[first] if last == first + 1 else sum(script.rooms[first:last])
        if last - self._settled >= _BEHIND or self._behind > digests.room_left:
            self.settle()
        self._met = last

    def _hold(self, number: int, memory: Any) -> int:
        storage: int = memory._cdata
        self.storages[number] = storage
        if storage not in self.holds:
            self.holds[storage] = memory._weak_ref()
        return storage

    @property
    def is_behind(self) -> bool:
        """Are there tensors that are seen and not settled?"""
        return self.count > self._settled

    def settle_within(self, start: int, end: int) -> None:
        """Settle, if a tensor that is not settled, and of which there is no copy, may lie between these addresses."""
        first, last, addresses = self._settled, self.count, self.addresses
        if last - first > _ASKED:
            self.settle()
            return
        for number, address in enumerate(addresses[first:last], first):
            if start <= address < end and number not in self._copies:
                if self.seen[number].__class__ not in looking._PLAIN:  # it has been read
                    continue
                self.settle()
                return

    def settle(self) -> None:
        """Ask the tensors that were seen for their storages, and hand them over to be read."""
        with self._lock:
            first, last = self._settled, self.count
            if first < last:
                self._settled, self._behind = last, 0
                self.sure = max(self.sure, last)
                self._settle(first, last)

    def _note_voids(self) -> None:
        """Note the storages that were written to by calls that have ended by now."""
        voids, at, seen = self.script.voids, self.at, self.seen
        while self._voided < len(voids) and voids[self._voided][0] <= at:
            _, count, numbers = voids[self._voided]
            for number in numbers:
                is_settled = number < self._settled or seen[number].__class__ not in looking._PLAIN
                storage = self.storages[number] if is_settled else seen[number].untyped_storage()._cdata
                self.lives[storage] = count
            self._void_below = count
            self.sure = max(self.sure, count)
            self._voided += 1

    def _settle(self, first: int, last: int) -> None:
        script, seen, again, holds = self.script, self.seen, self.script.again, self.holds
        plain, numbers, tensors = looking._PLAIN, list(range(first, last)), seen[first:last]
        if not plain.issuperset(map(type, tensors)):  # some were read ahead, or lie on the host
            numbers = [number for number in numbers if seen[number].__class__ in plain]
            tensors = [seen[number] for number in numbers]
        memories = [tensor.untyped_storage() for tensor in tensors]
        storages = [memory._cdata for memory in memories]
        rooms = [memory.nbytes() for memory in memories]
        for number, tensor, storage, room in zip(numbers, tensors, storages, rooms, strict=True):
            self.storages[number], script.rooms[number] = storage, room
            seen[number] = ref(tensor) if number in again else None
        for storage, memory in zip(storages, memories, strict=True):
            if storage not in holds:
                holds[storage] = memory._weak_ref()
        addresses, versions = [self.addresses[n] for n in numbers], [self.versions[n] for n in numbers]
        spans = [script.spans[number] for number in numbers]
        if self._copies or not script.plain.issuperset(numbers) or any(map(lt, rooms, spans)):
            usual = script.plain
            places = [
                place
                for place, number in enumerate(numbers)
                if (number in usual and rooms[place] >= spans[place])
                or self._is_to_be_read(number, rooms[place], memories[place])
            ]
            for place, number in enumerate(numbers) if self._copies else ():
                copied = self._copies.pop(number, None)
                if copied is not None:
                    tensors[place], storages[place] = copied, -1 - number
                    addresses[place], versions[place] = copied.data_ptr(), copied._version
            numbers, tensors, storages, rooms, addresses, versions = (
                [column[place] for place in places]
                for column in (numbers, tensors, storages, rooms, addresses, versions)
            )
        self._digests.take(numbers, tensors, storages, rooms, addresses, versions)

    def _is_to_be_read(self, number: int, room: int, memory: Any) -> bool:
        """Is this tensor, which is settled, to be read?"""
        script, span = self.script, self.script.spans[number]
        base, address = script.shared.get(number), self.addresses[number]
        if not span:
            return False
        if base is not None and self._is_at(base, self.storages[number], address, self.versions[number]):
            self.rows[number] = self.rows[base]
            return False
        if room < span or (script.is_given[number] and address + span > memory.data_ptr() + room):
            self._digests.lose(number, "its storage has been freed")
            return False
        return True

    def _is_read(self, number: int, tensor: Any, address: int, version: int) -> bool:
        """Was this argument read when the step began? Those that could have been are from the next step on."""
        script = self.script
        if not script.spans[number] or not script.specs[number].elsewhere or number in script.fickle:
            return False
        before = self._before.get(number)
        if before is None:
            script.lasting[number] = ref(tensor)
        elif before != (version, address) or script.lasting[number]() is not tensor:
            script.gives_up(number)
        elif number not in script.steady:
            script.steady.add(number)
        else:
            self.seen[number] = None
            if number in self.ahead:
                self.ahead.discard(number)
                return True
        return False

    def _is_at(self, number: int, storage: int, address: int, version: int) -> bool:
        """Was the tensor of that number there, with the same values?"""
        return (
            self.storages[number] == storage and self.versions[number] == version and self.addresses[number] == address
        )

    def seats(self) -> dict[int, tuple[int, int]]:
        """Storage and address of each number that is known by now, and would be recognised."""
        self.settle()
        latest = {key: number for number, key in enumerate(self._keys())}
        return {
            number: (self.storages[number], self.addresses[number])
            for number in latest.values()
            if number >= self.lives.get(self.storages[number], 0)
        }

    def _keys(self) -> Iterable[tuple[int, int]]:
        specs = self.script.specs
        return ((address, specs[number].number) for number, address in enumerate(self.addresses[: self.count]))

    # --- departing ----------------------------------------------------------------------------------------------------

    def _take_back(self) -> None:
        """The present event was not seen."""
        if self.count > self._met:
            self.count = self._met
            self._settled = min(self._settled, self.count)
            self._copies = {number: copied for number, copied in self._copies.items() if number < self.count}
            self.table = {key: number for number, key in enumerate(self._keys())}
            self.rows[self._met :] = range(self._met, len(self.rows))

    def _go_over(self, error: Exception) -> bool:
        """Another plan that begins alike is taken up; False where there is none, and the step departs."""
        self._take_back()
        for other in self.scripts:
            if other is not self.script and other.size > self.at and self.script.common(other) >= self.at:
                self.scripts = [script for script in self.scripts if script is not self.script]
                self._take_up(other)
                return True
        self._desk.depart(None if isinstance(error, _NOT_AS_PLANNED) else error)
        return False

    def _take_up(self, script: Script) -> None:
        self.settle()
        self._note_voids()  # what is void so far is the same in both
        self.script, self.events, self.size = script, script.events, script.size
        self._voided = sum(place < self.at for place, _, _ in script.voids)
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


def _results(event: Event, output: Any) -> list[Tensor]:
    """The tensors in the result of a planned call, in order."""
    found: list[Tensor] = []
    _gather(event.output, (output,), found)
    return found


def _gather(items: Sequence[Item], values: Any, found: list[Tensor]) -> None:
    for (kind, planned), value in zip(items, values, strict=True):
        if kind == TENSOR:
            found.append(value)
        elif kind == ITEMS:
            _gather(planned[1], value, found)
        elif kind == ENTRIES:
            _gather(planned[1], value.values(), found)
