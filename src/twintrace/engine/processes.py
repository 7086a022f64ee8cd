"""Processes of this machine: for work in Python itself, on all cores. A process that is lost is replaced, and its work done again.

Processes().run(function, items)      function and items are sent, so they must be such that they can be pickled
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from ..model.errors import TwintraceError, UsageError
from ..model.words import EngineName
from .local import Local, attempt
from .protocol import Done, Engine, Item, Value, begin_ahead, cores, number_of_workers

ATTEMPTS = 3
"""Times that a task is tried whose process is lost: a task that ends every process that it runs in is not tried for ever."""


class Processes:
    """An engine on this machine whose tasks run in processes of their own. They live as long as one `run`."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = number_of_workers(workers, "processes")

    def run(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Done[Item, Value]]:
        """See `protocol.Engine.run`."""
        waiting: deque[tuple[Item, int, Future[Done[Item, Value]]]] = deque()
        pending, number = iter(items), 0
        pool = self._pool()

        def begin(item: Item) -> tuple[Item, int, Future[Done[Item, Value]]]:
            return item, 1, pool.submit(attempt, function, item)  # to the pool of now: a broken one is replaced

        try:
            while True:
                begin_ahead(waiting, pending, self.workers, begin)
                if not waiting:
                    return
                item, tries, future = waiting[0]
                try:
                    done = future.result()
                except BrokenProcessPool as error:
                    pool.shutdown(cancel_futures=True)
                    pool = self._pool()
                    if tries == ATTEMPTS:
                        told = f"the process of a task ended {ATTEMPTS} times before the task did ({error})."
                        done = Done(item, error=TwintraceError(told))
                    else:
                        # Whose process it was is not known: what was under way is tried again, the first counts its tries.
                        again = [(other, count + (place == 0)) for place, (other, count, _) in enumerate(waiting)]
                        waiting = deque((other, count, pool.submit(attempt, function, other)) for other, count in again)
                        continue
                waiting.popleft()
                number += 1
                if progress is not None:
                    progress(number)
                yield done
        finally:  # also when nobody listens any more, or the user has had enough: what has begun is not awaited
            idle = not waiting
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=idle, cancel_futures=True)
            for process in processes if not idle else ():
                process.terminate()

    def _pool(self) -> ProcessPoolExecutor:
        # Forked where that can be: a process that is started anew imports the user's script, which may compare when imported.
        start = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        return ProcessPoolExecutor(
            self.workers, mp_context=multiprocessing.get_context(start), initializer=_leave_interrupts_to_the_parent
        )


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def engine_named(name: EngineName, *, workers: int | None = None, address: str | None = None) -> Engine:
    """An engine for tasks that can be pickled. `address` is that of a Ray cluster."""
    if address is not None and name != "ray":
        raise UsageError(f"address: {address!r} is that of a Ray cluster. Give engine='ray' (--engine ray) with it.")
    match name:
        case "ray":
            from .cluster import Cluster

            return Cluster(address, workers)
        case "threads":
            return Local(workers)
        case "processes":
            return Processes(workers)
        case "auto":
            count = workers or cores()
            return Processes(count) if count > 1 else Local(1)
    raise UsageError(f"engine {name!r}: expected auto, threads, processes or ray.")
