"""Journals that were folded onto an earlier step of the same structure, and the way to open any journal.

Journals(root, tolerant).open(step, rank)     NativeJournal, or FoldedJournal: the records of the earlier step, other numbers
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..model.errors import TraceFormatError
from ..model.records import Call, Damage, Gradient, Header, Note
from ..model.tensors import Spec, Statistics, Tensor
from . import layout
from .folding import (
    COUNTS,
    HAS_FINGERPRINT,
    HAS_ORDER,
    WHOLE_MAX,
    WHOLE_MIN,
    NotFoldable,
    Numbers,
    Outline,
    Pattern,
    fold,
    unfold,
)
from .journal import NativeJournal
from .lines import Wire, field_of, is_number, optional_of

_KEPT_REFERENCES = 4
"""Whole journals that are held because folded ones refer to them, with all their records."""


class _Reference:
    """A whole journal that others refer to: its pattern, and its records, parsed once."""

    def __init__(self, journal: NativeJournal) -> None:
        self.journal = journal
        self.pattern = fold(journal.whole().partition(b"\n")[2], canonical=True)[0]
        self._records: tuple[list[Call], list[Gradient], list[Note]] | None = None
        self._tensors: dict[int, Tensor] = {}

    @property
    def records(self) -> tuple[list[Call], list[Gradient], list[Note]]:
        if self._records is None:
            journal = self.journal
            self._records = list(journal.calls()), list(journal.parameter_gradients()), list(journal.notes())
        return self._records

    def tensor(self, identity: int) -> Tensor:
        if identity not in self._tensors:
            self._tensors[identity] = self.journal.tensor(identity)
        return self._tensors[identity]


class Journals:
    """Opens journals, those that were folded among them."""

    def __init__(self, root: layout.Place, tolerant: bool) -> None:
        self._root, self._tolerant = root, tolerant
        self._known: dict[tuple[int, int], _Reference] = {}

    def open(self, step: int, rank: int) -> NativeJournal | FoldedJournal:
        """The journal of one step of one rank."""
        journal = NativeJournal(self._root, step, rank, tolerant=self._tolerant)
        said = journal.folding()
        return journal if said is None else self._unfolded(journal, *said, step, rank)

    def _unfolded(
        self, thin: NativeJournal, line: Mapping[str, Wire], where: str, step: int, rank: int
    ) -> NativeJournal | FoldedJournal:
        try:
            reference, pattern = self._pattern(line, where, rank)
            numbers = self._numbers(line, where, len(pattern.marks), step, rank)
        except TraceFormatError as error:
            if not self._tolerant:
                raise
            return FoldedJournal(thin, None, None, (Damage(str(thin.path), "line 2", str(error)),))
        outline = Outline(pattern, numbers)
        if pattern is reference.pattern and pattern.plain:
            return FoldedJournal(thin, reference, outline)

        def unfolded() -> NativeJournal:
            raw = thin.whole().partition(b"\n")[0] + b"\n" + unfold(pattern, numbers)
            return NativeJournal(self._root, step, rank, tolerant=self._tolerant, raw=raw)

        return FoldedJournal(thin, reference, outline, unfolded=unfolded)

    def _pattern(self, line: Mapping[str, Wire], where: str, rank: int) -> tuple[_Reference, Pattern]:
        reference = self._reference(field_of(line, "as", int, where), where, rank)
        changed = optional_of(line, "changed", dict, {}, where)
        pattern = reference.pattern
        if changed:
            places = {int(place): text for place, text in changed.items() if place.isdecimal() and len(place) < 10}
            texts = all(isinstance(text, str) and "\n" not in text for text in places.values())
            if len(places) != len(changed) or not texts or max(places) >= len(pattern.lines):
                raise TraceFormatError(f"{where}: field 'changed': expected lines by their places.")
            pattern = pattern.with_lines({n: text.encode("utf-8", "surrogatepass") for n, text in places.items()})
        if pattern.identity != field_of(line, "pattern", str, where):
            raise TraceFormatError(
                f"{where}: field 'as': step {line['as']} is no longer what it was when this step referred to it."
            )
        return reference, pattern

    def _reference(self, step: int, where: str, rank: int) -> _Reference:
        known = self._known.pop((step, rank), None)
        if known is None:
            if not (layout.journal_dir(self._root, step, rank) / layout.JOURNAL).is_file():
                raise TraceFormatError(f"{where}: field 'as': step {step} of rank {rank} is not there.")
            journal = NativeJournal(self._root, step, rank, tolerant=self._tolerant)
            if journal.folding() is not None:
                raise TraceFormatError(f"{where}: field 'as': step {step} refers to another one itself.")
            try:
                known = _Reference(journal)
            except NotFoldable as error:
                raise TraceFormatError(f"{where}: field 'as': step {step} is damaged ({error}).") from None
        while len(self._known) >= _KEPT_REFERENCES:
            del self._known[next(iter(self._known))]
        self._known[step, rank] = known
        return known

    def _numbers(self, line: Mapping[str, Wire], where: str, size: int, step: int, rank: int) -> Numbers:
        said = field_of(line, "numbers", list, where)
        ends, counts = field_of(line, "ends", str, where), field_of(line, "counts", list, where)
        if not (len(said) == 2 and is_number(said[0]) and isinstance(said[1], str)):
            raise TraceFormatError(f"{where}: field 'numbers': expected a size and a check, got {str(said)[:60]!r}.")
        if (
            ends not in ("f32", "f64")
            or len(set(map(str, counts))) != len(counts)
            or not set(map(str, counts)) <= {*COUNTS}
        ):
            raise TraceFormatError(f"{where}: field 'ends' or 'counts': {ends[:20]!r} and {str(counts)[:60]!r}.")
        file = layout.journal_dir(self._root, step, rank) / layout.NUMBERS
        try:
            if not file.is_file() or file.stat().st_size != said[0]:
                raise TraceFormatError(
                    f"{file}: expected {said[0]} bytes. The numbers of the step are missing or cut off."
                )
            raw = file.read_bytes()
            if f"{zlib.crc32(raw):08x}" != said[1]:
                raise TraceFormatError(f"{file}: the check says {said[1][:20]}, the bytes give {zlib.crc32(raw):08x}.")
            return Numbers.unpack(raw, size, ends, counts)
        except OSError as error:
            raise TraceFormatError(f"{file}: cannot be read ({error.strerror}).") from error
        except ValueError as error:
            raise TraceFormatError(f"{where}: field 'numbers': {error}.") from None


class FoldedJournal:
    """A journal whose records are those of an earlier step, with numbers of its own. Without a reference: one that is damaged.

    `unfolded` gives the whole journal, for one that has some lines of its own as well.
    """

    def __init__(
        self,
        thin: NativeJournal,
        reference: _Reference | None,
        outline: Outline | None,
        damage: tuple[Damage, ...] = (),
        *,
        unfolded: Callable[[], NativeJournal] | None = None,
    ) -> None:
        self._thin, self._reference, self._outline, self._damage = thin, reference, outline, damage
        self._unfolded = unfolded
        self._whole: NativeJournal | None = None
        self._tensors: dict[int, Tensor] = {}
        self._columns: tuple[list[Any], list[Any], list[Any], str] | None = None

    @property
    def header(self) -> Header:
        return self._thin.header

    @property
    def damage(self) -> tuple[Damage, ...]:
        of_reference = () if self._reference is None else self._reference.journal.damage
        return (*self._damage, *self._thin.damage, *of_reference, *(self._whole.damage if self._whole else ()))

    @property
    def complete(self) -> bool:
        return self._reference is not None

    def __len__(self) -> int:
        return 0 if self._outline is None else self._outline.pattern.calls

    def calls(self) -> Iterator[Call]:
        return self._records()[0]

    def parameter_gradients(self) -> Iterator[Gradient]:
        return self._records()[1]

    def notes(self) -> Iterator[Note]:
        return self._records()[2]

    def tensors(self) -> Iterator[Tensor]:
        if self._unfolded is not None:
            yield from self._own().tensors()
        elif self._reference is not None:
            for tensor in self._reference.journal.tensors():
                yield self.tensor(tensor.id)

    def tensor(self, identity: int) -> Tensor:
        known = self._tensors.get(identity)
        if known is None:
            found = self._tensor(identity) if self._unfolded is None else self._own().tensor(identity)
            known = self._tensors[identity] = found
        return known

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The values, which a folded journal does not have: those of a tensor with a payload are never folded."""
        return self._thin.array(tensor)

    def whole(self) -> bytes:
        """All lines, as they were before the journal was folded."""
        head = self._thin.whole().partition(b"\n")[0] + b"\n"
        return head if self._outline is None else head + unfold(self._outline.pattern, self._outline.numbers)

    def outline(self) -> Outline | None:
        """Structure and numbers; None where it is damaged."""
        return None if self.damage else self._outline

    def _own(self) -> NativeJournal:
        assert self._unfolded is not None
        if self._whole is None:
            self._whole = self._unfolded()
        return self._whole

    def _records(self) -> tuple[Iterator[Call], Iterator[Gradient], Iterator[Note]]:
        if self._unfolded is not None:
            own = self._own()
            return own.calls(), own.parameter_gradients(), own.notes()
        if self._reference is None:
            return iter(()), iter(()), iter(())
        calls, gradients, notes = self._reference.records
        return iter(calls), iter(gradients), iter(notes)

    def _tensor(self, identity: int) -> Tensor:
        if self._reference is None or self._outline is None:
            return Tensor(identity, Spec("u8", (0,)), missing="the step is damaged")
        model = self._reference.tensor(identity)
        place = self._reference.pattern.tensors.get(identity)
        if place is None:
            return model
        if self._columns is None:
            numbers = self._outline.numbers
            bits = numbers.fingerprints.tobytes().hex()
            self._columns = numbers.ends.tolist(), numbers.means.tolist(), numbers.counts.tolist(), bits
        (lows, highs), (means, norms, ones, twos), (nan, posinf, neginf, zero), bits = self._columns
        flags = self._reference.pattern.marks[place]
        statistics = Statistics(
            int(lows[place]) if flags & WHOLE_MIN else lows[place],
            int(highs[place]) if flags & WHOLE_MAX else highs[place],
            means[place],
            norms[place],
            nan[place],
            posinf[place],
            neginf[place],
            zero[place],
            (ones[place], twos[place]) if flags & HAS_ORDER else None,
        )
        fingerprint = bits[32 * place : 32 * place + 32] if flags & HAS_FINGERPRINT else None
        return Tensor(
            identity,
            model.spec,
            model.device,
            model.requires_grad,
            model.producer,
            statistics,
            fingerprint,
            model.payload,
            model.missing,
            model.facts,
            model.parts,
        )
