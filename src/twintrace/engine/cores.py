"""Number of tasks that can run at once here, and that are begun ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from ..model.errors import UsageError

Item = TypeVar("Item")
Begun = TypeVar("Begun")

AHEAD = 4
"""Tasks for each worker beyond what has been handed out: enough that a long one holds up nobody."""


def cores() -> int:
    """The cores that this process may use, which in a container are often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of_workers(asked: int | None, kind: str) -> int:
    """The number that was asked for, as many as there are cores if none was. Raises UsageError."""
    if asked is not None and asked < 1:
        raise UsageError(f"workers: expected a number of {kind} from 1 on, got {asked}.")
    return asked or cores()


def begin_ahead(waiting: deque[Begun], items: Iterator[Item], workers: int, begin: Callable[[Item], Begun]) -> None:
    """Begins as many further tasks as there is room for, and puts them at the end of those that wait."""
    waiting.extend(begin(item) for item in islice(items, max(0, workers * AHEAD + 1 - len(waiting))))
