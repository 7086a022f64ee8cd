"""One journal with all of its lines: indexed without parsing any, memory-mapped, trusting nothing.

    journal = NativeJournal(root, step, rank)                    a damaged line raises TraceFormatError when it is reached
    journal = NativeJournal(root, step, rank, tolerant=True)     damaged lines are skipped and listed in journal.damage

A torn tail is what `kill -9` leaves behind: it is always skipped and listed, never an error.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..model.errors import TraceFormatError, TraceNotFoundError
from ..model.records import Call, Damage, Gradient, Header, Note, Role
from ..model.tensors import Location, Spec, Tensor
from . import layout, parsing
from .arrays import to_array
from .digest import fingerprint
from .folding import NotFoldable, Outline, fold
from .lines import MAX_LINE, Wire, unseal
from .payloads import Payloads, Stage
from .remote import RemotePath

MAX_DAMAGE = 1000
_MIN_LINE = len('{"k":"x","crc":"00000000"}')
_KINDS = (b"call", b"end", b"grad", b"head", b"module", b"note", b"stack", b"tensor")
_KIND_AT = len('{"k":"')
_PIECE = 4 << 20
_HELD = 1 << 16
"""Tensors' lines that are kept once read, some 50 MB: pairing, measuring and judging each ask for all of them."""
_TENSOR_ID = re.compile(rb'\{"k":"tensor","id":([0-9]{1,15}),')
_SAME = b'{"k":"same",'
_Item = TypeVar("_Item")


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
        self._checked: set[tuple[Location, str | None]] = set()
        """Payloads that have been found to have their fingerprint."""
        self._damage: dict[Damage, None] = {}
        self._raw = _map(self._path) if raw is None else raw
        self._starts, self._ends, self._kinds = self._index()
        self._skip_torn_tail()
        self._header, self.stage = self._read_header()
        self._payloads = Payloads(root, step, rank, self.stage, partial(_stage_of, root, rank))
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
        """True if the journal was closed properly; otherwise the process ended in the middle of the step."""
        return len(self._kinds) > 0 and bool(self._kinds[-1] == ord("e"))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._kinds == ord("c")))

    def calls(self) -> Iterator[Call]:
        gradients = self._table("gradients", self._gradients_by_call)
        stacks = self._table("stacks", lambda: dict(self._each("s", parsing.stack_of)))
        configs = self._table("configs", lambda: dict(self._each("m", parsing.config_of)))

        def parse(line: Mapping[str, Wire], where: str, order: int) -> Call:
            return parsing.call_of(line, where, order, gradients, stacks, configs)

        yield from self._each("c", parse)

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(self._table("gradients", self._gradients_by_call).get(None, ()))

    def notes(self) -> Iterator[Note]:
        yield from self._each("n", parsing.note_of)

    def tensors(self) -> Iterator[Tensor]:
        yield from self._each("t", parsing.tensor_of)

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
            return parsing.tensor_of(line, where, number)
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
        raw = self._payloads.read(tensor.payload, where)
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
        first = self._raw.find(b"\n") + 1
        return self._parse(1) if first and self._raw[first : first + len(_SAME)] == _SAME else None

    # --- lines --------------------------------------------------------------------------------------------------

    def _index(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Beginning and end of each line, and the first letter of its kind, without parsing any."""
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
        if self.stage is None or (self._path.parent / layout.PAYLOAD).is_file():
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

    # --- what the lines say -------------------------------------------------------------------------------------

    def _read_header(self) -> tuple[Header, Stage]:
        if not len(self._ends):  # killed between making the file and writing its first line
            self._note_damage("the first line", "missing: the process ended before anything was recorded in this step")
            return Header(self._step, self._rank, 1, "unknown"), None
        return parsing.header_of(*self._parse(0), self._step, self._rank)

    def _gradients_by_call(self) -> dict[int | None, list[Gradient]]:
        table: dict[int | None, list[Gradient]] = {}
        for gradient in self._each("g", parsing.gradient_of):
            table.setdefault(None if gradient.role is Role.PARAMETER else gradient.of, []).append(gradient)
        return table

    def _tensor_lines(self) -> dict[int, int]:
        table: dict[int, int] = {}
        for number in np.flatnonzero(self._kinds == ord("t")):
            start = int(self._starts[number])
            match = _TENSOR_ID.match(self._raw, start, min(start + 64, int(self._ends[number])))
            if match:
                table.setdefault(int(match[1]), int(number))
        return table


def _stage_of(root: layout.Place, rank: int, step: int) -> Stage:
    """Stage of another step. No method: a journal that is let go is unmapped at once, and not when cycles are collected."""
    if not (layout.journal_dir(root, step, rank) / layout.JOURNAL).is_file():
        return None
    return NativeJournal(root, step, rank, tolerant=True).stage


def _map(path: layout.Place) -> mmap.mmap | bytes:
    try:
        if isinstance(path, RemotePath):
            return path.read_bytes()
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error
