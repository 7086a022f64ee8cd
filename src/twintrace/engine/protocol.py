"""All that is ever asked of an engine.

for done in engine.run(compare_two, pairs, progress=bar.advance):
    done.item, done.value, done.error
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from ..model.errors import UsageError

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Done(Generic[Item, Value]):
    """A task that has ended: with a value, or with an error."""

    item: Item
    value: Value | None = None
    error: Exception | None = None

    def result(self) -> Value:
        """The value; what the task raised is raised again."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None only where the task gave None


class Engine(Protocol):
    """Runs tasks that know nothing of each other."""

    def run(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Done[Item, Value]]:
        """`function(item)` for each item; one `Done` each, in the order of the items.

        Items are taken as they are needed, a bounded number ahead of what has been handed out. `progress` is called in the
        caller's thread with the number of tasks handed out so far. Whoever stops listening stops the work.
        """
        ...


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
