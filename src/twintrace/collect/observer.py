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

import contextlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..frameworks.protocol import Digests, Framework, Glance, Look, Lost, Unreadable
from ..frameworks.runs import Runs
from ..model.errors import TraceWriteError
from ..model.records import Keep
from ..model.tensors import Location, Tensor
from ..store.device_sums import finish
from ..store.digest import address_of, gatherer, numbers_along, numbers_at, sampler
from ..store.lines import encode as encode_json
from ..store.lines import seal_text, text_float
from ..store.writer import Lines, TraceWriter, Writer
from .late import HeldLines
from .lockstep import Lockstep
from .watching import NonfiniteWatch

if TYPE_CHECKING:
    from ..store.digest import Found

_STATS = '"stats":['
"""Position of the statistics in the text of a tensor's values."""
_ORDER = ',"order":'
"""Position of the order sums in the text of a tensor's values."""
_PURGE_EVERY = 4096
_MAX_WRITTEN = 16  # tensors of a call whose writer is remembered; an optimizer's are its results anyway
_MAX_WALKED = 4 << 30  # bytes of a view that is walked here at all: half a second's work
_MAX_LATE = 1 << 14  # lines that wait for values on a device; then the device is waited for
_MAX_GATHERED = 8 << 20  # bytes of a view that are brought together as a whole; an expanded one may be of any size

_Seen = tuple[int, int, str, "int | None", Any]
"""A view when it was read: its state, its number, the text of its values, its maker, its storage. The state is a hash of what must
be the same for a value to be the same: version, life of the storage, a few words.
"""


@dataclass(slots=True)
class Known:
    """A tensor that was seen while a plan was followed."""

    number: int
    head: str
    rest: str
    by: int | None
    row: int
    """The ticket of its values, which are known late; -1: its line has been written."""
    text: str
    seat: Any
    """None: it cannot be met again as it was."""
    stretch: Any
    version: Any
    sample: object
    wants: bool


class _Witness:
    """A tensor that changes whenever certain others do, as it was when it was last looked at."""

    __slots__ = ("check", "tensor", "version")

    def __init__(self, tensor: Any, version: Any, check: object) -> None:
        self.tensor, self.version, self.check = weakref.ref(tensor), version, check


