"""Tensors on a device that wait to be read: held by reference, read in batches, told of at the end of the step.

    digests = DeviceDigests(fingerprint=True)
    ticket = digests.submit(tensor)        held; nothing is launched yet
    digests.before_write([tensor])         something is about to write to it: it is read, or copied on the device, before
    digests.flush()                        everything that waits is read by kernels; nobody waits for them
    digests.collect()                      one copy to the host: a row of sums for each ticket, or why there is none

What is held is bounded in bytes and number. A tensor whose version has moved, or whose memory has gone, without `before_write` is
missing, with a reason; it is never read late and taken for what it was. Each batch is launched on the stream on which its tensors
were seen, so whatever made them comes first, and whatever takes their memory over comes after.
Not seen by anybody, and so not guarded against: a kernel that writes to a tensor without telling torch (no call, no version). With
`room=0` each tensor is read at once, and only what runs at the same time on another stream can still interfere.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..protocol import Keeper, Lost, Unreadable
from ..runs import Runs
from . import tensors as looking
from .batches import MAX_ENTRIES, Entry, Forms, Walk, launch, launch_forms, triton_for, walk_of
from .outlets import Outlet

_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_ROWS = 2048  # results that are kept on the device before they are copied
_PINNED = 8192  # numbers of a table: of a full batch
_LARGEST_WALK = 4 << 30  # bytes of an expanded view that is walked at all, as on the host
# A tensor of up to 1/16 of the room is copied before it is written to; a larger one has the whole batch read.
_COPIED = 16
WATCHES: list[Callable[[], None]] = []
"""Called when the first tensor begins to wait, in its thread: see `writes.py`."""


class _Place:
    """One stream of one device: what waits there."""

    __slots__ = ("device", "entries", "kernels", "stream")

    def __init__(self, device: torch.device, stream: int, kernels: ModuleType | None) -> None:
        self.device, self.stream, self.kernels = device, stream, kernels
        self.entries: list[Entry] = []


class _Results:
    """Rows of sums on one device, in the order in which they were launched."""

    __slots__ = ("rows", "tickets")

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.empty((_ROWS, 16), dtype=torch.int64, device=device)
        self.tickets: list[int] = []


class _Taken:
    """Tensors of a step that follows a plan: number, tensor, address and version of each."""

    __slots__ = ("addresses", "numbers", "tensors", "versions")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.tensors: list[Tensor] = []
        self.addresses: list[int] = []
        self.versions: list[int] = []

    def each(self) -> Iterator[tuple[int, Tensor, int, int]]:
        """One after the other."""
        return zip(self.numbers, self.tensors, self.addresses, self.versions, strict=True)

    def only(self, places: Sequence[int]) -> _Taken:
        """Some of them."""
        found = _Taken()
        for name in _Taken.__slots__:
            mine = getattr(self, name)
            setattr(found, name, [mine[place] for place in places])
        return found


class DeviceDigests:
    """The waiting room of one recording. Calls come from one thread at a time."""

    def __init__(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Keeper | None = None
    ) -> None:
        """`room`: bytes that may wait, None for the default of each device; `tell(topic, text)` is heard once for each topic;
        `keeper` gets the values themselves, of those that it wants.
        """
        self._fingerprint, self._room, self._tell, self._keeper = fingerprint, room, tell, keeper
        self._outlets: dict[Any, Outlet] = {}
        self._places: dict[tuple[Any, int], _Place] = {}
        self._storages: dict[int, list[Entry]] = {}
        self._held = 0
        self._count = 0
        self._limit = 0 if room is None else room
        self._results: dict[Any, list[_Results]] = {}
        self._reasons: dict[int, str] = {}
        self._kinds: list[tuple[str, int]] = []  # by ticket: element type, bytes
        self._walks: dict[Any, Walk | None] = {}
        self._streams: set[int] = set()
        self._slow: set[str] = set()
        self._task = -1  # the backward pass at whose end all is read
        self._taken = _Taken()
        self._taken_storages: set[int] = set()
        self._script: Any = None  # such a plan
        self._pinned: list[tuple[Tensor, np.ndarray[Any, Any]]] = []  # on the host, to copy tables from
        self._pins = 0  # of these, used in this step
        self._follower: Any = None  # who follows it
        self.is_watched = False
        """Has somebody been told that something waits?"""
        self._ahead: set[int] = set()  # numbers of tensors that were read before they are seen
        self._ahead_in: dict[int, list[int]] = {}  # by storage: the numbers of those in it
        self.overwritten: set[int] = set()
        """Tickets of this step that were copied because somebody was about to write to them."""
        self._where: tuple[torch.device, int] | None = None  # where such a step runs
        self.stream: Callable[[], int] = int
        """Tells the present stream where the plan runs."""
        self._lock = threading.RLock()  # that end is told by the engine, in a thread of its own

    @property
    def waiting(self) -> int:
        """Number of tensors that wait, or must not be written to unseen for another reason."""
        return self._count + len(self._ahead) + (self._follower is not None and self._follower.is_behind)

    @property
    def room_left(self) -> int:
        """Bytes of tensors that may be seen before they are settled: all that is held stays within the bound."""
        return self._limit - self._held

    @property
    def held(self) -> int:
        """Bytes of memory that are held for them."""
        return self._held

    # --- in ---------------------------------------------------------------------------------------------------------

    def submit(self, tensor: Tensor) -> int:
        """The ticket of this tensor's present value. Unreadable where it has none, or none that can be had here."""
        with self._lock:
            return self._submit(tensor)

    def _submit(self, tensor: Tensor) -> int:
        body = tensor if type(tensor) in looking._PLAIN else looking.on_device(tensor)
        device = body.device
        if device.type == "cuda":
            if torch._C._cuda_isCurrentStreamCapturing():
                self._tell(
                    "graph",
                    "a CUDA graph is being captured: values inside it are not recorded, and its replays are not seen.",
                )
                raise Unreadable("inside the capture of a CUDA graph nothing is computed")
            stream = torch._C._cuda_getCurrentRawStream(device.index)
        else:
            stream = 0
        plan = looking._plan(body)
        if not plan.is_usual and body.dtype not in looking._CODES:
            raise Lost(f"elements of type {body.dtype} have no place in a trace")
        memory, address = body.untyped_storage(), body.data_ptr()
        nbytes, dtype, span = plan.whole, plan.look.dtype, plan.span
        end = address + span - memory.data_ptr()
        room = memory.nbytes()
        if nbytes and end > room:
            raise Unreadable("its storage has been freed")
        ticket = len(self._kinds)
        place = self._places.get((device, stream))
        if place is None:
            place = self._open(device, stream)
        walk: Walk | None = None
        if not nbytes:
            self._kinds.append((dtype, 0))
            return ticket
        if not plan.order or address % 8 or body.is_neg() or (plan.turns and body.is_conj()):
            copied, walk = self._lay_out(body, plan, address, place)
            if copied is not body:
                body, memory = copied, copied.untyped_storage()
                address, end, room = body.data_ptr(), nbytes, nbytes
        task = torch._C._current_graph_task_id()
        if task != -1 or torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD):
            # A gradient on its way, or a kernel's result: torch goes another way where somebody else has the tensor
            # itself. An alias holds the memory, and shares the version.
            body = body.detach()
            if task not in (-1, self._task):
                # The engine runs callbacks in the order in which it gets them: this one before DDP averages the gradients.
                self._task = task
                torch.autograd.Variable._execution_engine.queue_callback(self.flush)
        storage = memory._cdata
        version = None if body.is_inference() else body._version
        entry = Entry(address, nbytes, dtype, walk, body, memory, end, version, ticket)
        self._kinds.append((dtype, nbytes))
        if not self._count:
            self.watch()
        place.entries.append(entry)
        self._count += 1
        beside = self._storages.get(storage)
        if beside is None:
            self._storages[storage] = [entry]
            self._held += room
        else:
            beside.append(entry)
        if self._held >= self._limit or self._count >= MAX_ENTRIES:
            self._flush()
        return ticket

    # --- a step that follows a plan -------------------------------------------------------------------------------------

    def follow(self, script: Any, follower: Any) -> set[int]:
        """The next tickets are those of a plan (`plans.Script`), whose tensors come by `take`, when they are settled.

        Returns:
            Numbers of tensors that are read ahead; those are taken out that somebody writes to.
        """
        self._script, device, stream = script, script.device, 0
        self._follower = follower
        self._kinds = list(script.kinds)
        self.stream = int
        if device.type == "cuda":
            self.stream = functools.partial(torch._C._cuda_getCurrentRawStream, device.index)
            stream = self.stream()
        self._where = device, stream
        if (device, stream) not in self._places:
            self._open(device, stream)
        return self._ahead

    def unfollow(self, follower: Any) -> None:
        """Nothing more comes of this follower."""
        if self._follower is follower:
            self._follower = None

    def go_over(self, script: Any) -> None:
        """Another plan is followed from here on, which was the same so far."""
        if self._where is not None:
            kinds = script.kinds
            self._script, self._kinds = script, [*kinds, *self._kinds[len(kinds) :]]
            self._ahead.clear()  # the numbers to come are other tensors

    def watch(self) -> None:
        """Something begins to wait: from now on somebody must tell before memory is written to."""
        self.is_watched = True
        for watch in WATCHES:
            watch()

    def end_with(self, task: int) -> None:
        """All is read at the end of this backward pass."""
        if task != self._task:
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self.flush)

    def copy(self, number: int, tensor: Tensor, copies: dict[int, Tensor]) -> None:
        """This tensor will be written to soon: a copy of it is to be read, unless it is large."""
        if self._kinds[number][1] * _COPIED <= self._limit:
            with _alone():
                copies[number] = tensor.detach().clone()

    def lose(self, number: int, reason: str) -> None:
        """This tensor of a plan cannot be read."""
        self._reasons[number] = reason

    def take(
        self,
        numbers: list[int],
        tensors: list[Tensor],
        storages: list[int],
        rooms: list[int],
        addresses: list[int],
        versions: list[int],
    ) -> None:
        """Tensors of a plan, ordinary ones that are not empty, in columns: `storages` are identities, `rooms` their bytes."""
        with self._lock:
            if self._count + len(numbers) > MAX_ENTRIES:
                self._flush()
            taken, known = self._taken, self._taken_storages
            taken.numbers += numbers
            taken.tensors += tensors
            taken.addresses += addresses
            taken.versions += versions
            for storage, room in zip(storages, rooms, strict=True):
                if storage not in known:
                    known.add(storage)
                    self._held += room
            self._count += len(numbers)
            if self._held >= self._limit:
                self._flush()

    def read_ahead(
        self,
        numbers: list[int],
        tensors: list[Tensor],
        storages: list[int],
        rooms: list[int],
        addresses: list[int],
        versions: list[int],
    ) -> None:
        """Tensors of a plan (as `take` has them) that it will see later: read at once, in one batch."""
        self.watch()
        self._ahead_in.clear()
        columns: Sequence[list[Any]] = (numbers, tensors, storages, rooms, addresses, versions)
        for start in range(0, len(numbers), MAX_ENTRIES):
            self.take(*(column[start : start + MAX_ENTRIES] for column in columns))
        self._ahead.update(numbers)
        for number, storage in zip(numbers, storages, strict=True):
            self._ahead_in.setdefault(storage, []).append(number)
        if self._ahead:
            self._flush()

    def _promote(self) -> None:
        """Tensors of a plan become entries like others, which are found by their storage."""
        if not self._taken.numbers:
            return
        assert self._where is not None
        place = self._places[self._where]
        taken, self._taken = self._taken, _Taken()
        self._taken_storages.clear()
        for entry in self._entries_of(self._unchanged(taken), place):
            entry.memory = entry.tensor.untyped_storage()
            entry.span = entry.tensor.data_ptr() + looking._span(entry.tensor) - entry.memory.data_ptr()
            place.entries.append(entry)
            self._storages.setdefault(entry.memory._cdata, []).append(entry)

    def _unchanged(self, taken: _Taken) -> _Taken:
        """Tensors that can still be read; the others are missing, with a reason."""
        versions = [tensor._version for tensor in taken.tensors]
        addresses = [tensor.data_ptr() for tensor in taken.tensors]
        if versions == taken.versions and addresses == taken.addresses:
            return taken  # as nearly always
        kept = []
        for place, number in enumerate(taken.numbers):
            if versions[place] != taken.versions[place]:
                self._reasons[number] = "it was written to, unseen, before it was read"
            elif addresses[place] != taken.addresses[place]:
                self._reasons[number] = "its memory was given away, unseen, before it was read"
            else:
                kept.append(place)
        return taken.only(kept)

    def _entries_of(self, taken: _Taken, place: _Place) -> list[Entry]:
        """Entries without their storages."""
        found = []
        for number, tensor, address, version in taken.each():
            facts, walk = looking._plan(tensor), None
            if not facts.order or address & 7:
                body, walk = self._lay_out(tensor, facts, address, place)
                if body is not tensor:
                    tensor, address, version = body, body.data_ptr(), body._version
            found.append(Entry(address, facts.whole, facts.look.dtype, walk, tensor, None, 0, version, number))
        return found

    def _read_taken(self, place: _Place, then_wait: bool) -> None:
        """Launch the reading of a plan's tensors: all is known of them but their addresses."""
        taken, self._taken = self._unchanged(self._taken), _Taken()
        self._taken_storages.clear()
        if place.kernels is None:
            self._read_batches(place, self._entries_of(taken, place), then_wait)
            return
        forms = self._script.forms
        if forms is None:
            forms = self._script.forms = Forms(self._script.facts, place.kernels)
        numbers, addresses = np.array(taken.numbers, np.int64), np.array(taken.addresses, np.int64)
        usual = (forms.which[numbers] >= 0) & (addresses & 7 == 0)
        if not usual.all():
            others = taken.only(np.flatnonzero(~usual).tolist())
            self._read_batches(place, self._entries_of(others, place), then_wait)
            taken = taken.only(np.flatnonzero(usual).tolist())
            numbers, addresses = numbers[usual], addresses[usual]
        if not taken.numbers:
            return
        try:
            with torch.no_grad(), _alone(), _on_stream(place, len(self._streams) > 1, taken.tensors, then_wait):
                rows, target = self._rows(place.device, len(numbers))
                launch_forms(forms, numbers, addresses, target, self._fingerprint, place.kernels, self._pin)
            rows.tickets += taken.numbers
        except Exception:  # noqa: BLE001 - the other way is tried, and says why it does not work
            self._read_batches(place, self._entries_of(taken, place), then_wait)

    def _pin(self, count: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
        """Room for so many numbers on the host, from which the device may copy; in use until the end of the step."""
        if count > _PINNED:
            room = torch.empty(count, dtype=torch.int64, pin_memory=True)
            return room, room.numpy()
        if self._pins == len(self._pinned):
            room = torch.empty(_PINNED, dtype=torch.int64, pin_memory=True)
            self._pinned.append((room, room.numpy()))
        room, array = self._pinned[self._pins]
        self._pins += 1
        return room[:count], array[:count]

    def _open(self, device: torch.device, stream: int) -> _Place:
        kernels = triton_for(device)
        if kernels is None or device.type in self._slow:
            kernels = None
            self._tell(
                "device",
                f"Triton cannot be used on {device.type} here: values are read by the framework's own operations, "
                "which takes longer.",
            )
        if self._room is None:
            self._limit = max(self._limit, _default_room(device))
        self._streams.add(stream)
        place = self._places[device, stream] = _Place(device, stream, kernels)
        return place

    def _lay_out(self, body: Tensor, plan: Any, address: int, place: _Place) -> tuple[Tensor, Walk | None]:
        """A view whose elements are not in order, or begin at an odd address: how it is walked, or a copy that is in order."""
        turned = body.is_neg() or (plan.turns and body.is_conj())
        if plan.runs is not None and plan.runs.nbytes > max(_LARGEST_WALK, 4 * body.untyped_storage().nbytes()):
            raise Lost("an expanded view: it stands for more bytes than are walked")
        if place.kernels is not None and not turned:
            key = plan.place, address % 8
            walk = self._walks.get(key)
            if walk is None and key not in self._walks:
                runs = plan.runs or Runs.of(
                    body.shape, [body.element_size() * step for step in body.stride()], body.element_size()
                )
                walk = self._walks[key] = walk_of(runs, address % 8 == 0, place.kernels)
            if walk is not None:
                return body, walk
        with _alone():
            copied = body.detach().resolve_neg().resolve_conj().contiguous()
            return copied.clone() if copied.data_ptr() % 8 else copied, None

    # --- before somebody writes ---------------------------------------------------------------------------------------

    def holds(self, tensors: Iterable[Any]) -> bool:
        """Does something wait in the memory of one of these, which are about to be written to?"""
        follower, ahead = self._follower, self._ahead
        taken, others, is_held = self._taken_storages, self._storages, False
        with _alone():
            for tensor in tensors:
                start: int | None = None
                key: Any = None
                try:
                    if type(tensor) in looking._PLAIN:
                        memory = tensor.untyped_storage()
                        start, key = memory.data_ptr(), memory._cdata
                    else:
                        key = looking.storage(tensor)
                except (RuntimeError, NotImplementedError, ValueError):  # a sparse one
                    pass
                if follower is not None and follower.is_behind:
                    if start is None:
                        follower.settle()
                    else:
                        follower.settle_within(start, start + memory.nbytes())
                if ahead:
                    ahead.difference_update(self._ahead_in.get(key, ()))
                is_held = is_held or key in taken or key in others
        return is_held

    def before_write(self, tensors: Iterable[Any]) -> None:
        """These are about to be written to: what waits in their memory is read now, or kept as a copy that waits instead."""
        self._settle()
        if self._count:
            with self._lock:
                self._before_write(tensors)

    def _before_write(self, tensors: Iterable[Any]) -> None:
        found: list[Entry] = []
        for tensor in tensors:
            key = looking.storage(tensor)
            if key in self._taken_storages:
                self._promote()
            if key is not None and key in self._storages:
                found += self._storages[key]
        if not found:
            return
        nbytes = sum(entry.nbytes for entry in found)
        if (
            len(self._streams) > 1
            or not self._is_on_stream(found[0])  # a copy made on another stream would be read before it is there
            or len(found) > _COPIED
            or nbytes * _COPIED > self._limit
            or self._is_capturing(found[0])
        ):
            self._flush(then_wait=True)
            return
        with _alone():
            for entry in {id(entry): entry for entry in found}.values():
                if _reason(entry) is None:
                    self.overwritten.add(entry.ticket)
                    self._replace(entry, entry.tensor.detach().contiguous().clone())

    def _replace(self, entry: Entry, copied: Tensor) -> None:
        beside = self._storages[entry.memory._cdata]
        beside.remove(entry)
        if not beside:
            del self._storages[entry.memory._cdata]
        entry.tensor, entry.address, entry.walk = copied, copied.data_ptr(), None
        entry.memory, entry.span, entry.version = copied.untyped_storage(), entry.nbytes, copied._version
        self._storages[entry.memory._cdata] = [entry]
        self._held += entry.nbytes

    def _is_on_stream(self, entry: Entry) -> bool:
        """Is the present stream the one on which all that waits was seen?"""
        device = entry.tensor.device
        return device.type != "cuda" or torch._C._cuda_getCurrentRawStream(device.index) in self._streams

    @staticmethod
    def _is_capturing(entry: Entry) -> bool:
        return entry.tensor.is_cuda and torch.cuda.is_current_stream_capturing()

    # --- to the device ------------------------------------------------------------------------------------------------

    def flush(self, *, then_wait: bool = False) -> None:
        """Launch the reading of all that waits: anything may be written to. `then_wait`: the present stream goes on after it,
        whichever it is.
        """
        with _alone():  # the engine calls this, where modes are on, and each question to a tensor would pass them
            self._settle()
            self._ahead.clear()
            self.is_watched = False
            self._flush(then_wait)

    def _settle(self) -> None:
        """Tensors of a plan that were seen are to be found among those that wait."""
        if self._follower is not None:
            self._follower.settle()

    def _flush(self, then_wait: bool = False) -> None:
        if not self._count:
            return
        with self._lock:
            if self._taken.numbers and self._where is not None:
                self._read_taken(self._places[self._where], then_wait)
            for place in self._places.values():
                if place.entries:
                    self._read(place, then_wait)
            self._storages.clear()
            self._held = self._count = 0

    def _read(self, place: _Place, then_wait: bool) -> None:
        entries, place.entries = place.entries, []
        ready = []
        for entry in entries:
            reason = _reason(entry)
            if reason is None:
                ready.append(entry)
            else:
                self._reasons[entry.ticket] = reason
        self._read_batches(place, ready, then_wait)

    def _read_batches(self, place: _Place, ready: list[Entry], then_wait: bool) -> None:
        for start in range(0, len(ready), MAX_ENTRIES):
            batch = ready[start : start + MAX_ENTRIES]
            try:
                tensors = [entry.tensor for entry in batch]
                with torch.no_grad(), _alone(), _on_stream(place, len(self._streams) > 1, tensors, then_wait):
                    self._launch(place, batch)
            except Exception as error:  # noqa: BLE001 - out of memory, an error of the device: the training meets its own
                text = (str(error).splitlines() or [type(error).__name__])[0][:200]
                for entry in batch:
                    self._reasons[entry.ticket] = f"the device could not read it: {text}"

    def _launch(self, place: _Place, batch: list[Entry]) -> None:
        rows, target = self._rows(place.device, len(batch))
        try:
            launch(batch, target, self._fingerprint, place.kernels, self._pin)
        except Exception as error:
            if place.kernels is None or "out of memory" in str(error).lower() or _is_lost(place.device):
                raise
            self._slow.add(place.device.type)  # a device or a driver that Triton does not compile for
            self._tell(
                "device",
                f"Triton does not work here ({str(error).splitlines()[0][:120]}): values are read by torch's operations.",
            )
            place.kernels = None
            for entry in batch:
                if entry.walk is not None:
                    entry.tensor, entry.walk = entry.tensor.detach().contiguous(), None
            launch(batch, target, self._fingerprint, None, self._pin)
        rows.tickets += [entry.ticket for entry in batch]
        if self._keeper is not None:
            self._keep(place, batch, target, self._keeper)

    def _keep(self, place: _Place, batch: list[Entry], target: Tensor, keeper: Keeper) -> None:
        """Give the values out that the keeper has not: now, while nothing has written to them. Waits for the device."""
        outlet = self._outlets.get(place.device)
        if outlet is None:
            outlet = self._outlets[place.device] = Outlet(place.device)
        for entry, row in zip(batch, target.cpu().numpy(), strict=True):
            if keeper.wants(entry.ticket, row, entry.dtype, entry.nbytes):
                keeper.store(entry.ticket, outlet.pieces(entry.tensor), entry.nbytes)

    def _rows(self, device: torch.device, count: int) -> tuple[_Results, Tensor]:
        """Results, and the next rows of them."""
        known = self._results.setdefault(device, [])
        if not known or len(known[-1].tickets) + count > _ROWS:
            known.append(_Results(device))
        used = len(known[-1].tickets)
        return known[-1], known[-1].rows[used : used + count]

    # --- out ----------------------------------------------------------------------------------------------------------

    def collect(self) -> list[tuple[str, int, np.ndarray[Any, Any] | str | None]]:
        """For each ticket since the last time: element type, bytes, and a row of sums, or the reason why there is none.

        None stands for a row of zeros: of nothing. Waits for the device.
        """
        with self._lock:
            self.flush()
            return self._collect()

    def _collect(self) -> list[tuple[str, int, np.ndarray[Any, Any] | str | None]]:
        outcomes: list[np.ndarray[Any, Any] | str | None] = [None] * len(self._kinds)
        for results in self._results.values():
            for result in results:
                self._copy(result, outcomes)
        for ticket, reason in self._reasons.items():
            outcomes[ticket] = reason
        found = [(*kind, outcome) for kind, outcome in zip(self._kinds, outcomes, strict=True)]
        self._clear()
        return found

    def collect_rows(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[int, str]]:
        """The same for a step that followed its plan: int64[tickets, 16], zeros where there is nothing; True for each ticket that
        was read; reasons by ticket.
        """
        with self._lock:
            self.flush()
            rows = np.zeros((len(self._kinds), 16), np.int64)
            read = np.zeros(len(self._kinds), np.bool_)
            for results in self._results.values():
                for result in results:
                    self._copy(result, [], rows)
                    read[result.tickets] = True
            reasons = dict(self._reasons)
            self._clear()
            return rows, read, reasons

    def _clear(self) -> None:
        self._kinds, self._reasons, self._where = [], {}, None
        self._pins, self.overwritten = 0, set()  # the device has been waited for
        for results in self._results.values():
            del results[1:]
            for result in results:
                result.tickets = []
        if len(self._places) > 8:  # streams that come and go
            self._places.clear()
            self._streams.clear()

    def _copy(self, result: _Results, outcomes: list[Any], table: np.ndarray[Any, Any] | None = None) -> None:
        if not result.tickets:
            return
        try:
            with torch.no_grad(), _alone():
                if result.rows.is_cuda and self._streams != {
                    torch._C._cuda_getCurrentRawStream(result.rows.device.index)
                }:
                    torch.cuda.synchronize(result.rows.device)
                rows = result.rows[: len(result.tickets)].cpu().numpy()
        except Exception as error:  # noqa: BLE001 - an error of the device, which the training meets itself
            text = (str(error).splitlines() or [type(error).__name__])[0][:200]
            for ticket in result.tickets:
                self._reasons[ticket] = f"the device could not be read: {text}"
            return
        if table is not None:
            table[result.tickets] = rows
            return
        for ticket, row in zip(result.tickets, rows, strict=True):
            outcomes[ticket] = row

    def drop(self) -> None:
        """Let go of everything, unread."""
        self._taken, self._where, self._script, self._follower = _Taken(), None, None, None
        self._ahead.clear()
        self._taken_storages.clear()
        self._pinned.clear()
        self._outlets.clear()
        self._places.clear()
        self._storages.clear()
        self._results.clear()
        self._kinds, self._reasons = [], {}
        self._held = self._count = 0


def _reason(entry: Entry) -> str | None:
    """Why a tensor that has waited cannot be read any more."""
    tensor = entry.tensor
    if entry.version is not None and tensor._version != entry.version:
        return "it was written to, unseen, before it was read"
    if tensor.data_ptr() != entry.address or entry.memory.nbytes() < entry.span:
        return "its memory was given away, unseen, before it was read"
    return None


def _default_room(device: torch.device) -> int:
    """1 GiB or 2 % of the device's memory, whichever is more, and no more than an eighth of it."""
    if device.type != "cuda":
        return 1 << 30
    total = torch.cuda.get_device_properties(device).total_memory
    return int(min(max(1 << 30, total // 50), total // 8))


def _is_lost(device: torch.device) -> bool:
    """Has the device failed for good?"""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except Exception:  # noqa: BLE001 - that is the answer
        return True
    return False


def _alone() -> contextlib.AbstractContextManager[Any]:
    """Nobody's modes see what is done here, the recorder's and the user's."""
    if not torch._C._len_torch_dispatch_stack():  # the usual case, and a hundredth of the other's cost
        return torch._C.DisableTorchFunction()
    return _without_any_mode()


@contextlib.contextmanager
def _without_any_mode() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@contextlib.contextmanager
def _on_stream(place: _Place, several: bool, batch: list[Tensor], then_wait: bool) -> Iterator[None]:
    """The device and stream of a batch. With several streams its memory must not be given away before the kernels are through."""
    if place.device.type != "cuda":
        yield
        return
    if not several and torch._C._cuda_getCurrentRawStream(place.device.index) == place.stream:
        if torch._C._cuda_getDevice() == place.device.index:  # as nearly always
            yield
            return
        with torch.cuda.device(place.device):
            yield
        return
    present = torch.cuda.current_stream(place.device)
    stream = (
        torch.cuda.ExternalStream(place.stream, device=place.device)
        if place.stream
        else torch.cuda.default_stream(place.device)
    )
    with torch.cuda.stream(stream):
        yield
        for tensor in batch:
            tensor.record_stream(stream)
    if then_wait and present.cuda_stream != place.stream:
        present.wait_stream(stream)
