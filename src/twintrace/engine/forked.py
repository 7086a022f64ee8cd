"""Processes of this machine, for work that holds the interpreter lock: text that is made of objects in memory.

forked(render, halves)          render(halves[0]) here, render(halves[1]) at the same time in a copy of this process

A copy has all objects without their being sent; only what comes back is, as bytes. Where a system has no fork, or a copy fails
for whatever reason, the work is done here: what is wrong with it shows then.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

__all__ = ["forked"]


def forked(function: Callable[[Item], bytes], items: Sequence[Item]) -> Iterator[bytes]:
    """`function(item)` for each item, all at once; the results in the order of the items."""
    copies = [_copy(function, item) for item in items[1:]] if hasattr(os, "fork") else [None] * len(items[1:])
    if items:
        yield function(items[0])
    for item, copy in zip(items[1:], copies, strict=True):
        made = None if copy is None else _collected(*copy)
        yield function(item) if made is None else made


def _copy(function: Callable[[Item], bytes], item: Item) -> tuple[int, int] | None:
    """The number of a copy that is at work, and where it will write; None where there can be none."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's library: a copy multiplies nothing
            number = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if number:
        os.close(writing)
        return number, reading
    try:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(function(item))
        os._exit(0)
    finally:  # whatever it was: nothing of the original's may run in its copy, not even its end
        os._exit(1)


def _collected(number: int, reading: int) -> bytes | None:
    with os.fdopen(reading, "rb") as pipe:
        made = pipe.read()
    _, status = os.waitpid(number, 0)
    return made if status == 0 else None
