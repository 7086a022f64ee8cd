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

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..protocol import Keeper, Lost, Unreadable
from . import tensors as looking
from .batches import MAX_ENTRIES, Entry, Walk
from .readers import DeviceReader, Place, Planned, reason_of
from .streams import default_room, no_modes

_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
# A tensor of up to 1/16 of the room is copied before it is written to; a larger one has the whole batch read.
_COPIED = 16
WATCHES: list[Callable[[], None]] = []
"""Called when the first tensor begins to wait, in its thread: see `writes.py`."""


class DeviceDigests:
    """The waiting room of one recording. Calls come from one thread at a time."""

    def __init__(
        self, *, fingerprint: bool, room: int | None, tell: Callable[[str, str], None], keeper: Keeper | None = None
    ) -> None:
        """`room`: bytes that may wait, None for the default of each device; `tell(topic, text)` is heard once for each topic;
        `keeper` gets the values themselves, of those that it wants.
        """
        self._room, self._tell = room, tell
        self._reader = DeviceReader(fingerprint, tell, keeper)
        self._places: dict[tuple[Any, int], Place] = {}
        self._storages: dict[int, list[Entry]] = {}
        self._held = 0
        self._count = 0
        self._limit = 0 if room is None else room
        self._kinds: list[tuple[str, int]] = []  # by ticket: element type, bytes
        self._task = -1  # the backward pass at whose end all is read
        self._taken = Planned()
        self._taken_storages: set[int] = set()
        self._script: Any = None  # such a plan
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
            copied, walk = self._reader.lay_out(body, plan, address, place)
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
            with no_modes():
                copies[number] = tensor.detach().clone()

    def lose(self, number: int, reason: str) -> None:
        """This tensor of a plan cannot be read."""
        self._reader.reasons[number] = reason

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
        taken, self._taken = self._taken, Planned()
        self._taken_storages.clear()
        for entry in self._reader.entries_of(self._reader.unchanged(taken), place):
            entry.memory = entry.tensor.untyped_storage()
            entry.span = entry.tensor.data_ptr() + looking._span(entry.tensor) - entry.memory.data_ptr()
            place.entries.append(entry)
            self._storages.setdefault(entry.memory._cdata, []).append(entry)

    def _open(self, device: torch.device, stream: int) -> Place:
        if self._room is None:
            self._limit = max(self._limit, default_room(device))
        place = self._places[device, stream] = self._reader.open(device, stream)
        return place

    # --- before somebody writes ---------------------------------------------------------------------------------------

    def holds(self, tensors: Iterable[Any]) -> bool:
        """Does something wait in the memory of one of these, which are about to be written to?"""
        follower, ahead = self._follower, self._ahead
        taken, others, is_held = self._taken_storages, self._storages, False
        with no_modes():
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
            len(self._reader.streams) > 1
            or not self._is_on_stream(found[0])  # a copy made on another stream would be read before it is there
            or len(found) > _COPIED
            or nbytes * _COPIED > self._limit
            or self._is_capturing(found[0])
        ):
            self._flush(then_wait=True)
            return
        with no_modes():
            for entry in {id(entry): entry for entry in found}.values():
                if reason_of(entry) is None:
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
        return device.type != "cuda" or torch._C._cuda_getCurrentRawStream(device.index) in self._reader.streams

    @staticmethod
    def _is_capturing(entry: Entry) -> bool:
        return entry.tensor.is_cuda and torch.cuda.is_current_stream_capturing()

    # --- to the device ------------------------------------------------------------------------------------------------

    def flush(self, *, then_wait: bool = False) -> None:
        """Launch the reading of all that waits: anything may be written to. `then_wait`: the present stream goes on after it,
        whichever it is.
        """
        with no_modes():  # the engine calls this, where modes are on, and each question to a tensor would pass them
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
                taken, self._taken = self._taken, Planned()
                self._taken_storages.clear()
                self._reader.read_planned(self._places[self._where], taken, self._script, then_wait)
            for place in self._places.values():
                if place.entries:
                    self._reader.read(place, then_wait)
            self._storages.clear()
            self._held = self._count = 0

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
        for tickets, rows in self._reader.fetched():
            for ticket, row in zip(tickets, rows, strict=True):
                outcomes[ticket] = row
        for ticket, reason in self._reader.reasons.items():
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
            for tickets, sums in self._reader.fetched():
                rows[tickets] = sums
                read[tickets] = True
            reasons = dict(self._reader.reasons)
            self._clear()
            return rows, read, reasons

    def _clear(self) -> None:
        self._kinds, self._where = [], None
        self.overwritten = set()
        self._reader.clear()
        if len(self._places) > 8:  # streams that come and go
            self._places.clear()
            self._reader.streams.clear()

    def drop(self) -> None:
        """Let go of everything, unread."""
        self._taken, self._where, self._script, self._follower = Planned(), None, None, None
        self._ahead.clear()
        self._taken_storages.clear()
        self._places.clear()
        self._storages.clear()
        self._reader.drop()
        self._kinds = []
        self._held = self._count = 0
