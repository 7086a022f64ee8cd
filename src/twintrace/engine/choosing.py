"""The engine that a name stands for.

engine_named("auto", workers=None)      processes where there are several cores, else this thread
"""

from __future__ import annotations

from ..model.choices import EngineName
from ..model.errors import UsageError
from .cores import cores
from .local import Local
from .processes import Processes
from .protocol import Engine


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
