"""Files that grow while a run goes on, and are whole whenever somebody looks: also when the disk is full in the middle of a line.

    size = append(file, line, size, where=path)               a file of lines: the new one is there, or not at all
    replace_end(file, more, start, b"}", where=path)          one JSON object: its end is written over by more, and an end
    with replaced(path) as file: …                            a file that is as it was until all of the new one is written
    with write_errors(path): …                                an OSError in the block is a TraceWriteError

The first two write with the kernel what they are given, all of it. When that fails the file is put back as it was before, and a
TraceWriteError says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..model.errors import TraceWriteError

ADVICE = "Free some space."


def append(file: int, data: bytes, size: int, *, where: object) -> int:
    """The new size of a file of `size` bytes, opened with O_APPEND."""
    try:
        written = os.write(file, data)
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)
        raise _trouble(where, error, ADVICE) from error
    return size + len(data)


def replace_end(file: int, data: bytes, start: int, end: bytes, *, where: object, advice: str = ADVICE) -> None:
    """`data` from `start` on, instead of what is there; on failure `end`, and nothing behind it."""
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(file, data[written:], start + written)
    except OSError as error:
        with contextlib.suppress(OSError):  # the place of the old end is there, so it fits even on a full disk
            os.pwrite(file, end, start)
            os.ftruncate(file, start + len(end))
        raise _trouble(where, error, advice) from error


@contextlib.contextmanager
def replaced(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file that takes the place of the one at `path` when the block ends; if it fails, nothing has changed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong is told, not that its trace cannot be removed
            draft.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def write_errors(where: object, advice: str = ADVICE) -> Iterator[None]:
    """An OSError in the block becomes a TraceWriteError, which says what is complete."""
    try:
        yield
    except TraceWriteError:
        raise
    except OSError as error:
        raise _trouble(where, error, advice) from error


def _trouble(where: object, error: OSError, advice: str) -> TraceWriteError:
    return TraceWriteError(
        f"{where}: could not be written ({error.strerror}). Everything recorded before is complete. {advice}"
    )
