"""Replace a function for a while, so that several recorders can do so and leave in any order.

    remove = patch(nn.Cell, "__call__", lambda original: wrapped)        an attribute of a class or module
    remove = patch(ops.relu, "__call__", lambda original: wrapped)       a function itself, whoever holds it
    remove()          the original is back once the last recorder has left

MindSpore has no function mode: its functions are replaced. Not where they are looked up, since a function has many names
(`from mindspore.ops import relu`, `self.act = ops.relu`, a dict of activations), but in the function object: while it is replaced,
its code is one line that calls the layers, and every name leads there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

Layer = Callable[[Any], Any]
_LAYERS: dict[tuple[int, str], tuple[Any, Any, list[Layer]]] = {}
_LOCK = threading.Lock()
_ABSENT = object()


def patch(owner: Any, name: str, layer: Layer) -> Callable[[], None]:
    """Put `layer(original)` in the place of `owner.name`; the result takes this layer out again."""
    key = (id(owner), name)
    with _LOCK:
        if key not in _LAYERS:
            original = _Body(owner) if isinstance(owner, FunctionType) else vars(owner).get(name, _ABSENT)
            _LAYERS[key] = (owner, original, [])
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
    if isinstance(original, _Body):
        original.put(layers)
    elif layers:
        # An inherited method is looked up anew by each call: the class that owns it may have been patched since.
        function = original if original is not _ABSENT else _inherited(owner, key[1])
        for layer in layers:
            function = layer(function)
        setattr(owner, key[1], function)
    elif original is _ABSENT:
        delattr(owner, key[1])
    else:
        setattr(owner, key[1], original)
    if not layers:
        del _LAYERS[key]


def _inherited(owner: Any, name: str) -> Any:
    def call(this: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(owner, this), name)(*args, **kwargs)

    return call


class _Body:
    """A function's own code, and how to put another in its place."""

    def __init__(self, function: FunctionType) -> None:
        self._function, self._code = function, function.__code__
        self._original = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self._original.__kwdefaults__ = function.__kwdefaults__

    def put(self, layers: list[Layer]) -> None:
        """Let the function run these layers; without any, its own code again."""
        if not layers:
            self._function.__code__ = self._code
            return
        target: Any = self._original
        for layer in layers:
            target = layer(target)
        self._function.__code__ = _detour(target, self._code)


def _entrance(*args: Any, **kwargs: Any) -> Any:
    target: Any = "the target goes here"
    return target(*args, **kwargs)


def _detour(target: Any, code: CodeType) -> CodeType:
    """The entrance's code with the target among its constants: a function's code can be replaced, the names that it sees cannot."""
    constants = tuple(target if item == "the target goes here" else item for item in _entrance.__code__.co_consts)
    return _entrance.__code__.replace(co_consts=constants, co_freevars=code.co_freevars, co_name=code.co_name)
