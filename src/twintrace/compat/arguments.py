"""Arguments of other tools' functions, held to what they may be. Errors name the argument, and what it is.

path_of("output_path", "../x", "folder")        an absolute path; links in it are not followed
made_folder("output_path", "out")               the same, and the folder is there
flags(equal_nan=0)                              UsageError: equal_nan: expected True or False, got 0.
one_of("mode", "some", ("all", "list"))         UsageError: mode: expected one of all, list, got 'some'.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model.errors import TraceExistsError, TraceWriteError, TwintraceError, UsageError


def path_of(name: str, value: Any, kind: str = "file") -> Path:
    """An absolute path: `a/../b` and `b` are one."""
    try:
        return Path(os.path.abspath(os.fsdecode(value)))  # noqa: PTH100 - without following links
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: expected the name of a {kind}, got {value!r} ({error}).") from None


def made_folder(name: str, value: Any, *, mode: int = 0o777, trouble: type[TwintraceError] | None = None) -> Path:
    """A folder that is made if it is not there.

    Raises:
        TraceExistsError: there is a file in the way; TraceWriteError: it cannot be made. `trouble` instead of both.
    """
    folder = path_of(name, value, "folder")
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        kind = trouble or (TraceExistsError if in_the_way else TraceWriteError)
        why = "expected a folder, found a file in the way" if in_the_way else f"cannot be made ({error.strerror})"
        raise kind(f"{name}: {folder}: {why}. Choose another.") from error
    return folder


def flags(**given: Any) -> None:
    """UsageError for an argument that is neither True nor False."""
    for name, flag in given.items():
        if not isinstance(flag, bool):
            raise UsageError(f"{name}: expected True or False, got {flag!r}.")


def one_of(name: str, value: Any, choices: Sequence[Any]) -> None:
    """UsageError for an argument that is none of these."""
    if value not in choices or isinstance(value, bool):
        raise UsageError(f"{name}: expected one of {', '.join(map(str, choices))}, got {value!r}.")