class Observer:
    """Numbers the tensors of one journal after another."""

    def __init__(
        self,
        framework: Framework,
        keep: Keep,
        writer: Writer,
        *,
        autograd: bool = True,
        room: int | None = None,
        tell: Callable[[str, str], None] = lambda topic, text: None,
    ) -> None:
        """`autograd`: are results seen when autograd has marked them? Beneath it, marks come later and are not told apart.

        `room`: bytes that tensors on a device may hold until they are read, None for the framework's own choice; `tell(topic,
        text)` is told what the user should know of that.
        """
        self._framework = framework
        self._keep = keep
        self._writer = writer
        self._journal: Lines | None = None
        # Of numbers and plain tuples, and few of these, on purpose: there are thousands in a step, and Python's garbage collector
        # takes its time over all that may lead to something else.
        self._holds: dict[Any, Any] = {}  # by storage
        self._lives: dict[Any, int] = {}  # by storage: another number whenever all that is known of it is void
        # By seat: where no gradient is wanted, and where one is.
        self._seen: tuple[dict[Any, _Seen], dict[Any, _Seen]] = {}, {}
        self._spoken: dict[Any, _Seen] = {}  # by stretch
        self._witnesses: dict[Any, _Witness] = {}  # by storage
        # By storage: who wrote last, its version then, from where to where.
        self._writers: dict[Any, tuple[int, Any, int, int]] = {}
        self._makers: dict[int, tuple[weakref.ref[Any], int]] = {}  # by object
        self._last_life = 0
        self._next = 0
        self._purge_at = _PURGE_EVERY
        self.producer: int | None = None
        """The call whose results are being observed."""
        self.payload_trouble: TraceWriteError | None = None
        self.watch: NonfiniteWatch | None = None
        """Hears of every value that is not finite."""
        self.lockstep: Lockstep | None = None
        """Hears of every value."""
        self.gaps: dict[str, str] = {}
        """Values that are missing and should not be, by topic; whoever tells it takes it out."""
        self._autograd = autograd
        self._glance, self._sample, self._gather = framework.glance, sampler(), gatherer()
        self._scratch = np.empty(0, np.uint8)
        # With tensors kept an array of them is needed anyway.
        self._in_place = keep is not Keep.TENSOR
        self._fingerprint = keep is not Keep.STATISTICS
        self._fingerprints: dict[int, str] = {}  # by ticket
        # By ticket: where the bytes of a value on a device are, as a field of its line.
        self._places: dict[int, str] = {}
        # With another tool's writer values are needed as a whole, and at once.
        self._waits = self._in_place or isinstance(writer, TraceWriter)
        # Values on a device are known later: their text is a mark until then, and their lines wait with it.
        self._room, self._tell = room, tell
        self._digests: Digests | None = None
        self._late: list[tuple[str, str, str]] = []  # mark, line before the values, line after them
        self._known: dict[str, str] = {}  # by mark, of those that have been read
        self._batch = 0
        self.log: list[int] | None = None
        """Numbers in the order in which tensors are observed, while somebody wants to know."""
        self.marks: dict[int, str] = {}
        """The mark of each number whose values are known late; likewise."""

    @property
    def count(self) -> int:
        """Number of tensors in this journal."""
        return self._next

    @property
    def waiting(self) -> bool:
        """Are there tensors on a device that wait to be read?"""
        return self._digests is not None and self._digests.waiting > 0

    def holds(self, tensors: Iterable[Any]) -> bool:
        """Does one of these wait to be read, or something that shares its memory?"""
        return self._digests is not None and self._digests.holds(tensors)

    def before_write(self, tensors: Iterable[Any]) -> None:
        """These are about to be written to: on a device they may still wait to be read."""
        if self._digests is not None:
            self._digests.before_write(tensors)

    def before_unseen(self) -> None:
        """Reads all that waits: the next call may write to anything."""
        if self._digests is not None:
            self._digests.flush()

    def settle(self) -> None:
        """Write the lines of tensors on a device, of which the values are known now: this waits for the device."""
        if self._digests is None or not self._late:
            return
        outcomes = self._digests.collect()
        texts = self._texts_of(outcomes)
        known = {f"\0{self._batch}.{ticket}": text for ticket, text in enumerate(texts)}
        self._known |= known
        self._batch += 1
        late, self._late = self._late, []
        assert self._journal is not None
        if self.watch is not None:
            for mark, head, _ in late:
                self._notice(_number_of(head), known[mark])
        if self.lockstep is not None:
            for mark, head, rest in late:
                self.lockstep.tensor(_number_of(head), head, known[mark], rest)
        lines = [seal_text(f"{head}{known[mark]}{rest}") for mark, head, rest in late]
        if isinstance(self._journal, HeldLines):
            self._journal.release(lines)
        else:
            for line in lines:
                self._journal.add(line)

    def _texts_of(self, outcomes: list[tuple[str, int, Any]]) -> list[str]:
        """Texts about the values, by ticket."""
        texts = [""] * len(outcomes)
        read: list[int] = []
        nothing = np.zeros(16, np.int64)
        for ticket, (dtype, nbytes, outcome) in enumerate(outcomes):
            if isinstance(outcome, str):
                texts[ticket] = f',"missing":{encode_json(outcome)}'
                self.gaps.setdefault(
                    "missing", f"the values of a tensor ({dtype}, {nbytes} bytes) are not kept: {outcome}"
                )
            else:
                read.append(ticket)
        if read:
            rows = np.array(
                [nothing if outcomes[ticket][2] is None else outcomes[ticket][2] for ticket in read], np.int64
            )
            dtypes, sizes = [outcomes[ticket][0] for ticket in read], [outcomes[ticket][1] for ticket in read]
            for ticket, numbers in zip(read, finish(rows, dtypes, sizes, self._fingerprint), strict=True):
                texts[ticket] = text_of_numbers(numbers)
                if self._keep is Keep.TENSOR:
                    empty = "" if outcomes[ticket][1] else self._payload(np.empty(0, np.uint8), numbers[8] or "")
                    texts[ticket] += self._places.get(ticket, empty)
        self._places.clear()
        self._fingerprints.clear()
        return texts

    # --- values on a device that are kept (Keeper) --------------------------------------------------------------------

    def wants(self, ticket: int, sums: np.ndarray[Any, Any], dtype: str, nbytes: int) -> bool:
        assert isinstance(self._writer, TraceWriter)
        (found,) = finish(sums[None], [dtype], [nbytes], True)
        self._fingerprints[ticket] = found[8] or ""
        if self.payload_trouble is not None:
            self._places[ticket] = f',"missing":{encode_json(str(self.payload_trouble))}'
            return False
        place = self._writer.find(self._fingerprints[ticket], nbytes)
        if place is not None:
            self._places[ticket] = _place_text(place)
        return place is None

    def store(self, ticket: int, pieces: Iterable[np.ndarray[Any, Any]], nbytes: int) -> None:
        assert isinstance(self._writer, TraceWriter)
        try:
            place = self._writer.store_pieces(pieces, nbytes, self._fingerprints[ticket])
        except TraceWriteError as error:
            self.payload_trouble = error
            self._places[ticket] = f',"missing":{encode_json(str(error))}'
        else:
            self._places[ticket] = _place_text(place)

    # --- steps that follow a plan -----------------------------------------------------------------------------------

    @property
    def digests(self) -> Digests | None:
        """The reader of tensors on a device, once there has been one."""
        return self._digests

    @property
    def is_idle(self) -> bool:
        """Has nothing been observed in this journal, and is nothing waited for?"""
        return not self._next and not self._late and not self.waiting

    def sample(self, tensor: Any) -> object:
        """A few words of a tensor on the host."""
        glance = self._glance(tensor)
        return self._sample(glance[5], glance[6]) if glance is not None and glance[5] else None

    def read(self, tensor: Any, dtype: str) -> Found:
        """The numbers of a tensor on the host."""
        array = self._framework.host(tensor)
        return numbers_at(address_of(array), array.nbytes, dtype, self._fingerprint)

    @property
    def fingerprints(self) -> bool:
        return self._fingerprint

    def resume(self, count: int, known: Iterable[Known], holds: dict[Any, Any]) -> None:
        """Go on after `count` tensors that were seen by somebody else: their lines are written, and they are recognised.

        `holds` are weak holds on their storages, which are this observer's from now on.
        """
        assert self._journal is not None
        self._next = count
        for key, hold in holds.items():
            if key in self._holds:
                self._framework.release(self._holds[key])
            self._holds[key] = hold
            self._last_life += 1
            self._lives[key] = self._last_life
            self._witnesses.pop(key, None)
        for each in known:
            text = each.text
            if each.row >= 0:
                text = f"\0{self._batch}.{each.row}"
                self._late.append((text, each.head, each.rest))
                if self.log is not None:
                    self.marks[each.number] = text
            if each.seat is None:
                continue
            storage = each.seat[0]
            state = hash((each.version, self._lives[storage], each.sample))
            seen = state, each.number, text, each.by, storage
            self._seen[self._autograd and each.wants][each.seat] = seen
            if each.stretch is not None:
                self._spoken[each.stretch] = seen

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
        for key, hold in self._holds.items():
            # With tensors kept, what is said of the values names a place in this step's payload.
            if key in self._witnesses and self._keep is not Keep.TENSOR and not released(hold):
                lasting[key] = hold
            else:
                release(hold)
        self._holds = lasting
        self._lives = {key: self._lives[key] for key in lasting}
        self._witnesses = {key: self._witnesses[key] for key in lasting}
        for seen in self._seen:
            seen.clear()
        self._writers.clear()
        self._makers.clear()
        self._drop_strays(self._spoken)
        for stretch, spoken in list(self._spoken.items()):  # said again in the next step by what is known now
            if spoken[2].startswith("\0"):
                text = self._known.get(spoken[2], "")
                if text and '"missing"' not in text:
                    self._spoken[stretch] = (*spoken[:2], text, *spoken[3:])
                else:
                    del self._spoken[stretch]
        self._known.clear()

    def forget_all(self) -> None:
        """Release every storage."""
        if self._digests is not None:
            self._digests.drop()
        for hold in self._holds.values():
            self._framework.release(hold)
        for known in (
            self._holds,
            self._lives,
            *self._seen,
            self._spoken,
            self._witnesses,
            self._writers,
            self._makers,
        ):
            known.clear()

    def remember(self, tensors: Sequence[Any], witness: Any) -> None:
        """These change only when the witness does: while that is as it is now, what is known of them lasts beyond the step."""
        glance = self._glance(witness)
        if glance is None:
            return
        _, _, version, _, _, address, nbytes, _, _ = glance
        seen = _Witness(witness, version, self._sample(address, nbytes) if address else None)
        for tensor in tensors:
            key = self._framework.storage(tensor)
            if key in self._holds:
                self._witnesses[key] = seen

    def look_again(self) -> None:
        """Ask the witnesses: calls may have gone unseen. Who writes without counting versions still counts its steps."""
        unchanged: dict[_Witness, bool] = {}
        for key, witness in list(self._witnesses.items()):
            if witness not in unchanged:
                unchanged[witness] = self._is_unchanged(witness)
            if not unchanged[witness]:
                del self._witnesses[key]
                self._begin_anew(key)

    def _is_unchanged(self, witness: _Witness) -> bool:
        tensor = witness.tensor()
        glance = None if tensor is None else self._glance(tensor)
        if glance is None:
            return False
        _, _, version, _, _, address, nbytes, _, _ = glance
        return bool(
            version == witness.version and (self._sample(address, nbytes) if address else None) == witness.check
        )

    def forget(self, tensors: Sequence[Any], writer: int | None = None) -> None:
        """These were written to: whatever was known of their storages is no longer so. `writer`: the call that did it."""
        for tensor in tensors:
            self._begin_anew(self._framework.storage(tensor))
            if writer is not None and len(tensors) <= _MAX_WRITTEN:
                self._note_writer(tensor, writer)

    def forget_everything(self) -> None:
        """Anything may have been written to: whatever was known of any storage is no longer so."""
        for key in list(self._lives):
            self._begin_anew(key)

    def _note_writer(self, tensor: Any, writer: int) -> None:
        glance = self._glance(tensor)
        if glance is not None and (end := _end(glance)):
            self._writers[glance[0]] = writer, glance[2], glance[5], end

    def _writer_of(self, glance: Glance) -> int | None:
        """Call that wrote to this memory through another view, if no other has written to it since."""
        writer, version, start, end = self._writers.get(glance[0], (None, None, 0, 0))
        return (
            writer if writer is not None and version == glance[2] and glance[5] < end and start < _end(glance) else None
        )

    def _begin_anew(self, key: Any) -> None:
        if key in self._lives:
            self._last_life += 1
            self._lives[key] = self._last_life

    def observe(self, tensor: Any) -> int:
        """The number of this tensor's present value."""
        number = self._observe(tensor)
        if self.log is not None:
            self.log.append(number)
        return number

    def _observe(self, tensor: Any) -> int:
        glance = self._glance(tensor)
        if glance is None:
            return self._write(tensor, self._framework.look(tensor), "", self._maker_of(tensor))[0]
        key, seat, version, look, stretch, address, nbytes, order, runs = glance
        life = self._lives.get(key) or self._meet(key, tensor)
        state = hash((version, life, self._sample(address, nbytes) if address else None))
        wants = self._autograd and look.requires_grad
        seen = self._seen[wants].get(seat)
        if seen is not None and seen[0] == state:
            return seen[1]
        by, text = self.producer, ""
        if by is None and key in self._writers:  # not a result, and new
            by = self._writer_of(glance)
        twin = self._seen[not wants].get(seat)
        if twin is not None and twin[0] == state:
            text, by = twin[2], twin[3]
        if order is not None and not self._fingerprint:  # statistics do not mind the order
            stretch = address, nbytes, look.dtype
        if stretch is not None and not text:
            spoken = self._spoken.get(stretch)
            if spoken is not None and spoken[0] == state:
                text = spoken[2]
                if order is not None and not self._fingerprint:  # the order sums do mind it
                    text = text.partition(_ORDER)[0] if order is False else text if _ORDER in text else ""
        if not text and self._in_place and not look.parts:
            if order or (order is False and not self._fingerprint):
                text = self._text_at(address, nbytes, look.dtype)[0]
                if order is False:
                    text = text.partition(_ORDER)[0]
            elif runs is not None:
                text = self._text_along(address, runs, look.dtype)
        number, text = self._write(tensor, look, text, by)
        self._seen[wants][seat] = seen = state, number, text, by, key
        if stretch is not None and text:
            self._spoken[stretch] = seen
        return number

    def _maker_of(self, tensor: Any) -> int | None:
        """Call that put out this very object, which cannot be recognised by its memory. It is read every time."""
        if self.producer is not None:
            with contextlib.suppress(TypeError):  # an object that nobody may refer to weakly
                self._makers[id(tensor)] = weakref.ref(tensor), self.producer
            return self.producer
        object_, maker = self._makers.get(id(tensor), (None, None))
        return maker if object_ is not None and object_() is tensor else None

    def _meet(self, key: Any, tensor: Any) -> int:
        """A storage that was not seen before."""
        if len(self._holds) >= self._purge_at:
            self._purge()
        self._holds[key] = self._framework.hold(tensor)
        self._last_life += 1
        self._lives[key] = self._last_life
        return self._last_life

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

    def _write(self, tensor: Any, look: Look, values: str, producer: int | None) -> tuple[int, str]:
        """The next number, for this tensor, and what its line says of the values, if it can be said again."""
        number = self._next
        self._next = number + 1
        by = "null" if producer is None else producer
        rest = ""
        if look.parts:
            rest = self._parts(look)
        elif not values:
            try:
                if look.elsewhere and self._waits:
                    values = self._wait_for(tensor)
                if not values:
                    values = self._values(self._framework.host(tensor), look.dtype)
            except Unreadable as error:
                rest = f',"missing":{encode_json(str(error))}'
                if isinstance(error, Lost):
                    self.gaps.setdefault("missing", f"the values of a tensor ({look.text}) are not kept: {error}")
        if look.facts:
            rest += f',"facts":{encode_json(dict(look.facts))}'
        assert self._journal is not None
        head = f'{{"k":"tensor","id":{number},{look.text},"by":{by}'
        if values.startswith("\0"):
            if self.log is not None:
                self.marks[number] = values
            text = self._known.get(values)
            if text is None:
                self._late.append((values, head, rest))
                if isinstance(self._journal, HeldLines):
                    self._journal.hold()
                if len(self._late) >= _MAX_LATE:
                    self.settle()
            else:
                self._journal.add(seal_text(f"{head}{text}{rest}"))
                if self.lockstep is not None:
                    self.lockstep.tensor(number, head, text, rest)
            return number, values
        self._journal.add(seal_text(f"{head}{values}{rest}"))
        if self.watch is not None:
            self._notice(number, values)
        if self.lockstep is not None:
            self.lockstep.tensor(number, head, values, rest)
        return number, values

    def _notice(self, number: int, text: str) -> None:
        """Tell the watch of a tensor that is not finite."""
        start = text.find(_STATS)
        if start < 0 or self.watch is None:
            return
        nan, posinf, neginf, _ = text[start:].partition("]")[0].rsplit(",", 4)[1:]
        if nan != "0" or posinf != "0" or neginf != "0":
            self.watch.counts[number] = int(nan), int(posinf), int(neginf)

    def keep_value(self, look: Look, array: np.ndarray[Any, Any]) -> int:
        """Another number for a value, with its bytes in the payload whatever is kept of the others."""
        number = self._next
        self._next = number + 1
        array = np.ascontiguousarray(array)
        found = numbers_at(address_of(array), array.nbytes, look.dtype, True)
        text = text_of_numbers(found) + (self._payload(array, found[8]) if found[8] else "")
        assert self._journal is not None
        self._journal.add(seal_text(f'{{"k":"tensor","id":{number},{look.text},"by":null{text}'))
        return number

    def _wait_for(self, tensor: Any) -> str:
        """The mark of a tensor on a device, which waits to be read; nothing where the framework reads none there."""
        if self._digests is None:
            self._digests = self._framework.digests(
                fingerprint=self._fingerprint,
                room=self._room,
                tell=self._tell,
                keeper=self if self._keep is Keep.TENSOR else None,
            )
            if self._digests is None:
                return ""
        return f"\0{self._batch}.{self._digests.submit(tensor)}"

    def _values(self, array: np.ndarray[Any, Any], dtype: str) -> str:
        text, fingerprint = self._text_at(address_of(array), array.nbytes, dtype)
        return text + self._payload(array, fingerprint) if fingerprint and self._keep is Keep.TENSOR else text

    def _text_at(self, address: int, nbytes: int, dtype: str) -> tuple[str, str | None]:
        """Fields of a line on the values that lie there, and their fingerprint."""
        found = numbers_at(address, nbytes, dtype, self._fingerprint)
        return text_of_numbers(found), found[8]

    def _text_along(self, address: int, runs: Runs, dtype: str) -> str:
        """The same of values that do not lie one beside the other; nothing where that would be slow here."""
        nbytes = runs.nbytes
        if self._gather is None or nbytes > _MAX_WALKED:
            return ""
        if nbytes > _MAX_GATHERED and dtype in ("f64", "c128"):  # squares that leave the range need all of it at once
            return ""
        if nbytes > _MAX_GATHERED:
            return text_of_numbers(numbers_along(self._gather, address, runs, dtype, self._fingerprint))
        if nbytes > self._scratch.nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        place = address_of(self._scratch)
        self._gather(address, runs.table, runs.size, place)
        return self._text_at(place, nbytes, dtype)[0]

    def _payload(self, array: np.ndarray[Any, Any], fingerprint: str) -> str:
        if self.payload_trouble is None:
            try:
                place = self._writer.store(array.reshape(-1).view(np.uint8), fingerprint)
            except TraceWriteError as error:
                self.payload_trouble = error
            else:
                return _place_text(place)
        return f',"missing":{encode_json(str(self.payload_trouble))}'

    def _parts(self, look: Look) -> str:
        numbers = {name: self.observe(part) for name, part in look.parts.items()}
        return f',"parts":{encode_json(numbers)}'

    def _purge(self) -> None:
        """Forget storages that are gone; the next purge comes when as many again have been seen."""
        gone = [key for key, hold in self._holds.items() if self._framework.released(hold)]
        for key in gone:
            self._framework.release(self._holds.pop(key))
            self._lives.pop(key)
            self._witnesses.pop(key, None)
            self._writers.pop(key, None)
        for known in (*self._seen, self._spoken):
            self._drop_strays(known)
        self._purge_at = max(_PURGE_EVERY, 2 * len(self._holds))

    def _drop_strays(self, known: dict[Any, _Seen]) -> None:
        """Forgets tensors whose storages are gone."""
        strays = [each for each, seen in known.items() if seen[4] not in self._holds]
        for each in strays:
            del known[each]


