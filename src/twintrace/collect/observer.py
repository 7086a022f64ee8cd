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
from typing import Any

from ..frameworks.protocol import Framework, Glance, Look, Unreadable
from ..model.records import Keep
from ..store.digest import sampler
from ..store.writer import Lines, Writer
from .tensor_lines import ORDER, TensorLines

_PURGE_EVERY = 4096
_MAX_WRITTEN = 16  # tensors of a call whose writer is remembered; an optimizer's are its results anyway

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


class Observer(TensorLines):
    """Recognises tensors: one that was seen and is unchanged keeps its number."""

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

        `room` and `tell` are those of `TensorLines`.
        """
        super().__init__(framework, keep, writer, room=room, tell=tell)
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
        self._purge_at = _PURGE_EVERY
        self._autograd = autograd
        self._glance, self._sample = framework.glance, sampler()

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
                    text = text.partition(ORDER)[0] if order is False else text if ORDER in text else ""
        if not text and self._in_place and not look.parts:
            if order or (order is False and not self._fingerprint):
                text = self._text_at(address, nbytes, look.dtype)[0]
                if order is False:
                    text = text.partition(ORDER)[0]
            elif runs is not None:
                text = self._text_along(address, runs, look.dtype)
        if not self._autograd and seen is not None and self.producer is None:
            # Beneath autograd a version may move without a write: a view takes that of its base when its kernel has returned.
            text = text or self._read_again(tensor, look)
            if text == seen[2] != "":
                self._seen[wants][seat] = (state, *seen[1:])
                return seen[1]
        number, text = self._write(tensor, look, text, by)
        self._seen[wants][seat] = seen = state, number, text, by, key
        if stretch is not None and text:
            self._spoken[stretch] = seen
        return number

    def _read_again(self, tensor: Any, look: Look) -> str:
        """Fields of a line on the values of a tensor; nothing where they are read later, or cannot be read."""
        if look.parts or (look.elsewhere and self._waits):
            return ""
        with contextlib.suppress(Unreadable):
            return self._values(self._framework.host(tensor), look.dtype)
        return ""

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
                glance = self._glance(tensor)
                if glance is not None and (end := _end(glance)):
                    self._writers[glance[0]] = writer, glance[2], glance[5], end

    def forget_everything(self) -> None:
        """Anything may have been written to: whatever was known of any storage is no longer so."""
        for key in list(self._lives):
            self._begin_anew(key)

    def _writer_of(self, glance: Glance) -> int | None:
        """Call that wrote to this memory through another view, if no other has written to it since."""
        writer, version, start, end = self._writers.get(glance[0], (None, None, 0, 0))
        unchanged = version == glance[2]
        if not self._autograd and isinstance(version, int):  # autograd counts a write after the kernel has returned
            unchanged = unchanged or version + 1 == glance[2]
        return writer if writer is not None and unchanged and glance[5] < end and start < _end(glance) else None

    def _begin_anew(self, key: Any) -> None:
        if key in self._lives:
            self._last_life += 1
            self._lives[key] = self._last_life

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

    # --- steps that follow a plan -----------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Has nothing been observed in this journal, and is nothing waited for?"""
        return not self._next and not self._late and not self.waiting

    def sample(self, tensor: Any) -> object:
        """A few words of a tensor on the host."""
        glance = self._glance(tensor)
        return self._sample(glance[5], glance[6]) if glance is not None and glance[5] else None

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


def _end(glance: Glance) -> int:
    """Where the memory of a view ends; 0 where that is not known."""
    _, _, _, _, _, address, nbytes, order, runs = glance
    if order is not None:
        return address + nbytes
    if runs is None or not runs.nbytes or (runs.table[:, 1] < 0).any():
        return 0
    return address + int(((runs.table[:, 0] - 1) * runs.table[:, 1]).sum()) + runs.size
