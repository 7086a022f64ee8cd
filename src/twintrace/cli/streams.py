"""Standard output and error of the whole command, which may be closed at the other end.

Imports nothing heavy: every command begins with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class _Unending:
    """A text stream that takes what is written after its reader has gone, and drops it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            return self._drop(len(text))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop(0)

    def _drop(self, count: int) -> int:
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, self._stream.fileno())
        os.close(void)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def unending_output() -> Iterator[None]:
    """Standard output and error that may be closed at the other end.

    `twintrace compare … --csv pairs.csv | head` writes its files and ends with the code that it would end with alone: an exit code
    is an answer, and a pipe has no say in it.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Unending(stream)) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
