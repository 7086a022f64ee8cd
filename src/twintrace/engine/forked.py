"""Processes of this machine, for work that holds the interpreter lock: text that is made of objects in memory.

forked(render, parts)           render(part) for each part, in their order: the first parts here, the others at the same time in
                                copies of this process, so that all cores are at work

A copy has all objects without their being sent; only what comes back is, as bytes, through a file without a name: memory holds one
result at a time. Where a system has no fork, or a copy fails for whatever reason, the work is done here: what is wrong with it
shows then.
"""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import IO, Generic, TypeVar

from .cores import cores

Item = TypeVar("Item")

__all__ = ["forked"]

_LENGTH = 8  # bytes that say how long a result is


def forked(
    function: Callable[[Item], bytes],
    items: Sequence[Item],
    *,
    least: int = 1,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[bytes]:
    """`function(item)` for each item; the results in the order of the items.

    least    so many items are worth a copy
    folder   where there is room for the results of the copies; the temporary one if it is not given
    """
    count = max(1, min(cores(), len(items) // least)) if hasattr(os, "fork") else 1
    cuts = [len(items) * number // count for number in range(count + 1)]
    stretches = [items[begin:end] for begin, end in pairwise(cuts)]
    copies: list[_Copy[Item]] = []
    try:
        copies += [_Copy(function, stretch, folder) for stretch in stretches[1:]]
        yield from map(function, stretches[0])
        for copy in copies:
            yield from copy.results()
    finally:
        for copy in copies:
            copy.end()


class _Copy(Generic[Item]):
    """A copy of this process that works on some of the items."""

    def __init__(
        self, function: Callable[[Item], bytes], items: Sequence[Item], folder: str | os.PathLike[str] | None
    ) -> None:
        self._function, self._items = function, items
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `end`
        self._number: int | None = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's library: a copy starts none
                self._number = os.fork()
        except OSError:  # there can be no more processes
            return
        if self._number == 0:
            self._work()

    def _work(self) -> None:
        """Work of the copy, to its end."""
        try:
            for made in map(self._function, self._items):
                self._file.write(len(made).to_bytes(_LENGTH, "little"))
                self._file.write(made)
            self._file.flush()
            os._exit(0)
        finally:  # whatever it was: nothing of the original's may run in its copy, not even its end
            os._exit(1)

    def results(self) -> Iterator[bytes]:
        """Results of the copy; computed here if it failed."""
        failed = self._number is None or os.waitpid(self._number, 0)[1] != 0
        self._number = None
        if failed:
            yield from map(self._function, self._items)
            return
        self._file.seek(0)
        while length := self._file.read(_LENGTH):
            yield self._file.read(int.from_bytes(length, "little"))

    def end(self) -> None:
        """Leave nothing behind, also where nobody waits for the results any more."""
        if self._number is not None:
            os.kill(self._number, signal.SIGKILL)
            os.waitpid(self._number, 0)
            self._number = None
        self._file.close()
