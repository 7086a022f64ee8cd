"""A JSON file that is whole whenever the process is killed, and costs one `write` for each record.

    {"task": …, "data": {
      "Functional.relu.0.forward": {…},          written once, never touched again
      "Functional.relu.0.backward": {…}          still open: said again with every commit, until it is complete
     }}                                          closing braces: the next record is written over them

So a record costs what it is long, not what the file is long. Text that is written beyond the new end when the open part shrinks is
blanked. One `write` is not interrupted by a signal but between pages; a file that is torn all the same lacks its end only, and each
record is a line of its own.

A complete record is changed only by `replace` (a second backward through the same call), and then in a new file that takes the
place of the old one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..store.appending import replace_end, replaced, write_errors

_INDENT = "\n  "
_MEMBER = re.compile(r'  ("(?:[^"\\]|\\.)*"): ')
_ADVICE = "Free some space, or choose another path."
quote = json.encoder.encode_basestring_ascii
"""A text as JSON, in ASCII: what is no Unicode (a lone surrogate) is whole, too."""


class Document:
    """One JSON object: a head, then records by name, in order. Texts are JSON in ASCII."""

    def __init__(self, path: Path, head: str = "{", tail: str = "\n}\n", *, mode: int = 0o644) -> None:
        self.path = path
        self._tail = tail.encode()
        self._names = False  # is there a record before the next one?
        self._pending: list[bytes] = []
        self._open_part = b""
        with write_errors(path, _ADVICE):
            # A new file, not the old one emptied: the old one may be linked elsewhere.
            path.unlink(missing_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        self._size = self._end = 0
        self._pending.append(head.encode())
        self.commit()

    def add(self, name: str, text: str) -> None:
        """A record that is complete; in the file after the next commit."""
        self._pending.append(self._line(name, text))

    def commit(self, unfinished: Iterable[tuple[str, str]] = ()) -> None:
        """Write what was added, and what is still open behind it."""
        before = self._names
        open_part = b"".join([self._line(name, text) for name, text in unfinished])
        self._names = before
        if not self._pending and open_part == self._open_part:
            return
        body = b"".join(self._pending)
        data = b"".join((body, open_part, self._tail))
        end = self._end + len(data)
        if end < self._size:
            data += b" " * (self._size - end - 1) + b"\n"
        replace_end(self._file, data, self._end, self._tail, where=self.path, advice=_ADVICE)
        self._pending.clear()
        self._open_part = open_part
        self._end += len(body)
        self._size = max(self._size, end)

    def replace(self, texts: Mapping[str, str]) -> None:
        """Say complete records again; those that are not there are added."""
        self.commit()
        if not texts:
            return
        again = {quote(name): (name, text) for name, text in texts.items()}
        lines = os.pread(self._file, self._end, 0).decode("ascii").split("\n")
        for number, line in enumerate(lines):
            match = _MEMBER.match(line)
            if match is not None and match[1] in again:
                lines[number] = f"{match[0]}{again.pop(match[1])[1]}{',' * line.endswith(',')}"
        with write_errors(self.path, _ADVICE):
            with replaced(self.path) as draft:
                draft.write("\n".join(lines).encode("ascii") + self._tail)
            file = os.open(self.path, os.O_RDWR)
        os.close(self._file)
        self._file = file
        self._size = os.fstat(file).st_size
        self._end = self._size - len(self._tail)
        for name, text in again.values():
            self.add(name, text)
        self.commit()

    def resume(self) -> None:
        """Go on with a file that was closed."""
        if self._file < 0:
            with write_errors(self.path, _ADVICE):
                self._file = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        """The last commit, and the blanks behind the end go. `resume` goes on."""
        if self._file < 0:
            return
        try:
            self.commit()
            self._size = self._end + len(self._tail)
            with write_errors(self.path, _ADVICE):
                os.ftruncate(self._file, self._size)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without writing."""
        file, self._file = self._file, -1
        if file >= 0:
            with contextlib.suppress(OSError):
                os.close(file)

    def _line(self, name: str, text: str) -> bytes:
        comma = "," if self._names else ""
        self._names = True
        return f"{comma}{_INDENT}{quote(name)}: {text}".encode("ascii")
