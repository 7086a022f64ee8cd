"""Replace a function for a while, so that several recorders can do so and leave in any order.

    remove = patch(torch.nn.Module, "__call__", lambda original: wrapped)
    remove()          the original is back once the last recorder has left

Used only where torch offers no other way in. Layers are put together anew when one leaves, so no recorder ever restores
another's wrapper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Layer = Callable[[Any], Any]
_LAYERS: dict[tuple[int, str], tuple[Any, Any, list[Layer]]] = {}
_LOCK = threading.Lock()


def patch(owner: Any, name: str, layer: Layer) -> Callable[[], None]:
    """Put `layer(original)` in the place of `owner.name`; the result takes this layer out again."""
    key = (id(owner), name)
    with _LOCK:
        if key not in _LAYERS:
            _LAYERS[key] = (owner, getattr(owner, name), [])
        _LAYERS[key][2].append(layer)
        _rebuild(key)

    def remove() -> None:
        with _LOCK:
            layers = _LAYERS[key][2]
            layers.remove(layer)
            _rebuild(key)

    return remove


def _rebuild(key: tuple[int, str]) -> None:
    owner, original, layers = _LAYERS[key]
    function = original
    for layer in layers:
        function = layer(function)
    is_static = isinstance(getattr(owner, "__dict__", {}).get(key[1]), staticmethod)
    setattr(owner, key[1], staticmethod(function) if is_static else function)
    if not layers:
        del _LAYERS[key]
