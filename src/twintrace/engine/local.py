"""Threads of this process: for work that releases the interpreter lock, as the kernels of the scales do.

Local().run(function, items)          on all cores that this process may use
Local(workers=1).run(…)               in the caller's own thread, one after the other
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from .protocol import Done, Item, Value, begin_ahead, number_of_workers


class Local:
    """An engine on this machine. It holds nothing between runs: threads live as long as one `run`."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = number_of_workers(workers, "threads")

    def run(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Done[Item, Value]]:
        """See `protocol.Engine.run`."""
        ended = self._serially(function, items) if self.workers == 1 else self._in_threads(function, items)
        for number, done in enumerate(ended, 1):
            if progress is not None:
                progress(number)
            yield done

    def _serially(self, function: Callable[[Item], Value], items: Iterable[Item]) -> Iterator[Done[Item, Value]]:
        for item in items:
            yield attempt(function, item)

    def _in_threads(self, function: Callable[[Item], Value], items: Iterable[Item]) -> Iterator[Done[Item, Value]]:
        waiting: deque[Future[Done[Item, Value]]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="twintrace")
        try:
            pending = iter(items)
            while True:
                begin_ahead(waiting, pending, self.workers, lambda item: pool.submit(attempt, function, item))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:  # also when nobody listens any more, or the items themselves fail: what has begun is awaited, no more begins
            pool.shutdown(cancel_futures=True)


def attempt(function: Callable[[Item], Value], item: Item) -> Done[Item, Value]:
    """The task, done here; an error is a result."""
    try:
        return Done(item, function(item))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this task's; the caller decides what it costs
        return Done(item, error=error)
