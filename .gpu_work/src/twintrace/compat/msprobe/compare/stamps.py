"""The time in the names of a comparison's files: one that no other comparison in the same directory has.

    with free_stamp(output) as stamp:      "20260102030405", the second that it is, or the next that is free

While it is used, a hidden file says so, and is locked. A lock ends with its process, however that ends: a file without one is
what a killed comparison left, and is removed with whatever that was writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ....model.errors import ReportError

__all__ = ["free_stamp"]

_DIGITS = "[0-9]" * 14


@contextlib.contextmanager
def free_stamp(folder: Path) -> Iterator[str]:
    """A time for the names of all files that are written in the block."""
    _sweep(folder)
    second = int(time.time())
    while (taken := _take(folder, _written(second))) is None:
        second += 1
    path, handle = taken
    try:
        yield _written(second)
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _take(folder: Path, stamp: str) -> tuple[Path, int] | None:
    path = folder / f".{stamp}.lock"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return None
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written to ({error.strerror}). Choose another with -o.") from None
    if not _lock(handle) or os.fstat(handle).st_nlink == 0:  # somebody took it for a leftover
        os.close(handle)
        return None
    if any(folder.glob(f"*_{stamp}.*")):
        path.unlink(missing_ok=True)
        os.close(handle)
        return None
    return path, handle


def _lock(handle: int) -> bool:
    """False if another has it. Where a file system knows no locks, nobody has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sweep(folder: Path) -> None:
    """Remove what killed comparisons left."""
    for path in folder.glob(f".{_DIGITS}.lock"):
        with contextlib.suppress(OSError):  # gone by now, or not ours to remove
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for left in folder.glob(f".*_{path.stem[1:]}.*"):
                    left.unlink()
                path.unlink()
            finally:
                os.close(handle)


def _written(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(second))
