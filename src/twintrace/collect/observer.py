"""Look at tensors: a number for each value that was seen, its line in the journal, its bytes in the payload.

    observe(x)   ->  7      first sight: read once, statistics and fingerprint, a line `tensor 7`
    observe(x)   ->  7      the same storage, the same version: not read again
    x.add_(1)
    observe(x)   ->  9      another version: another value, another number

Numbers are what makes the data flow: the call that puts out tensor 7 is its producer, and whoever takes 7 takes that very value.

A version counter does not see everything (writes through `.data`, through numpy, by foreign kernels). So a few bytes of a tensor
that seems unchanged are compared as well: if they differ, it is a new value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from ..frameworks.protocol import Framework, Look, Unreadable
from ..model.errors import TraceWriteError
from ..model.records import Keep
from ..model.tensors import Statistics
from ..store.digest import digest
from ..store.lines import encode as encode_json
from ..store.lines import seal_text, text_float
from ..store.writer import Journal, TraceWriter

_PURGE_EVERY = 4096


class _Seen:
    """A view of a storage, as it was when it was read."""

    __slots__ = ("check", "id", "version")

    def __init__(self, version: Any, identity: int, check: bytes | None) -> None:
        self.version, self.id, self.check = version, identity, check


class _Storage:
    __slots__ = ("hold", "views")

    def __init__(self, hold: Any) -> None:
        self.hold = hold
        self.views: dict[Any, _Seen] = {}


class Observer:
    """Numbers the tensors of one journal after another."""

    def __init__(self, framework: Framework, keep: Keep, writer: TraceWriter) -> None:
        self._framework = framework
        self._keep = keep
        self._writer = writer
        self._journal: Journal | None = None
        self._storages: dict[Any, _Storage] = {}
        self._next = 0
        self._purge_at = _PURGE_EVERY
        self.producer: int | None = None
        """The call whose results are being observed."""
        self.payload_trouble: TraceWriteError | None = None
        self._identity, self._peek, self._look, self._host = (
            framework.identity,
            framework.peek,
            framework.look,
            framework.host,
        )

    @property
    def count(self) -> int:
        """How many tensors this journal has."""
        return self._next

    def begin(self, journal: Journal) -> None:
        """A new journal: numbers begin at 0, nothing is known."""
        self.forget_all()
        self._journal = journal
        self._next = 0

    def forget_all(self) -> None:
        """Release every storage."""
        for storage in self._storages.values():
            self._framework.release(storage.hold)
        self._storages.clear()

    def forget(self, tensors: Sequence[Any]) -> None:
        """These were written to: whatever was known of their storages is no longer so."""
        for tensor in tensors:
            storage = self._storages.get(self._framework.storage(tensor))
            if storage is not None:
                storage.views.clear()

    def observe(self, tensor: Any) -> int:
        """The number of this tensor's present value."""
        identity = self._identity(tensor)
        if identity is None:
            return self._read(tensor)
        key, view, version = identity
        storage = self._storages.get(key)
        if storage is not None:
            seen = storage.views.get(view)
            if seen is not None and seen.version == version and seen.check == self._peek(tensor):
                return seen.id
        number = self._read(tensor)
        if storage is None:
            if len(self._storages) >= self._purge_at:
                self._purge()
            storage = self._storages[key] = _Storage(self._framework.hold(tensor))
        storage.views[view] = _Seen(version, number, self._peek(tensor))
        return number

    def _read(self, tensor: Any) -> int:
        """Give the tensor a number and write its line."""
        number = self._next
        self._next = number + 1
        look = self._look(tensor)
        by = "null" if self.producer is None else self.producer
        body = f'{{"k":"tensor","id":{number},{look.text},"by":{by}'
        if look.parts:
            body += self._parts(look)
        else:
            try:
                array = self._host(tensor)
            except Unreadable as error:
                body += f',"missing":{encode_json(str(error))}'
            else:
                body += self._values(array, look.dtype)
        if look.facts:
            body += f',"facts":{encode_json(dict(look.facts))}'
        assert self._journal is not None
        self._journal.add(seal_text(body))
        return number

    def _values(self, array: np.ndarray[Any, Any], dtype: str) -> str:
        found = digest(array, dtype, fingerprint=self._keep is not Keep.STATISTICS)
        text = _statistics_text(found.statistics)
        if found.fingerprint is None:
            return text
        text += f',"fp":"{found.fingerprint}"'
        if self._keep is Keep.TENSOR:
            text += self._payload(array, found.fingerprint)
        return text

    def _payload(self, array: np.ndarray[Any, Any], fingerprint: str) -> str:
        if self.payload_trouble is None:
            try:
                place = self._writer.store(array.reshape(-1).view(np.uint8), fingerprint)
            except TraceWriteError as error:
                self.payload_trouble = error
            else:
                where = (
                    f"{place.offset},{place.nbytes}"
                    if place.step is None
                    else f"{place.offset},{place.nbytes},{place.step}"
                )
                return f',"at":[{where}]'
        return f',"missing":{encode_json(str(self.payload_trouble))}'

    def _parts(self, look: Look) -> str:
        numbers = {name: self.observe(part) for name, part in look.parts.items()}
        return f',"parts":{encode_json(numbers)}'

    def _purge(self) -> None:
        """Forget storages that are gone; the next purge comes when as many again have been seen."""
        gone = [key for key, storage in self._storages.items() if self._framework.released(storage.hold)]
        for key in gone:
            self._framework.release(self._storages.pop(key).hold)
        self._purge_at = max(_PURGE_EVERY, 2 * len(self._storages))


def _statistics_text(s: Statistics) -> str:
    counts = f"{s.nan},{s.posinf},{s.neginf},{s.zero}"
    if s.norm is not None and isfinite(s.norm):  # then the other three are finite too
        return f',"stats":[{s.min!r},{s.max!r},{s.mean!r},{s.norm!r},{counts}]'
    numbers = ",".join("null" if n is None else text_float(n) for n in (s.min, s.max, s.mean, s.norm))
    return f',"stats":[{numbers},{counts}]'
