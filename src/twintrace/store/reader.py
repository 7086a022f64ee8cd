"""Read our own layout (FORMAT.md): lazily, memory-mapped, trusting nothing.

    open_native(path)                 Trace; a damaged line raises TraceFormatError when it is reached
    open_native(path, tolerant=True)  Trace; damaged lines are skipped and listed in journal.damage

A torn tail is what `kill -9` leaves behind: it is always skipped and listed, never an error.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ..model.errors import TraceFormatError, TraceNotFoundError
from ..model.records import Call, Config, Damage, Frame, Gradient, Header, Note, Role
from ..model.sites import Kind, Phase, Site
from ..model.tensors import DTYPES, Location, Spec, Statistics, Tensor
from ..model.values import Value
from . import layout
from .arrays import nbytes, to_array
from .digest import fingerprint
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
from .lines import MAX_LINE, MAX_MANIFEST, Wire, decode, field_of, is_number, number_of, optional_of, unseal, value_of
from .remote import RemotePath
from .stage import read_staged
from .trace import Trace

MAX_RANK = 64
MAX_DAMAGE = 1000
_MIN_LINE = len('{"k":"x","crc":"00000000"}')
_KINDS = (b"call", b"end", b"grad", b"head", b"module", b"note", b"stack", b"tensor")
_KIND_AT = len('{"k":"')
_PIECE = 4 << 20
_HELD = 1 << 16
"""Tensors' lines that are kept once read, some 50 MB: pairing, measuring and judging each ask for all of them."""
_MAPPED = 256 << 10  # bytes of a tensor from which on mapping is cheaper than reading
_SMALL, _WINDOW = 4 << 10, 64 << 10
"""Bytes of a tensor up to which those around it are read along with it: opening a file takes as long as reading 64 KB of it."""
_TENSOR_ID = re.compile(rb'\{"k":"tensor","id":([0-9]{1,15}),')
_Item = TypeVar("_Item")


def is_native(path: layout.Place) -> bool:
    """Is this a directory of our own layout?"""
    return (path / layout.MANIFEST).is_file()


def open_native(path: layout.Place, *, tolerant: bool = False) -> Trace:
    """Open a trace directory. Reads the manifest and the names of the journals, nothing else."""
    manifest = _read_manifest(path / layout.MANIFEST)
    try:
        places = layout.journals(path)
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error

    references = _References(path, tolerant)

    def load(step: int, rank: int) -> NativeJournal | FoldedJournal:
        return references.open(step, rank)

    return Trace(str(path), manifest, places, load)


def body_of(root: layout.Place, step: int, rank: int) -> bytes:
    """The lines of a journal, head and all, as they were before it was folded."""
    journal = _References(root, False).open(step, rank)
    return journal.whole()


