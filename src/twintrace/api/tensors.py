"""Single tensors, whosever they are, and the process that has them.

framework_of(value)          "torch", "mindspore", …; None for anything but a tensor or a module
array_of(tensor)             its values as numpy holds them           -> (array, element type)
tap(tensor, callback)        the tensor, whose gradient is told        -> the tensor to go on with
graph_tap(callback)          the same for a graph of MindSpore          -> a function to call with the tensor, while it is compiled
rank_and_world()             which process of a parallel run this is   -> (0, 1) where there is one alone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..collect.processes import unseen
from ..frameworks import registry
from ..frameworks.protocol import Framework, Look, Unreadable
from ..model.errors import UsageError


def framework_of(value: object) -> str | None:
    """The framework of a tensor or module, asked among the frameworks that are imported."""
    adapter = registry.framework_of(value)
    return None if adapter is None else adapter.name


def array_of(tensor: Any) -> tuple[np.ndarray[Any, Any], str]:
    """A copy of the values, C-contiguous, in their storage type, and the element type. UsageError where there are none.

    A sparse tensor is written out, zeros and all. A recorder that is at work does not see it.
    """
    adapter = _owner(tensor)
    with unseen():
        look = adapter.look(tensor)
        if look.parts:
            tensor = _dense(tensor, look)
        try:
            return adapter.host(tensor).reshape(look.shape).copy(), look.dtype
        except Unreadable as error:
            raise UsageError(f"{look.dtype}{list(look.shape)}: its values cannot be had: {error}.") from None


def _dense(tensor: Any, look: Look) -> Any:
    """All values of a tensor that is kept in parts: both frameworks have one name for it."""
    try:
        return tensor.to_dense()
    except Exception as error:
        raise UsageError(
            f"{look.dtype}{list(look.shape)}: its values cannot be had: it is kept in parts ({', '.join(look.parts)}), and its "
            f"to_dense() says: {(str(error).splitlines() or [type(error).__name__])[0][:200]}. Take its parts instead."
        ) from error


def tap(tensor: Any, callback: Callable[[Any], None]) -> Any:
    """The tensor to go on with: whenever a backward pass comes by, its gradient is told."""
    with unseen():
        return _owner(tensor).tap(tensor, callback)


def graph_tap(callback: Callable[[Any], None]) -> Any:
    """Function that gives the tensor to go on with, to be called in a graph that MindSpore compiles: see `tap`.

    To be asked for by the compiler itself, as a constant of the graph.
    """
    return registry.peculiar("mindspore", "taps").telling_in_graph(callback)


def rank_and_world() -> tuple[int, int]:
    """(rank, number of ranks), as the frameworks that are imported say; (0, 1) where none is, or none knows of others."""
    places = [adapter.rank() for adapter in registry.loaded()]
    return max(((rank, max(world, rank + 1)) for rank, world in places), key=lambda place: place[1], default=(0, 1))


def _owner(tensor: Any) -> Framework:
    adapter = registry.framework_of(tensor)
    if adapter is None or not adapter.is_tensor(tensor):
        raise UsageError(f"expected a tensor, got {type(tensor).__name__}.")
    return adapter
