"""A Ray cluster that is there already, or one of this machine: the same tasks, on whatever nodes it has.

Cluster(address="auto").run(function, items)     function and items are sent; a node that is lost costs time, not results

Ray places a task where there is a free core; what a task needs it reads itself, so traces must lie where every node finds them
under the same path or address. ray is imported when an engine of this kind is made, and not before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..model.errors import MissingPackageError, TwintraceError
from .local import attempt
from .processes import ATTEMPTS
from .protocol import Done, Item, Value, begin_ahead


class Cluster:
    """An engine on a Ray cluster. It is left as it was found: only what was started here is ended.

    Args:
        address: of the cluster, `auto` for the one of this machine's environment; None to start one here.
        workers: tasks at once; as many as the cluster has cores if None.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError(
                "the engine ray needs Ray, which is not installed. Run: pip install 'twintrace[ray]'"
            ) from error
        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own:
            try:
                ray.init(
                    address=address, num_cpus=None if address else workers, log_to_driver=False, logging_level="ERROR"
                )
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise TwintraceError(
                    f"no Ray cluster answers at {address or 'this machine'} ({error}). "
                    f"Start one with `ray start --head`, or give --address."
                ) from error
        self.workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Done[Item, Value]]:
        """See `protocol.Engine.run`."""
        ray = self._ray
        task = ray.remote(max_retries=ATTEMPTS - 1, num_cpus=1)(attempt)
        shared = ray.put(function)
        pending, number = iter(items), 0
        waiting: deque[tuple[Item, Any]] = deque()
        try:
            while True:
                begin_ahead(waiting, pending, self.workers, lambda item: (item, task.remote(shared, item)))
                if not waiting:
                    return
                item, reference = waiting[0]
                try:
                    done: Done[Item, Value] = ray.get(reference)
                except ray.exceptions.RayError as error:  # the nodes were lost more often than it is tried
                    done = Done(item, error=TwintraceError(f"the node of a task was lost ({type(error).__name__})."))
                waiting.popleft()
                number += 1
                if progress is not None:
                    progress(number)
                yield done
        finally:  # also when nobody listens any more, or the user has had enough
            for _, reference in waiting:
                ray.cancel(reference, force=True)
            if self._own:
                ray.shutdown()