def _place_text(place: Location) -> str:
    """Location of the bytes of a value, as a field of a line."""
    step = "" if place.step is None else f",{place.step}"
    return f',"at":[{place.offset},{place.nbytes}{step}]'


def _number_of(head: str) -> int:
    """The number in the beginning of a tensor's line."""
    return int(head.split(",", 2)[1].removeprefix('"id":'))


def _end(glance: Glance) -> int:
    """Where the memory of a view ends; 0 where that is not known."""
    _, _, _, _, _, address, nbytes, order, runs = glance
    if order is not None:
        return address + nbytes
    if runs is None or not runs.nbytes or (runs.table[:, 1] < 0).any():
        return 0
    return address + int(((runs.table[:, 0] - 1) * runs.table[:, 1]).sum()) + runs.size


def text_of_numbers(numbers: Found) -> str:
    """Statistics and fingerprint as fields of a line."""
    low, high, mean, norm, nan, posinf, neginf, zero, found, one, two = numbers
    if norm is not None and norm < inf:  # then the other three are finite too
        text = f',"stats":[{low!r},{high!r},{mean!r},{norm!r},{nan},{posinf},{neginf},{zero}]'
    else:
        ends = ",".join("null" if each is None else text_float(each) for each in (low, high, mean, norm))
        text = f',"stats":[{ends},{nan},{posinf},{neginf},{zero}]'
    if found is not None:
        text = f'{text},"fp":"{found}"'
    return text if one is None else f"{text}{_ORDER}[{one!r},{two!r}]"
