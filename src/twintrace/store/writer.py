"""Write a trace: a journal for each step, payloads behind the training thread.

    writer = TraceWriter.create(path, manifest, rank=0, world=1, keep_payload=True)
    journal = writer.begin_step(0, header)
    where = writer.store(array_bytes, fingerprint)      # Location; the same bytes are stored once
    journal.add(line); journal.commit()                 # one write() for all the lines of a record
    writer.end_step(); writer.close()

After `commit` returns the record survives `kill -9`: its bytes are with the kernel. (Power loss is another matter: see
FORMAT.md.)
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..model.errors import SessionError, TraceExistsError, TraceWriteError
from ..model.tensors import Location
from . import layout
from .appending import append
from .folding import NotFoldable, Numbers, Pattern, changed_lines, fold, unfold
from .lines import Wire, seal
from .manifests import claim, identity, read_manifest, remove_trace
from .manifests import resume as go_on_in
from .stage import ALIGN, DEFAULT_BYTES, Stage

# Contents remembered for deduplication. Past this the oldest are forgotten and may be stored again: memory stays bounded.
REMEMBERED = 1 << 19
_PATTERNS = 8  # structures of steps that later ones may refer to: training, evaluation, the step that logs
_MAX_FOLDED = 64 << 20  # bytes of a journal that is held in memory until its step ends, to be folded then


class Records(Protocol):
    """Takes the records of a step, as FORMAT.md describes them. After `commit` they are to survive the process."""

    def take(self, record: Mapping[str, Wire]) -> None: ...
    def commit(self) -> None: ...


class Lines(Protocol):
    """Destination of a recorder's sealed lines. After `commit` they are to survive the process."""

    def add(self, line: bytes) -> None: ...
    def commit(self) -> None: ...


