"""Look at tensors: a number for each value that was seen, its line in the journal, its bytes in the payload.

    observe(x)   ->  7      first sight: read once, statistics and fingerprint, a line `tensor 7`
    observe(x)   ->  7      the same storage, the same version: not read again
    x.add_(1)
    observe(x)   ->  9      another version: another value, another number
    observe(x.view(-1)) 10  the same bytes in another shape: another number, but not read again
    x.requires_grad_()
    observe(x)   -> 11      the same value, and a gradient is wanted: another number with the same maker, not read again

Numbers are what makes the data flow: the call that puts out tensor 7 is its producer, and whoever takes 7 takes that very value.

A version counter does not see everything (writes through `.data`, through numpy, by foreign kernels). So a few words all over a
tensor that seems unchanged are compared as well: if they differ, it is a new value.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from ..frameworks.protocol import Framework, Look, Unreadable
from ..model.errors import TraceWriteError
from ..model.records import Keep
from ..model.tensors import Tensor
from ..store.digest import address_of, numbers_at, sampler
from ..store.lines import encode as encode_json
from ..store.lines import seal_text, text_float
from ..store.writer import Lines, Writer

_PURGE_EVERY = 4096


class _Seen:
    """A view of a storage, as it was when it was read, and what was written of its values."""

    __slots__ = ("by", "check", "id", "text", "version")

    def __init__(self, version: Any, identity: int, check: object, text: str, by: int | None) -> None:
        self.version, self.id, self.check, self.text, self.by = version, identity, check, text, by


class _Witness:
    """A tensor that changes whenever certain others do, as it was when it was last looked at."""

    __slots__ = ("check", "tensor", "version")

    def __init__(self, tensor: Any, version: Any, check: object) -> None:
        self.tensor, self.version, self.check = weakref.ref(tensor), version, check


class _Storage:
    """What is known of one storage: the views of it that were seen, and which of them lies on which stretch of memory."""

    __slots__ = ("hold", "stretches", "views", "witness")

    def __init__(self, hold: Any) -> None:
        self.hold = hold
        self.witness: _Witness | None = None
        self.views: dict[Any, _Seen] = {}
        self.stretches: dict[Any, _Seen] = {}


class Observer:
    """Numbers the tensors of one journal after another."""

    def __init__(self, framework: Framework, keep: Keep, writer: Writer, *, autograd: bool = True) -> None:
        """`autograd`: are results seen when autograd has marked them? Beneath it, marks come later and are not told apart."""
        self._framework = framework
        self._keep = keep
        self._writer = writer
        self._journal: Lines | None = None
        self._storages: dict[Any, _Storage] = {}
        self._next = 0
        self._purge_at = _PURGE_EVERY
        self.producer: int | None = None
        """The call whose results are being observed."""
        self.payload_trouble: TraceWriteError | None = None
        self._autograd = autograd
        self._glance, self._sample = framework.glance, sampler()
        # With tensors kept an array of them is needed anyway.
        self._in_place = keep is not Keep.TENSOR
        self._fingerprint = keep is not Keep.STATISTICS

    @property
    def count(self) -> int:
        """How many tensors this journal has."""
        return self._next

    def begin(self, journal: Lines) -> None:
        """A new journal: numbers begin at 0, and nothing is known but what lasts."""
        self.end()
        self.look_again()
        self._journal = journal
        self._next = 0

    def end(self) -> None:
        """The journal has ended: release every storage, except those whose digests may be said again in the next."""
        release, released = self._framework.release, self._framework.released
        lasting = {}
        for key, storage in self._storages.items():
            # With tensors kept, what is said of the values names a place in this step's payload.
            if storage.witness is not None and self._keep is not Keep.TENSOR and not released(storage.hold):
                storage.views.clear()
                lasting[key] = storage
            else:
                release(storage.hold)
        self._storages = lasting

    def forget_all(self) -> None:
        """Release every storage."""
        for storage in self._storages.values():
            self._framework.release(storage.hold)
        self._storages.clear()

    def remember(self, tensors: Sequence[Any], witness: Any) -> None:
        """These change only when the witness does: while that is as it is now, what is known of them lasts beyond the step."""
        glance = self._glance(witness)
        if glance is None:
            return
        _, _, version, _, _, address, nbytes, _ = glance
        seen = _Witness(witness, version, self._sample(address, nbytes) if address else None)
        for tensor in tensors:
            storage = self._storages.get(self._framework.storage(tensor))
            if storage is not None:
                storage.witness = seen

    def look_again(self) -> None:
        """Ask the witnesses: calls may have gone unseen. Who writes without counting versions still counts its steps."""
        unchanged: dict[_Witness, bool] = {}
        for storage in self._storages.values():
            witness = storage.witness
            if witness is None:
                continue
            if witness not in unchanged:
                unchanged[witness] = self._is_unchanged(witness)
            if not unchanged[witness]:
                storage.witness = None
                storage.views.clear()
                storage.stretches.clear()

    def _is_unchanged(self, witness: _Witness) -> bool:
        tensor = witness.tensor()
        glance = None if tensor is None else self._glance(tensor)
        if glance is None:
            return False
        _, _, version, _, _, address, nbytes, _ = glance
        return bool(
            version == witness.version and (self._sample(address, nbytes) if address else None) == witness.check
        )

    def forget(self, tensors: Sequence[Any]) -> None:
        """These were written to: whatever was known of their storages is no longer so."""
        for tensor in tensors:
            storage = self._storages.get(self._framework.storage(tensor))
            if storage is not None:
                storage.views.clear()
                storage.stretches.clear()

    def observe(self, tensor: Any) -> int:
        """The number of this tensor's present value."""
        number = self._next
        glance = self._glance(tensor)
        if glance is None:
            self._write(tensor, self._framework.look(tensor), "", self.producer)
            return number
        key, seat, version, look, stretch, address, nbytes, order = glance
        check = self._sample(address, nbytes) if address else None
        wants = self._autograd and look.requires_grad
        storage = self._storages.get(key)
        if storage is None:
            if len(self._storages) >= self._purge_at:
                self._purge()
            storage = self._storages[key] = _Storage(self._framework.hold(tensor))
        seen = storage.views.get((seat, wants))
        if seen is not None and seen.version == version and seen.check == check:
            return seen.id
        by, text = self.producer, ""
        if order is not None and not self._fingerprint:  # statistics do not mind the order
            stretch = address, nbytes, look.dtype
        if stretch is not None:
            known = storage.stretches.get(stretch)
            if known is not None and known.version == version and known.check == check:
                text = known.text
        twin = storage.views.get((seat, not wants))
        if twin is not None and twin.version == version and twin.check == check:
            text, by = twin.text, twin.by
        if not text and self._in_place and (order or (order is False and not self._fingerprint)) and not look.parts:
            text = self._text_at(address, nbytes, look.dtype)[0]
        text = self._write(tensor, look, text, by)
        storage.views[seat, wants] = seen = _Seen(version, number, check, text, by)
        if stretch is not None and text:
            storage.stretches[stretch] = seen
        return number

    def take(self, tensor: Tensor, array: np.ndarray[Any, Any] | None) -> int:
        """The number of a value that is not in the framework's hands: it was read from a file."""
        number = self._next
        self._next = number + 1
        look = Look(tensor.spec.dtype, tensor.spec.shape, tensor.device, False)
        by = "null" if self.producer is None else self.producer
        missing = f',"missing":{encode_json(tensor.missing or "it was not dumped")}'
        rest = missing if array is None else self._values(array, look.dtype)
        if tensor.facts:
            rest += f',"facts":{encode_json(dict(tensor.facts))}'
        assert self._journal is not None
        self._journal.add(seal_text(f'{{"k":"tensor","id":{number},{look.text},"by":{by}{rest}'))
        return number

    def _write(self, tensor: Any, look: Look, values: str, producer: int | None) -> str:
        """Give the tensor the next number and write its line; what the line says of the values, if it can be said again."""
        number = self._next
        self._next = number + 1
        by = "null" if producer is None else producer
        rest = ""
        if look.parts:
            rest = self._parts(look)
        elif not values:
            try:
                values = self._values(self._framework.host(tensor), look.dtype)
            except Unreadable as error:
                rest = f',"missing":{encode_json(str(error))}'
        if look.facts:
            rest += f',"facts":{encode_json(dict(look.facts))}'
        assert self._journal is not None
        self._journal.add(seal_text(f'{{"k":"tensor","id":{number},{look.text},"by":{by}{values}{rest}'))
        return values

    def _values(self, array: np.ndarray[Any, Any], dtype: str) -> str:
        text, fingerprint = self._text_at(address_of(array), array.nbytes, dtype)
        return text + self._payload(array, fingerprint) if fingerprint and self._keep is Keep.TENSOR else text

    def _text_at(self, address: int, nbytes: int, dtype: str) -> tuple[str, str | None]:
        """What a line says of the values that lie there, and their fingerprint."""
        low, high, mean, norm, nan, posinf, neginf, zero, found = numbers_at(address, nbytes, dtype, self._fingerprint)
        if norm is not None and norm < inf:  # then the other three are finite too
            text = f',"stats":[{low!r},{high!r},{mean!r},{norm!r},{nan},{posinf},{neginf},{zero}]'
        else:
            numbers = ",".join("null" if each is None else text_float(each) for each in (low, high, mean, norm))
            text = f',"stats":[{numbers},{nan},{posinf},{neginf},{zero}]'
        return (text if found is None else f'{text},"fp":"{found}"'), found

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
