"""Reads tensors that wait on a device: in batches, by one launch for each element type.

reader = DeviceReader(fingerprint=True, tell=…, keeper=None)
place = reader.open(device, stream)            one stream of one device, with the entries that wait there
reader.read(place, then_wait=False)            all of them
reader.read_planned(place, planned, script)    tensors of a step that follows a plan: only their addresses are new
reader.fetched()                               tickets and rows of sums; why others have none is in `reader.reasons`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..protocol import Keeper, Lost
from ..runs import Runs
from . import tensors as looking
from .batches import MAX_ENTRIES, Entry, Forms, Walk, launch, launch_forms, triton_for, walk_of
from .outlets import Outlet
from .streams import is_lost, no_modes, on_stream
from .sums import DeviceSums

_LARGEST_WALK = 4 << 30  # bytes of an expanded view that is walked at all, as on the host


class Place:
    """One stream of one device: what waits there."""

    __slots__ = ("device", "entries", "kernels", "stream")

    def __init__(self, device: torch.device, stream: int, kernels: ModuleType | None) -> None:
        self.device, self.stream, self.kernels = device, stream, kernels
        self.entries: list[Entry] = []


class Planned:
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

    def only(self, places: Sequence[int]) -> Planned:
        """Some of them."""
        found = Planned()
        for name in Planned.__slots__:
            mine = getattr(self, name)
            setattr(found, name, [mine[place] for place in places])
        return found


class DeviceReader:
    """Launches the reading of tensors, and has the sums until they are fetched."""

    def __init__(self, fingerprint: bool, tell: Callable[[str, str], None], keeper: Keeper | None) -> None:
        self._fingerprint, self._tell, self._keeper = fingerprint, tell, keeper
        self._sums = DeviceSums()
        self._walks: dict[Any, Walk | None] = {}
        self._slow: set[str] = set()
        self._outlets: dict[Any, Outlet] = {}
        self.streams: set[int] = set()
        """Streams on which something was read."""
        self.reasons: dict[int, str] = {}
        """Why a ticket has no sums."""

    def open(self, device: torch.device, stream: int) -> Place:
        """A place for what is seen on this stream."""
        kernels = triton_for(device)
        if kernels is None or device.type in self._slow:
            kernels = None
            self._tell(
                "device",
                f"Triton cannot be used on {device.type} here: values are read by the framework's own operations, "
                "which takes longer.",
            )
        self.streams.add(stream)
        return Place(device, stream, kernels)

    def read(self, place: Place, then_wait: bool) -> None:
        """Launch the reading of all that waits at a place."""
        entries, place.entries = place.entries, []
        ready = []
        for entry in entries:
            reason = reason_of(entry)
            if reason is None:
                ready.append(entry)
            else:
                self.reasons[entry.ticket] = reason
        self._read_batches(place, ready, then_wait)

    def read_planned(self, place: Place, taken: Planned, script: Any, then_wait: bool) -> None:
        """Launch the reading of a plan's tensors: all is known of them but their addresses."""
        taken = self.unchanged(taken)
        if place.kernels is None:
            self._read_batches(place, self.entries_of(taken, place), then_wait)
            return
        forms = script.forms
        if forms is None:
            forms = script.forms = Forms(script.facts, place.kernels)
        numbers, addresses = np.array(taken.numbers, np.int64), np.array(taken.addresses, np.int64)
        usual = (forms.which[numbers] >= 0) & (addresses & 7 == 0)
        if not usual.all():
            others = taken.only(np.flatnonzero(~usual).tolist())
            self._read_batches(place, self.entries_of(others, place), then_wait)
            taken = taken.only(np.flatnonzero(usual).tolist())
            numbers, addresses = numbers[usual], addresses[usual]
        if not taken.numbers:
            return
        try:
            with (
                torch.no_grad(),
                no_modes(),
                on_stream(place.device, place.stream, len(self.streams) > 1, taken.tensors, then_wait),
            ):
                tickets, target = self._sums.rows(place.device, len(numbers))
                launch_forms(forms, numbers, addresses, target, self._fingerprint, place.kernels, self._sums.pin)
            tickets += taken.numbers
        except Exception:  # noqa: BLE001 - the other way is tried, and says why it does not work
            self._read_batches(place, self.entries_of(taken, place), then_wait)

    def entries_of(self, taken: Planned, place: Place) -> list[Entry]:
        """Entries without their storages."""
        found = []
        for number, tensor, address, version in taken.each():
            facts, walk = looking._plan(tensor), None
            if not facts.order or address & 7:
                body, walk = self.lay_out(tensor, facts, address, place)
                if body is not tensor:
                    tensor, address, version = body, body.data_ptr(), body._version
            found.append(Entry(address, facts.whole, facts.look.dtype, walk, tensor, None, 0, version, number))
        return found

    def lay_out(self, body: Tensor, plan: Any, address: int, place: Place) -> tuple[Tensor, Walk | None]:
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
        with no_modes():
            copied = body.detach().resolve_neg().resolve_conj().contiguous()
            return copied.clone() if copied.data_ptr() % 8 else copied, None

    def unchanged(self, taken: Planned) -> Planned:
        """Tensors that can still be read; the others are missing, with a reason."""
        versions = [tensor._version for tensor in taken.tensors]
        addresses = [tensor.data_ptr() for tensor in taken.tensors]
        if versions == taken.versions and addresses == taken.addresses:
            return taken  # as nearly always
        kept = []
        for place, number in enumerate(taken.numbers):
            if versions[place] != taken.versions[place]:
                self.reasons[number] = "it was written to, unseen, before it was read"
            elif addresses[place] != taken.addresses[place]:
                self.reasons[number] = "its memory was given away, unseen, before it was read"
            else:
                kept.append(place)
        return taken.only(kept)

    def _read_batches(self, place: Place, ready: list[Entry], then_wait: bool) -> None:
        for start in range(0, len(ready), MAX_ENTRIES):
            batch = ready[start : start + MAX_ENTRIES]
            try:
                tensors = [entry.tensor for entry in batch]
                with (
                    torch.no_grad(),
                    no_modes(),
                    on_stream(place.device, place.stream, len(self.streams) > 1, tensors, then_wait),
                ):
                    self._launch(place, batch)
            except Exception as error:  # noqa: BLE001 - out of memory, an error of the device: the training meets its own
                text = (str(error).splitlines() or [type(error).__name__])[0][:200]
                for entry in batch:
                    self.reasons[entry.ticket] = f"the device could not read it: {text}"

    def _launch(self, place: Place, batch: list[Entry]) -> None:
        tickets, target = self._sums.rows(place.device, len(batch))
        try:
            launch(batch, target, self._fingerprint, place.kernels, self._sums.pin)
        except Exception as error:
            if place.kernels is None or "out of memory" in str(error).lower() or is_lost(place.device):
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
            launch(batch, target, self._fingerprint, None, self._sums.pin)
        tickets += [entry.ticket for entry in batch]
        if self._keeper is not None:
            self._keep(place, batch, target, self._keeper)

    def _keep(self, place: Place, batch: list[Entry], target: Tensor, keeper: Keeper) -> None:
        """Give the values out that the keeper has not: now, while nothing has written to them. Waits for the device."""
        outlet = self._outlets.get(place.device)
        if outlet is None:
            outlet = self._outlets[place.device] = Outlet(place.device)
        for entry, row in zip(batch, target.cpu().numpy(), strict=True):
            if keeper.wants(entry.ticket, row, entry.dtype, entry.nbytes):
                keeper.store(entry.ticket, outlet.pieces(entry.tensor), entry.nbytes)

    def fetched(self) -> Iterator[tuple[list[int], np.ndarray[Any, Any]]]:
        """Rows that could be had, with their tickets; the others have a reason."""
        for tickets, rows in self._sums.fetch(self.streams):
            if isinstance(rows, str):
                self.reasons.update(dict.fromkeys(tickets, rows))
            else:
                yield tickets, rows

    def clear(self) -> None:
        """Begin a step: what was fetched is let go."""
        self.reasons = {}
        self._sums.clear()

    def drop(self) -> None:
        """Let go of all memory."""
        self.reasons = {}
        self._sums.drop()
        self._outlets.clear()


def reason_of(entry: Entry) -> str | None:
    """Why a tensor that has waited cannot be read any more."""
    tensor = entry.tensor
    if entry.version is not None and tensor._version != entry.version:
        return "it was written to, unseen, before it was read"
    if tensor.data_ptr() != entry.address or entry.memory.nbytes() < entry.span:
        return "its memory was given away, unseen, before it was read"
    return None
