"""Payload bytes on their way to disk: copied once by the training thread, written behind it, safe from `kill -9`.

    training thread ── copy ──▶  ring, a file mapped into memory  ── worker thread ──▶  step0/rank0/payload.bin

The ring is a file beside the journals, so what lies in it survives the process: a reader that finds `payload.bin` too short
takes the rest from the ring (byte `g` of the stream is at `g % size`; each journal's header says where its payload begins in
the stream). It is removed when the trace is closed.

Memory is bounded by the ring's size. When the disk is slower than the network, `append` waits; nothing is dropped.
Tried and left: mapping `payload.bin` itself (a page fault for every 4 KiB, 1.3 GB/s against 6.5), a plain queue (what is in it
is lost with the process).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import TraceWriteError
from .remote import RemotePath

ALIGN = 64
DEFAULT_BYTES = 64 << 20
_WAKE = 4 << 20  # the worker is woken for this many bytes, not for each tensor: waking costs more than copying
_PIECE = 8 << 20


@dataclass
class _Segment:
    file: int
    start: int
    end: int | None = None
    written: Callable[[], None] | None = None


class Stage:
    """The ring and its worker. One per rank of a trace; files change from step to step."""

    def __init__(self, path: Path, size: int = DEFAULT_BYTES) -> None:
        self.path = path
        self.size = max(ALIGN * 1024, (size + ALIGN - 1) // ALIGN * ALIGN)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # Really allocated: on a full disk this raises here, where touching a hole later would be a SIGBUS.
            os.posix_fallocate(descriptor, 0, self.size)
            self._map = mmap.mmap(descriptor, self.size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._ring = np.frombuffer(self._map, dtype=np.uint8)
        self._head = 0  # copied by the training thread
        self._tail = 0  # written by the worker
        self._start = 0  # where the current file begins
        self._segments: deque[_Segment] = deque()
        self._changed = threading.Condition()
        self._hurry = False
        self._closing = False
        self._error: OSError | None = None
        self._worker = threading.Thread(target=self._run, name="twintrace-payload", daemon=True)
        self._worker.start()

    def begin(self, path: Path) -> int:
        """Start a new file; its bytes begin at the returned position of the stream."""
        if self._error:
            raise self._failure()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with self._changed:
            self._finish_segment()
            self._segments.append(_Segment(descriptor, self._head))
            self._start = self._head
            return self._head

    def append(self, data: np.ndarray[Any, Any]) -> int:
        """Copy the bytes of a one-dimensional uint8 array; the offset in the current file. Waits while the ring is full."""
        return self.append_pieces((data,))

    def append_pieces(self, pieces: Iterable[np.ndarray[Any, Any]]) -> int:
        """The same of an array that comes in pieces. After an error on the way, what had come lies in the file to no use."""
        start = position = self._head
        try:
            for data in pieces:
                position = self._copy(data, position)
        finally:
            self._head = (position + ALIGN - 1) // ALIGN * ALIGN
        if self._error:
            raise self._failure()
        if self._head - self._tail >= _WAKE:
            with self._changed:
                self._changed.notify_all()
        return start - self._start

    def _copy(self, data: np.ndarray[Any, Any], position: int) -> int:
        """Copy bytes to a position of the stream; the position after them."""
        done, total = 0, len(data)
        while done < total:
            free = self.size - (position - self._tail)
            if free <= 0:
                self._wait_for_room(position)
                continue
            at = position % self.size
            piece = min(free, total - done, self.size - at)
            self._ring[at : at + piece] = data[done : done + piece]
            position += piece
            done += piece
            if done < total:  # larger than what was free: hand over what is there
                with self._changed:
                    self._head = position
                    self._changed.notify_all()
        return position

    def end(self, written: Callable[[], None] | None = None) -> None:
        """No more bytes for the current file. `written` is called by the worker once all are in it; not if the disk is full."""
        with self._changed:
            if self._segments and self._segments[-1].end is None:
                self._segments[-1].written = written
            self._finish_segment()
            if written is not None:
                self._changed.notify_all()

    def drain(self) -> None:
        """Wait until everything is in its file."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._error is not None or self._tail >= self._head)
            self._hurry = False
        if self._error:
            raise self._failure()

    def close(self) -> None:
        """Write what is left and remove the ring. After a write error the ring stays: it holds what the disk refused."""
        with self._changed:
            self._finish_segment()
            self._closing = True
            self._changed.notify_all()
        self._worker.join()
        del self._ring
        # Somebody still looks at it (a debugger, a traceback): it goes when they let go.
        with contextlib.suppress(BufferError):
            self._map.close()
        if self._error is None:
            self.path.unlink(missing_ok=True)
        else:
            raise self._failure()

    def abandon(self) -> None:
        """In a forked child: forget the ring without touching the parent's files."""
        self._segments.clear()

    def _finish_segment(self) -> None:
        if self._segments and self._segments[-1].end is None:
            self._segments[-1].end = self._head

    def _wait_for_room(self, position: int) -> None:
        with self._changed:
            self._head = position
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._error is not None or self._tail + self.size > position)
            self._hurry = False
        if self._error:
            raise self._failure()

    def _failure(self) -> TraceWriteError:
        assert self._error is not None
        return TraceWriteError(
            f"{self.path.parent}: the payload could not be written ({self._error.strerror}). Tensors are no longer kept; "
            f"statistics and fingerprints go on. Free some space, or record with keep='fingerprint'."
        )

    def _run(self) -> None:
        try:
            while self._write_some():
                pass
        except OSError as error:
            with self._changed:
                # Its frames hold on to the ring, which could then not be unmapped.
                self._error = error.with_traceback(None)
                self._changed.notify_all()
        finally:
            with self._changed:
                while self._segments:
                    with contextlib.suppress(OSError):
                        os.close(self._segments.popleft().file)

    def _write_some(self) -> bool:
        with self._changed:
            self._changed.wait_for(self._has_work)
            self._retire_finished()
            if not self._segments or self._tail >= self._head:
                return not self._closing
            segment = self._segments[0]
            stop = self._head if segment.end is None else min(segment.end, self._head)
            at = self._tail % self.size
            piece = min(stop - self._tail, self.size - at, _PIECE)
        if piece > 0:
            written = os.pwrite(segment.file, memoryview(self._map)[at : at + piece], self._tail - segment.start)
            with self._changed:
                self._tail += written
                self._changed.notify_all()
        return True

    def _has_work(self) -> bool:
        waiting = self._head - self._tail
        finished = bool(self._segments) and self._segments[0].end is not None
        return self._closing or waiting >= _WAKE or ((self._hurry or finished) and (waiting > 0 or finished))

    def _retire_finished(self) -> None:
        while self._segments and self._segments[0].end is not None and self._segments[0].end <= self._tail:
            segment = self._segments.popleft()
            os.close(segment.file)
            if segment.written is not None:
                segment.written()


def read_staged(path: Path | RemotePath, position: int, count: int) -> bytes:
    """`count` bytes of the stream from a ring that a killed process left behind; shorter where the ring is damaged."""
    size = path.stat().st_size
    if not 0 < count <= size:
        return b""
    with path.open("rb") as file:
        at = position % size
        file.seek(at)
        first = file.read(min(count, size - at))
        file.seek(0)
        return first + file.read(count - len(first))
