"""Tensors as lines of a journal: statistics, fingerprint, the place of the bytes in the payload.

    lines.write(tensor, look, "", by)     7, ',"stats":[…],"fp":"…"': read now, a line `tensor 7`
    lines.settle()                        the lines of tensors on a device, whose values are known now

Values on a device are known later: their text is a mark until then, and their lines wait with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..frameworks.protocol import Digests, Framework, Look, Lost, Unreadable
from ..frameworks.runs import Runs
from ..model.errors import TraceWriteError
from ..model.records import Keep
from ..model.tensors import Location, Tensor
from ..store.device_sums import finish
from ..store.digest import address_of, gatherer, numbers_along, numbers_at
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
ORDER = ',"order":'
"""Position of the order sums in the text of a tensor's values."""
_MAX_WALKED = 4 << 30  # bytes of a view that is walked here at all: half a second's work
_MAX_LATE = 1 << 14  # lines that wait for values on a device; then the device is waited for
_MAX_GATHERED = 8 << 20  # bytes of a view that are brought together as a whole; an expanded one may be of any size


class TensorLines:
    """Numbers the tensors of one journal after another, reads them and writes their lines."""

    def __init__(
        self,
        framework: Framework,
        keep: Keep,
        writer: Writer,
        *,
        room: int | None = None,
        tell: Callable[[str, str], None] = lambda topic, text: None,
    ) -> None:
        """`room`: bytes that tensors on a device may hold until they are read, None for the framework's own choice; `tell(topic,
        text)` is told what the user should know of that.
        """
        self._framework = framework
        self._keep = keep
        self._writer = writer
        self._journal: Lines | None = None
        self._next = 0
        self.producer: int | None = None
        """The call whose results are being observed."""
        self.payload_trouble: TraceWriteError | None = None
        self.watch: NonfiniteWatch | None = None
        """Hears of every value that is not finite."""
        self.lockstep: Lockstep | None = None
        """Hears of every value."""
        self.gaps: dict[str, str] = {}
        """Values that are missing and should not be, by topic; whoever tells it takes it out."""
        self._gather = gatherer()
        self._scratch = np.empty(0, np.uint8)
        # With tensors kept an array of them is needed anyway.
        self._in_place = keep is not Keep.TENSOR
        self._fingerprint = keep is not Keep.STATISTICS
        self._fingerprints: dict[int, str] = {}  # by ticket
        # By ticket: where the bytes of a value on a device are, as a field of its line.
        self._places: dict[int, str] = {}
        # With another tool's writer values are needed as a whole, and at once.
        self._waits = self._in_place or isinstance(writer, TraceWriter)
        self._room, self._tell = room, tell
        self._digests: Digests | None = None
        self._late: list[tuple[str, str, str]] = []  # mark, line before the values, line after them
        self._known: dict[str, str] = {}  # by mark, of those that have been read
        self._batch = 0
        self.log: list[int] | None = None
        """Numbers in the order in which tensors are observed, while somebody wants to know."""
        self.marks: dict[int, str] = {}
        """The mark of each number whose values are known late; likewise."""

    def observe(self, tensor: Any) -> int:
        """The number of this tensor's present value."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of tensors in this journal."""
        return self._next

    @property
    def digests(self) -> Digests | None:
        """The reader of tensors on a device, once there has been one."""
        return self._digests

    @property
    def fingerprints(self) -> bool:
        return self._fingerprint

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
        (digest,) = finish(sums[None], [dtype], [nbytes], True)
        self._fingerprints[ticket] = digest[8] or ""
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

    def _write(self, tensor: Any, look: Look, values: str, producer: int | None) -> tuple[int, str]:
        """The next number, for this tensor, and what its line says of the values, if it can be said again."""
        number = self._next
        self._next = number + 1
        by = "null" if producer is None else producer
        rest = ""
        if look.parts:
            rest = f',"parts":{encode_json({name: self.observe(part) for name, part in look.parts.items()})}'
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

    def keep_value(self, look: Look, array: np.ndarray[Any, Any]) -> int:
        """Another number for a value, with its bytes in the payload whatever is kept of the others."""
        number = self._next
        self._next = number + 1
        array = np.ascontiguousarray(array)
        digest = numbers_at(address_of(array), array.nbytes, look.dtype, True)
        text = text_of_numbers(digest) + (self._payload(array, digest[8]) if digest[8] else "")
        assert self._journal is not None
        self._journal.add(seal_text(f'{{"k":"tensor","id":{number},{look.text},"by":null{text}'))
        return number

    def read(self, tensor: Any, dtype: str) -> Found:
        """The numbers of a tensor on the host."""
        array = self._framework.host(tensor)
        return numbers_at(address_of(array), array.nbytes, dtype, self._fingerprint)

    def _notice(self, number: int, text: str) -> None:
        """Tell the watch of a tensor that is not finite."""
        start = text.find(_STATS)
        if start < 0 or self.watch is None:
            return
        nan, posinf, neginf, _ = text[start:].partition("]")[0].rsplit(",", 4)[1:]
        if nan != "0" or posinf != "0" or neginf != "0":
            self.watch.counts[number] = int(nan), int(posinf), int(neginf)

    def _values(self, array: np.ndarray[Any, Any], dtype: str) -> str:
        text, fingerprint = self._text_at(address_of(array), array.nbytes, dtype)
        return text + self._payload(array, fingerprint) if fingerprint and self._keep is Keep.TENSOR else text

    def _text_at(self, address: int, nbytes: int, dtype: str) -> tuple[str, str | None]:
        """Fields of a line on the values that lie there, and their fingerprint."""
        digest = numbers_at(address, nbytes, dtype, self._fingerprint)
        return text_of_numbers(digest), digest[8]

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


def _place_text(place: Location) -> str:
    """Location of the bytes of a value, as a field of a line."""
    step = "" if place.step is None else f",{place.step}"
    return f',"at":[{place.offset},{place.nbytes}{step}]'


def _number_of(head: str) -> int:
    """The number in the beginning of a tensor's line."""
    return int(head.split(",", 2)[1].removeprefix('"id":'))


def text_of_numbers(numbers: Found) -> str:
    """Statistics and fingerprint as fields of a line."""
    low, high, mean, norm, nan, posinf, neginf, zero, fingerprint, one, two = numbers
    if norm is not None and norm < inf:  # then the other three are finite too
        text = f',"stats":[{low!r},{high!r},{mean!r},{norm!r},{nan},{posinf},{neginf},{zero}]'
    else:
        ends = ",".join("null" if each is None else text_float(each) for each in (low, high, mean, norm))
        text = f',"stats":[{ends},{nan},{posinf},{neginf},{zero}]'
    if fingerprint is not None:
        text = f'{text},"fp":"{fingerprint}"'
    return text if one is None else f"{text}{ORDER}[{one!r},{two!r}]"
