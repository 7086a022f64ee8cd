"""Files that are whole or not there.

    with written(path) as file:          a text file beside `path`, which takes its place when the block ends well
        file.write(…)
    with placed(path) as temporary:      the same for a library that wants a path

A reader never sees half a report, and an older one is kept until the new one is complete.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ..model.errors import ReportError


@contextlib.contextmanager
def placed(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path in the same folder, put in place of `path` in one step; removed if anything goes wrong."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise ReportError(
            f"{target}: cannot be written ({error.strerror}). Give a file in a folder that exists and that you may write to."
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise ReportError(
            f"{target}: cannot be written ({error.strerror or error}). The old file is unchanged."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A text file in UTF-8, with newlines as they are given. Invalid Unicode is written as a question mark."""
    with placed(path) as temporary, temporary.open("w", encoding="utf-8", errors="replace", newline="") as file:
        yield file


def _umask() -> int:
    """The umask, which mkstemp does not look at. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
