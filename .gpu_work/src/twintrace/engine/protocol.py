"""All that is ever asked of an engine.

for done in engine.run(compare_two, pairs, progress=bar.advance):
    done.item, done.value, done.error
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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