def _read_manifest(file: layout.Place) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_MANIFEST + 1)
    except FileNotFoundError:
        raise TraceNotFoundError(
            f"{file.parent} is not a trace: it has no {layout.MANIFEST}. Give the directory that was given to tt.record."
        ) from None
    except OSError as error:
        raise TraceFormatError(f"{file}: cannot be read ({error.strerror}).") from error
    if len(raw) > MAX_MANIFEST:
        raise TraceFormatError(f"{file}: expected at most {MAX_MANIFEST} bytes, found more. The manifest is damaged.")
    try:
        manifest = decode(raw)
    except ValueError as error:
        raise TraceFormatError(
            f"{file}: expected JSON, got something else ({error}). The manifest is damaged."
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != layout.FORMAT:
        raise TraceFormatError(f"{file}: field 'format': expected '{layout.FORMAT}'. This is not a trace.")
    _check_version(manifest.get("version"), str(file), "version")
    for name, kind in (("framework", str), ("settings", dict), ("world", int)):
        optional_of(manifest, name, kind, None, str(file))
    return manifest


def _check_version(found: object, where: str, field: str) -> None:
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise TraceFormatError(f"{where}: field {field!r}: expected a positive number, got {str(found)[:40]!r}.")
    if found > layout.VERSION:
        raise TraceFormatError(
            f"{where}: field {field!r}: trace format version {found}, but this release reads up to {layout.VERSION}. "
            f"Update twintrace, or record the trace again with this release."
        )


class NativeJournal:
    """One `journal.jsonl` and its `payload.bin`."""

    def __init__(
        self, root: layout.Place, step: int, rank: int, *, tolerant: bool = False, raw: mmap.mmap | bytes | None = None
    ) -> None:
        """`raw`: the lines, where they are not in the file as they are."""
        self._root, self._step, self._rank, self._tolerant = root, step, rank, tolerant
        self._path = layout.journal_dir(root, step, rank) / layout.JOURNAL
        self._name = str(self._path)
        self._payload = str(self._path.parent / layout.PAYLOAD)
        self._window: tuple[int, int, bytes] = (step, 0, b"")
        self._checked: set[tuple[Location, str | None]] = set()
        """Payloads that have been found to have their fingerprint."""
        self._damage: dict[Damage, None] = {}
        self._raw = _map(self._path) if raw is None else raw
        self._starts, self._ends, self._kinds = self._index()
        self._skip_torn_tail()
        self._header, self._stage = self._read_header()
        self._check_strangers()
        self._check_payload()
        self._tables: dict[str, Any] = {}
        self._read: dict[int, Tensor] = {}

    # --- what is asked of a journal -----------------------------------------------------------------------------

    @property
    def header(self) -> Header:
        return self._header

    @property
    def path(self) -> layout.Place:
        """The file."""
        return self._path

    @property
    def damage(self) -> tuple[Damage, ...]:
        return tuple(self._damage)

    @property
    def complete(self) -> bool:
        """Was the journal closed properly? If not, the process ended in the middle of the step."""
        return len(self._kinds) > 0 and bool(self._kinds[-1] == ord("e"))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._kinds == ord("c")))

    def calls(self) -> Iterator[Call]:
        gradients = self._table("gradients", self._gradients_by_call)
        stacks = self._table("stacks", lambda: dict(self._each("s", self._stack)))
        configs = self._table("configs", lambda: dict(self._each("m", self._config)))

        def parse(line: Mapping[str, Wire], where: str, order: int) -> Call:
            return _call(line, where, order, gradients, stacks, configs)

        yield from self._each("c", parse)

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(self._table("gradients", self._gradients_by_call).get(None, ()))

    def notes(self) -> Iterator[Note]:
        yield from self._each("n", _note)

    def tensors(self) -> Iterator[Tensor]:
        yield from self._each("t", self._tensor)

    def tensor(self, identity: int) -> Tensor:
        known = self._read.get(identity)
        if known is None:
            if len(self._read) >= _HELD:
                self._read.clear()
            known = self._read[identity] = self._read_tensor(identity)
        return known

    def _read_tensor(self, identity: int) -> Tensor:
        number = self._table("tensors", self._tensor_lines).get(identity)
        if number is None:
            # Perhaps damage has hidden it: say so.
            self._table("tensors checked", lambda: sum(1 for _ in self.tensors()))
            why = "the line is missing" if self.complete else "the process ended before its line was written"
            return Tensor(identity, Spec("u8", (0,)), missing=why)
        try:
            line, where = self._parse(number)
            return self._tensor(line, where, number)
        except TraceFormatError as error:
            if not self._tolerant:
                raise
            self._note_damage(f"line {number + 1}", str(error))
            return Tensor(identity, Spec("u8", (0,)), missing=str(error))

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The tensor's values, checked against the fingerprint; TraceFormatError if they are not what was recorded."""
        where = f"{self._payload}: tensor {tensor.id} of step {self._step} rank {self._rank}"
        if tensor.payload is None:
            raise TraceNotFoundError(
                f"{where} was not kept: {tensor.missing or 'the trace was recorded without tensors'}."
            )
        raw = self._payload_bytes(tensor.payload, where)
        array = to_array(raw, tensor.spec, where)
        key = tensor.payload, tensor.fingerprint
        if tensor.fingerprint and key not in self._checked and fingerprint(array) != tensor.fingerprint:
            raise TraceFormatError(
                f"{where}: the bytes do not have the recorded fingerprint {tensor.fingerprint}. The payload is damaged."
            )
        self._checked.add(key)  # a value is read to be measured, to be recomputed, and to be drawn
        return array

    def whole(self) -> bytes:
        """All lines."""
        return bytes(self._raw)

    def outline(self) -> Outline | None:
        """Structure and numbers; None of a journal that was not closed, or that is damaged."""
        if self._damage or not self.complete:
            return None
        try:
            return Outline(*fold(self.whole().partition(b"\n")[2], canonical=True))
        except NotFoldable:
            return None

    def folding(self) -> tuple[dict[str, Wire], str] | None:
        """The line that stands for a folded journal, and where it is; None of one that is whole."""
        return self._parse(1) if is_folded(self._raw) else None

    # --- lines --------------------------------------------------------------------------------------------------

    def _index(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Where each line begins and ends, and the first letter of its kind, without parsing any."""
        data = np.frombuffer(self._raw, dtype=np.uint8)
        pieces, last, short = [np.zeros(0, dtype=np.int64)], -1, 0
        for at in range(0, len(data), _PIECE):
            found = np.flatnonzero(data[at : at + _PIECE] == 10) + at
            if len(found):
                short += int(np.count_nonzero(np.diff(found, prepend=last) <= _MIN_LINE))
                last = int(found[-1])
                pieces.append(found)
            if short > MAX_DAMAGE:  # an index of empty lines would be many times the file
                raise TraceFormatError(
                    f"{self._path}: {short} lines are too short to hold a record. This is not a journal."
                )
            if at - last > MAX_LINE:  # a hole, perhaps of a terabyte: all the rest is one torn line
                break
        ends = np.concatenate(pieces)
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        kinds = np.zeros(len(ends), dtype=np.uint8)  # 0: none of the known kinds
        for kind in _KINDS:
            lines = np.arange(len(ends))
            for position, letter in enumerate(kind + b'"', _KIND_AT):
                lines = lines[data[np.minimum(starts[lines] + position, ends[lines])] == letter]
            kinds[lines] = kind[0]
        return starts, ends, kinds

    def _skip_torn_tail(self) -> None:
        """Drop what a killed process left unfinished at the end: half a line, or a whole one with a wrong check."""
        whole = int(self._ends[-1]) + 1 if len(self._ends) else 0
        torn = len(self._raw) - whole
        if torn:
            self._note_damage("the last line", f"torn after {torn} bytes; everything before it is whole")
        if len(self._ends) > 1:
            try:
                unseal(self._line_bytes(len(self._ends) - 1))
            except ValueError as error:
                self._note_damage(f"line {len(self._ends)}, the last", str(error))
                self._starts, self._ends, self._kinds = self._starts[:-1], self._ends[:-1], self._kinds[:-1]

    def _check_strangers(self) -> None:
        """Lines that nobody will ask for: of an unknown kind, which is fine, or of a known one that damage has renamed."""
        for number in np.flatnonzero(~np.isin(self._kinds[1:], list(b"cgmnst"))) + 1:
            if len(self._damage) > MAX_DAMAGE:
                return
            try:
                self._parse(int(number))
            except TraceFormatError as error:
                if not self._tolerant:
                    raise
                self._note_damage(f"line {int(number) + 1}", str(error))

    def _check_payload(self) -> None:
        """A step that was recorded with values has a file for them, be it empty, or a ring that still holds them."""
        if self._stage is None or (self._path.parent / layout.PAYLOAD).is_file():
            return
        if not layout.stage_path(self._root, self._rank).is_file():
            self._note_damage(
                layout.PAYLOAD, "missing: the values of this step were recorded, and have been removed since"
            )

    def _line_bytes(self, number: int) -> bytes:
        start, end = int(self._starts[number]), int(self._ends[number])
        if end - start > MAX_LINE:
            raise ValueError(f"longer than {MAX_LINE} bytes")
        return bytes(self._raw[start:end])

    def _parse(self, number: int) -> tuple[dict[str, Wire], str]:
        where = f"{self._name}: line {number + 1}"
        try:
            line = unseal(self._line_bytes(number))
        except ValueError as error:
            raise TraceFormatError(f"{where}: {error}. The journal is damaged there.") from None
        return line, f"{where} ({str(line.get('k'))[:12]} {str(line.get('id', ''))[:20]})"

    def _each(self, letter: str, parse: Callable[[Mapping[str, Wire], str, int], _Item]) -> Iterator[_Item]:
        for number in np.flatnonzero(self._kinds == ord(letter)):
            try:
                line, where = self._parse(int(number))
                item = parse(line, where, int(number))
            except TraceFormatError as error:
                if not self._tolerant:
                    raise
                self._note_damage(f"line {int(number) + 1}", str(error))
                continue
            yield item

    def _note_damage(self, where: str, text: str) -> None:
        if len(self._damage) < MAX_DAMAGE:
            told = text.removeprefix(f"{self._path}: {where}: ")  # an error says itself where it is
            self._damage[Damage(str(self._path), where, told)] = None
        else:
            self._damage[Damage(str(self._path), "and more", f"only {MAX_DAMAGE} damaged places are listed")] = None

    def _table(self, name: str, build: Callable[[], Any]) -> Any:
        if name not in self._tables:
            self._tables[name] = build()
        return self._tables[name]

    # --- what the lines say -------------------------------------------------------------------------------------

    def _read_header(self) -> tuple[Header, tuple[int, int] | None]:
        if not len(self._ends):  # killed between making the file and writing its first line
            self._note_damage("the first line", "missing: the process ended before anything was recorded in this step")
            return Header(self._step, self._rank, 1, "unknown"), None
        line, where = self._parse(0)
        if line.get("k") != "head":
            raise TraceFormatError(
                f"{where}: field 'k': the first line must be 'head', got {str(line.get('k'))[:40]!r}."
            )
        _check_version(line.get("format"), where, "format")
        for name, expected in (("step", self._step), ("rank", self._rank)):
            if field_of(line, name, int, where) != expected:
                raise TraceFormatError(
                    f"{where}: field {name!r}: expected {expected}, as the directory says, got {line[name]}."
                )
        stage = optional_of(line, "stage", list, None, where)
        if stage is not None and not (len(stage) == 2 and all(map(is_number, stage))):
            raise TraceFormatError(f"{where}: field 'stage': expected two numbers or null, got {str(stage)[:60]!r}.")
        groups = optional_of(line, "groups", list, [], where)
        if not all(isinstance(group, list) and all(map(is_number, group)) for group in groups):
            raise TraceFormatError(f"{where}: field 'groups': expected lists of ranks, got {str(groups)[:60]!r}.")
        header = Header(
            step=self._step,
            rank=self._rank,
            world=optional_of(line, "world", int, 1, where),
            framework=optional_of(line, "framework", str, "unknown", where),
            settings=optional_of(line, "settings", dict, {}, where),
            environment=optional_of(line, "environment", dict, {}, where),
            groups=tuple(map(tuple, groups)),
            precision=optional_of(line, "precision", dict, {}, where),
        )
        return header, (stage[0], stage[1]) if stage else None

    def _gradients_by_call(self) -> dict[int | None, list[Gradient]]:
        table: dict[int | None, list[Gradient]] = {}
        for gradient in self._each("g", _gradient):
            table.setdefault(None if gradient.role is Role.PARAMETER else gradient.of, []).append(gradient)
        return table

    def _stack(self, line: Mapping[str, Wire], where: str, order: int) -> tuple[int, tuple[Frame, ...]]:
        frames = []
        for frame in field_of(line, "frames", list, where):
            if not (isinstance(frame, list) and list(map(type, frame)) == [str, int, str, str]):
                raise TraceFormatError(
                    f"{where}: field 'frames': expected [file, line, function, code], got {str(frame)[:60]!r}."
                )
            frames.append(Frame(*frame))
        return field_of(line, "id", int, where), tuple(frames)

    def _config(self, line: Mapping[str, Wire], where: str, order: int) -> tuple[int, Config]:
        values = field_of(line, "values", dict, where)
        config = Config(
            field_of(line, "path", str, where),
            field_of(line, "type", str, where),
            {str(k): _value(v, where, f"values.{k}") for k, v in values.items()},
        )
        return field_of(line, "id", int, where), config

    def _tensor_lines(self) -> dict[int, int]:
        table: dict[int, int] = {}
        for number in np.flatnonzero(self._kinds == ord("t")):
            start = int(self._starts[number])
            match = _TENSOR_ID.match(self._raw, start, min(start + 64, int(self._ends[number])))
            if match:
                table.setdefault(int(match[1]), int(number))
        return table

    def _tensor(self, line: Mapping[str, Wire], where: str, order: int) -> Tensor:
        dtype = field_of(line, "dtype", str, where)
        shape = field_of(line, "shape", list, where)
        if dtype not in DTYPES:
            raise TraceFormatError(
                f"{where}: field 'dtype': {dtype[:40]!r} is not a known element type ({', '.join(DTYPES)})."
            )
        if len(shape) > MAX_RANK or not all(map(is_number, shape)):
            raise TraceFormatError(f"{where}: field 'shape': expected up to {MAX_RANK} sizes, got {str(shape)[:60]!r}.")
        spec = Spec(dtype, tuple(shape))
        return Tensor(
            id=field_of(line, "id", int, where),
            spec=spec,
            device=optional_of(line, "device", str, "cpu", where),
            requires_grad=optional_of(line, "grad", bool, False, where),
            producer=optional_of(line, "by", int, None, where),
            statistics=_statistics(line.get("stats"), line.get("order"), where),
            fingerprint=_fingerprint(line.get("fp"), where),
            payload=_location(line.get("at"), spec, where),
            missing=optional_of(line, "missing", str, None, where),
            facts=optional_of(line, "facts", dict, {}, where),
            parts=_numbers(line, "parts", where),
        )

    # --- payload ------------------------------------------------------------------------------------------------

    def _payload_bytes(self, location: Location, where: str) -> memoryview | bytes:
        step = self._step if location.step is None else location.step
        end = location.offset + location.nbytes
        held, first, near = self._window  # other threads may read another one meanwhile
        if held == step and first <= location.offset and end <= first + len(near):
            return near[location.offset - first : end - first]
        try:
            path = layout.journal_dir(self._root, step, self._rank) / layout.PAYLOAD
            if location.nbytes > _SMALL or isinstance(path, RemotePath):  # of a remote one no more than is asked for
                raw, size = _payload_piece(path, location)
            else:
                first = location.offset - location.offset % _WINDOW
                around, size = _payload_piece(path, Location(first, _WINDOW + _SMALL))
                self._window = step, first, bytes(around)
                raw = bytes(around[location.offset - first : end - first])
            if len(raw) < location.nbytes:
                raw = self._from_stage(location, step, bytes(raw), size)
        except (OSError, MemoryError) as error:
            raise TraceFormatError(f"{where}: field 'at': {location.nbytes} bytes cannot be read ({error}).") from error
        if len(raw) != location.nbytes:
            raise TraceFormatError(
                f"{where}: field 'at': bytes {location.offset} to {end} of step {step}'s payload, which has {size}. "
                f"The payload is cut off."
            )
        return raw

    def _from_stage(self, location: Location, step: int, written: bytes, size: int) -> bytes:
        """Bytes that had not reached `payload.bin` (of `size` bytes) when the process was killed: they are still in the ring."""
        stage = self._table(f"stage of step {step}", lambda: self._stage_of(step))
        file = layout.stage_path(self._root, self._rank)
        if stage is None or not file.is_file() or file.stat().st_size != stage[1] or location.nbytes > size + stage[1]:
            return b""
        return written + read_staged(file, stage[0] + location.offset + len(written), location.nbytes - len(written))

    def _stage_of(self, step: int) -> tuple[int, int] | None:
        if step == self._step:
            return self._stage
        if not (layout.journal_dir(self._root, step, self._rank) / layout.JOURNAL).is_file():
            return None
        return NativeJournal(self._root, step, self._rank, tolerant=True)._stage


_SAME = b'{"k":"same",'
_KEPT_REFERENCES = 4
"""Whole journals that are held because folded ones refer to them, with all their records."""


def is_folded(raw: mmap.mmap | bytes) -> bool:
    """Does a journal refer to another one for its lines?"""
    first = raw.find(b"\n") + 1
    return first > 0 and raw[first : first + len(_SAME)] == _SAME


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


class _References:
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
            reference, pattern = self._pattern(line, where, step, rank)
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

    def _pattern(self, line: Mapping[str, Wire], where: str, step: int, rank: int) -> tuple[_Reference, Pattern]:
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


def _map(path: layout.Place) -> mmap.mmap | bytes:
    try:
        if isinstance(path, RemotePath):
            return path.read_bytes()
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error


def _payload_piece(path: layout.Place, location: Location) -> tuple[memoryview | bytes, int]:
    """The bytes of one tensor, as far as the file has them, and the size of the file.

    A large one is mapped on its own, and no longer than somebody holds it: a payload mapped as a whole stays in the memory of
    the process once it has been looked at, and traces are larger than memory.
    """
    if not path.is_file():
        return b"", 0
    if isinstance(path, RemotePath):
        size = path.stat().st_size
        length = min(location.nbytes, size - location.offset)
        return (path.piece(location.offset, length) if length > 0 else b""), size
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = min(location.nbytes, size - location.offset)
        if length <= 0:
            return b"", size
        if length < _MAPPED:
            file.seek(location.offset)
            return file.read(length), size
        before = location.offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(file.fileno(), length + before, access=mmap.ACCESS_READ, offset=location.offset - before)
        return memoryview(mapped)[before:], size


def _value(wire: Wire, where: str, field: str) -> Value:
    try:
        return value_of(wire)
    except ValueError as error:
        raise TraceFormatError(f"{where}: field {field!r}: {error}. The line is damaged.") from None


# Enumerations by value: looking a member up takes a tenth of the time of calling its class.
_kind: Callable[[Any], Kind] = functools.cache(Kind)
_phase: Callable[[Any], Phase] = functools.cache(Phase)


def _call(
    line: Mapping[str, Wire],
    where: str,
    order: int,
    gradients: Mapping[int | None, list[Gradient]],
    stacks: Mapping[int, tuple[Frame, ...]],
    configs: Mapping[int, Config],
) -> Call:
    identity = field_of(line, "id", int, where)
    try:
        kind, phase = _kind(line.get("kind")), _phase(line.get("phase", "forward"))
    except (ValueError, TypeError) as error:
        raise TraceFormatError(f"{where}: field 'kind' or 'phase': {error}.") from None
    site = Site(
        kind,
        field_of(line, "name", str, where),
        field_of(line, "n", int, where),
        phase,
        optional_of(line, "path", str, "", where),
        optional_of(line, "type", str, "", where),
    )
    return Call(
        id=identity,
        site=site,
        parent=optional_of(line, "up", int, None, where),
        args=tuple(_value(v, where, f"in.{i}") for i, v in enumerate(field_of(line, "in", list, where))),
        kwargs={str(k): _value(v, where, f"kw.{k}") for k, v in field_of(line, "kw", dict, where).items()},
        output=_value(line.get("out"), where, "out"),
        parameters=_numbers(line, "params", where),
        buffers=_numbers(line, "buffers", where),
        mutates=_texts(line, "mutates", where),
        after=_numbers(line, "after", where),
        stack=stacks.get(optional_of(line, "stack", int, -1, where), ()),
        config=configs.get(optional_of(line, "config", int, -1, where)),
        gradients=tuple(gradients.get(identity, ())),
        raised=optional_of(line, "raised", str, None, where),
        missing=_texts(line, "missing", where),
        precision=optional_of(line, "precision", dict, {}, where),
        order=order,
    )


def _gradient(line: Mapping[str, Wire], where: str, order: int) -> Gradient:
    try:
        role = Role(line.get("role"))
    except ValueError as error:
        raise TraceFormatError(f"{where}: field 'role': {error}.") from None
    return Gradient(
        role,
        field_of(line, "slot", str, where),
        field_of(line, "t", int, where),
        optional_of(line, "of", int, None, where),
        optional_of(line, "n", int, 0, where),
        order,
    )


def _note(line: Mapping[str, Wire], where: str, order: int) -> Note:
    return Note(field_of(line, "topic", str, where), field_of(line, "text", str, where), order)


def _numbers(line: Mapping[str, Wire], field: str, where: str) -> Mapping[str, int]:
    if field not in line:
        return {}
    wire = line[field]
    if not isinstance(wire, dict) or not all(map(is_number, wire.values())):
        raise TraceFormatError(f"{where}: field {field!r}: expected names and tensor numbers, got {str(wire)[:60]!r}.")
    return wire


def _texts(line: Mapping[str, Wire], field: str, where: str) -> tuple[str, ...]:
    if field not in line:
        return ()
    wire = line[field]
    if not isinstance(wire, list) or not all(isinstance(text, str) for text in wire):
        raise TraceFormatError(f"{where}: field {field!r}: expected a list of texts, got {str(wire)[:60]!r}.")
    return tuple(wire)


_PLAIN = frozenset((int, float, type(None)))
"""Types of numbers that are written as they are."""


def _statistics(wire: Wire, order: Wire, where: str) -> Statistics | None:
    if wire is None:
        return None
    try:
        if not isinstance(wire, list) or len(wire) != 8:
            raise ValueError(f"expected eight numbers, got {str(wire)[:80]}")
        low, high, mean, norm, *counts = wire if _PLAIN.issuperset(map(type, wire)) else map(number_of, wire)
        if not all(map(is_number, counts)):
            raise ValueError("the last four must be counts")
    except ValueError as error:
        raise TraceFormatError(f"{where}: field 'stats': {error}.") from None
    if order is not None and not (isinstance(order, list) and len(order) == 2 and all(map(_is_real, order))):
        raise TraceFormatError(f"{where}: field 'order': expected two numbers, got {str(order)[:60]!r}.")
    places = None if order is None else (float(order[0]), float(order[1]))
    nan, posinf, neginf, zero = counts
    return Statistics(low, high, mean, norm, nan, posinf, neginf, zero, places)  # type: ignore[arg-type]  # checked: counts are int


def _is_real(wire: Wire) -> bool:
    return isinstance(wire, int | float) and not isinstance(wire, bool)


def _fingerprint(wire: Wire, where: str) -> str | None:
    if wire is None or (isinstance(wire, str) and re.fullmatch("[0-9a-f]{32}", wire)):
        return wire
    raise TraceFormatError(f"{where}: field 'fp': expected 32 hex digits, got {str(wire)[:60]!r}.")


def _location(wire: Wire, spec: Spec, where: str) -> Location | None:
    if wire is None:
        return None
    if not (isinstance(wire, list) and len(wire) in (2, 3) and all(map(is_number, wire))):
        raise TraceFormatError(f"{where}: field 'at': expected [offset, bytes(, step)], got {str(wire)[:60]!r}.")
    if wire[1] != nbytes(spec):
        raise TraceFormatError(f"{where}: field 'at': {spec} needs {nbytes(spec)} bytes, the line says {wire[1]}.")
    return Location(wire[0], wire[1], wire[2] if len(wire) == 3 else None)