class Writer(Protocol):
    """All that a recorder asks of whoever writes for it: `TraceWriter`, or one that writes the records as another tool's file."""

    def has_step(self, step: int) -> bool: ...
    def begin_step(self, step: int, header: Mapping[str, Wire]) -> Records: ...
    def store(self, data: np.ndarray[Any, Any], fingerprint: str) -> Location: ...
    def end_step(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


class Journal:
    """The append-only journal of one step of one rank."""

    def __init__(self, directory: Path, *, hold: bool = False) -> None:
        self.path = directory / layout.JOURNAL
        self._held: list[bytes] | None = [] if hold else None
        try:
            directory.mkdir(parents=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            raise SessionError(
                f"{directory} is already recorded, and a trace holds each step once. "
                f"Call rec.step() between steps, or give the next step a number of its own: rec.step(number)."
            ) from None
        except OSError as error:
            with contextlib.suppress(OSError):  # nothing of a step that was not begun
                directory.rmdir()
                directory.parent.rmdir()
            raise TraceWriteError(
                f"{self.path}: could not be made ({error.strerror}). Everything recorded before is complete."
            ) from error
        self._pending: list[bytes] = []
        self._size = self._lines = 0
        self.add: Callable[[bytes], None] = self._pending.append
        """Keep a sealed line for the next commit."""

    def take(self, record: Mapping[str, Wire]) -> None:
        """Keep a record for the next commit."""
        self.add(seal(record))

    def commit(self) -> None:
        """Write all pending lines with one call. On failure the file is cut back to its last whole line."""
        if not self._pending:
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._lines += len(self._pending)
        self._pending.clear()
        self._size = append(self._file, data, self._size, where=self.path)
        if self._held is not None:
            self._held.append(data)
            if self._size > _MAX_FOLDED:
                self._held = None

    @property
    def count(self) -> int:
        """Number of lines, those that wait for the next commit among them."""
        return self._lines + len(self._pending)

    def held(self) -> bytes | None:
        """All that was written; None where it was not held, or is too much."""
        return None if self._held is None else b"".join(self._held)

    def close(self) -> None:
        """Close the file; pending lines are written first."""
        try:
            self.commit()
        finally:
            os.close(self._file)

    def withdraw(self) -> None:
        """Nothing was written: the step has not been."""
        self.abandon()
        with contextlib.suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()
            self.path.parent.parent.rmdir()

    def abandon(self) -> None:
        """In a forked child: let go without writing."""
        self._pending.clear()
        with contextlib.suppress(OSError):
            os.close(self._file)


class TraceWriter:
    """One rank's hand on a trace."""

    def __init__(
        self,
        root: Path,
        *,
        rank: int,
        keep_payload: bool,
        buffer: int = DEFAULT_BYTES,
        folds: bool = False,
        ended: Callable[[int], None] | None = None,
        taken: Collection[int] = (),
    ) -> None:
        self.root = root
        self._ended, self._taken = ended, taken
        self._folds = folds
        self._patterns: dict[str, tuple[int, Pattern]] = {}  # by identity: the step that has it whole
        self._resolved: tuple[Pattern, tuple[int, Pattern], dict[int, bytes]] | None = (
            None  # the latest with such changes
        )
        self.pattern: Pattern | None = None
        """Of the step that was ended last, where it was folded or may be referred to."""
        self.rank = rank
        self.keep_payload = keep_payload
        self._buffer = buffer
        self._stage: Stage | None = None
        self._stage_failed = False
        self._step = -1
        self._base = 0
        self._directory = root
        self._file_begun = False
        self._whole = False  # this step has a payload, and stays as it is
        self._known: dict[str, tuple[int, int, int]] = {}
        self._journal: Journal | None = None
        self._manifest = identity(root / layout.MANIFEST)
        self._created = read_manifest(root / layout.MANIFEST).get("created")

    @classmethod
    def create(
        cls,
        root: Path,
        manifest: Mapping[str, Any],
        *,
        rank: int = 0,
        world: int = 1,
        keep_payload: bool = False,
        buffer: int = DEFAULT_BYTES,
        overwrite: bool = False,
        resume: bool = False,
        folds: bool = False,
        ended: Callable[[int], None] | None = None,
        taken: Collection[int] = (),
    ) -> TraceWriter:
        """Claim `root` for a new trace, or join the trace that another rank of the same run has just made there.

        resume   go on in a trace of the same framework and settings, if there is one: its steps stay, others are added
        folds    the journal of a step that repeats an earlier one is replaced by its numbers when the step ends
        ended    called with the number of each step that has ended, when all its bytes are in its files; by another thread where
                 payloads are written behind
        taken    steps that the trace has elsewhere
        """
        if resume and read_manifest(root / layout.MANIFEST).get("version") == layout.PLAIN_VERSION:
            folds = False  # the trace goes on as it began
        version = layout.VERSION if folds else layout.PLAIN_VERSION
        document = {"format": layout.FORMAT, "version": version, "created": time.time(), **manifest}
        try:
            if overwrite and world == 1:
                remove_trace(root)
            root.mkdir(parents=True, exist_ok=True)
            if resume and (root / layout.MANIFEST).exists():
                go_on_in(root, document, rank=rank)
            else:
                claim(root, document, rank=rank, world=world)
        except TraceExistsError:
            raise
        except PermissionError as error:
            raise TraceWriteError(f"{root} is not writable ({error.strerror}). Choose another path.") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise TraceExistsError(
                f"{root}: expected a directory, found a file in the way. Choose another path."
            ) from error
        except OSError as error:
            raise TraceWriteError(f"{root} cannot be written ({error.strerror}). Choose another path.") from error
        return cls(root, rank=rank, keep_payload=keep_payload, buffer=buffer, folds=folds, ended=ended, taken=taken)

    def has_step(self, step: int) -> bool:
        """True if this rank has recorded that step already."""
        return step in self._taken or layout.journal_dir(self.root, step, self.rank).exists()

    def next_step(self) -> int:
        """The step after the last that this rank has recorded; 0 in a new trace."""
        here = (step for step, rank in layout.journals(self.root) if rank == self.rank)
        step = max((step + 1 for step in (*here, *self._taken)), default=0)
        while self.has_step(step):  # killed before its journal was made
            step += 1
        return step

    def withdraw_step(self) -> None:
        """The present step has not been: nothing was recorded in it, and its number is free again."""
        journal, self._journal = self._journal, None
        if journal is None:
            return
        if self._stage and self._file_begun:
            self._stage.end()
        with contextlib.suppress(OSError):
            (self._directory / layout.PAYLOAD).unlink()
        journal.withdraw()

    def begin_step(self, step: int, header: Mapping[str, Wire]) -> Journal:
        """Open the journal of `step`; its first line is the header."""
        now = identity(self.root / layout.MANIFEST)
        if now is None:
            raise TraceWriteError(
                f"{self.root} is gone: its manifest was removed while recording. Choose another path."
            )
        if now != self._manifest and read_manifest(self.root / layout.MANIFEST).get("created") != self._created:
            raise TraceWriteError(
                f"{self.root} is another trace by now: somebody has recorded over this one. Choose another path."
            )
        self._directory = layout.journal_dir(self.root, step, self.rank)
        journal = Journal(self._directory, hold=self._folds)
        self._step, self._file_begun, self._whole = step, False, False
        self._journal = journal
        stage = self._open_stage() if self.keep_payload else None
        position = None
        if stage:
            # No room for the file, or none since an earlier step: every tensor's record will say so.
            with contextlib.suppress(OSError):
                position = [stage.begin(self._directory / layout.PAYLOAD), stage.size]
        self._file_begun = position is not None
        version = layout.VERSION if self._folds else layout.PLAIN_VERSION
        head = {"k": "head", "format": version, "step": step, "rank": self.rank, "stage": position, **header}
        journal.add(seal(head))
        try:
            journal.commit()
        except TraceWriteError:
            self._journal = None
            journal.withdraw()
            raise
        return journal

    def store(self, data: np.ndarray[Any, Any], fingerprint: str) -> Location:
        """Keep the bytes of a one-dimensional uint8 array, unless this trace has them already.

        In a trace that keeps no tensors they go straight to the payload of the step, which is not folded then.
        """
        if not self.keep_payload:
            return self._append(data)
        return self.find(fingerprint, len(data)) or self.store_pieces((data,), len(data), fingerprint)

    def find(self, fingerprint: str, nbytes: int) -> Location | None:
        """The place of a value that this trace has already."""
        known = self._known.get(f"{fingerprint}{nbytes}")
        if known is None:
            return None
        step, offset, _ = known
        return Location(offset, nbytes, None if step == self._step else step)

    def store_pieces(self, pieces: Iterable[np.ndarray[Any, Any]], nbytes: int, fingerprint: str) -> Location:
        """Keep a value that this trace does not have, and whose bytes come in pieces."""
        if self._stage is None or not self._file_begun:
            raise TraceWriteError(
                f"{self.root}: tensors are not kept, because there was no room for the payload and its buffer of "
                f"{self._buffer} bytes. Free some space, or record with a smaller buffer."
            )
        offset = self._stage.append_pieces(pieces)
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[f"{fingerprint}{nbytes}"] = (self._step, offset, nbytes)
        return Location(offset, nbytes)

    def _append(self, data: np.ndarray[Any, Any]) -> Location:
        file = self._directory / layout.PAYLOAD
        try:
            with file.open("ab") as payload:
                offset = (payload.tell() + ALIGN - 1) // ALIGN * ALIGN
                payload.write(bytes(offset - payload.tell()) + data.tobytes())
        except OSError as error:
            raise TraceWriteError(
                f"{file}: a value could not be kept ({error.strerror}). Everything recorded before is complete."
            ) from error
        self._whole = True
        return Location(offset, len(data))

    def end_step(self) -> None:
        """Close the journal. The payload goes on being written behind."""
        journal, self._journal = self._journal, None
        if journal:
            journal.close()
            if self._folds and not self._whole:
                self._fold(journal)
            self._end_payload()

    def _end_payload(self) -> None:
        """The step is complete, as soon as the last of its payload is in its file."""
        ended = None if self._ended is None else functools.partial(self._ended, self._step)
        if self._stage and self._file_begun:
            self._stage.end(ended)
        elif ended is not None:
            ended()

    def _fold(self, journal: Journal) -> None:
        """Put the step's numbers in the place of its journal, where an earlier step has the same structure.

        The whole journal is there until the folded one takes its name, so a kill at any moment leaves one of the two. Whatever goes
        wrong leaves the whole one.
        """
        self.pattern = None
        whole = journal.held()
        if not whole:
            return
        head, _, body = whole.partition(b"\n")
        try:
            pattern, numbers = fold(body, canonical=True)
        except NotFoldable:
            return
        self.pattern = pattern
        if not self._put_folded(journal, head, pattern, numbers):
            while len(self._patterns) >= _PATTERNS:
                del self._patterns[next(iter(self._patterns))]
            self._patterns[pattern.identity] = self._step, pattern

    def end_step_as(self, pattern: Pattern, numbers: Numbers) -> None:
        """Close the journal of a step of which only the head was written: its lines are the pattern's, with these numbers."""
        journal, self._journal = self._journal, None
        assert journal is not None
        head = (journal.held() or b"").partition(b"\n")[0]
        if not self._put_folded(journal, head, pattern, numbers):
            self._journal = journal
            journal.add(unfold(pattern, numbers))
            self.end_step()
            return
        self.pattern = pattern
        journal.close()
        self._end_payload()

    def _put_folded(self, journal: Journal, head: bytes, pattern: Pattern, numbers: Numbers) -> bool:
        """Put a folded journal in the place of a whole one; False where no earlier step has the structure, or it cannot be."""
        known = self._patterns.get(pattern.identity)
        changed: dict[int, bytes] = {}
        if known is None and self._resolved is not None and self._resolved[0] is pattern:
            _, known, changed = self._resolved
        if known is None:
            for step, reference in reversed(self._patterns.values()):
                differing = changed_lines(reference, pattern)
                if differing is not None:
                    known, changed = (step, reference), differing
                    self._resolved = pattern, known, changed
                    break
        if known is None:
            return False
        folded = self._directory / layout.FOLDED
        beside = self._directory / layout.NUMBERS
        try:
            packed, line = folded_line(known[0], pattern, numbers, changed)
            _write(beside, packed)
            _write(folded, head + b"\n" + line)
            folded.replace(journal.path)
        except (OSError, TraceWriteError):
            for file in (folded, beside):
                with contextlib.suppress(OSError):
                    file.unlink()
            return False
        return True

    def drain(self) -> None:
        """Wait until all payload bytes are in their files."""
        if self._stage:
            self._stage.drain()

    def close(self) -> None:
        """End the trace: everything written, the ring removed."""
        try:
            self.end_step()
        finally:
            stage, self._stage = self._stage, None
            if stage:
                stage.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files."""
        if self._journal:
            self._journal.abandon()
        if self._stage:
            self._stage.abandon()
        self._journal = self._stage = None

    def _open_stage(self) -> Stage | None:
        if self._stage is None and not self._stage_failed:
            try:
                self._stage = Stage(layout.stage_path(self.root, self.rank), self._buffer)
            except OSError:
                self._stage_failed = True  # no room even for the ring: every tensor's record will say so
        return self._stage


def folded_line(step: int, pattern: Pattern, numbers: Numbers, changed: Mapping[int, bytes]) -> tuple[bytes, bytes]:
    """The packed numbers of a step, and the line that stands for its journal."""
    packed, ends, counts = numbers.pack()
    line: dict[str, Wire] = {
        "k": "same",
        "as": step,
        "pattern": pattern.identity,
        "numbers": [len(packed), f"{zlib.crc32(packed):08x}"],
        "ends": ends,
        "counts": counts,
    }
    if changed:
        line["changed"] = {str(place): text.decode("utf-8", "surrogatepass") for place, text in changed.items()}
    return packed, seal(line)


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)
