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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

Layer = Callable[[Any], Any]
_LAYERS: dict[tuple[int, str], _Patched] = {}
_LOCK = threading.RLock()
_ABSENT = object()
_aside = 0


def patch(owner: Any, name: str, layer: Layer) -> Callable[[], None]:
    """Put `layer(original)` in the place of `owner.name`; the result takes this layer out again."""
    key = (id(owner), name)
    with _LOCK:
        if key not in _LAYERS:
            _LAYERS[key] = _Body(owner) if isinstance(owner, FunctionType) else _Attribute(owner, name)
        _LAYERS[key].layers.append(layer)
        _rebuild(key)

    def remove() -> None:
        with _LOCK:
            _LAYERS[key].layers.remove(layer)
            _rebuild(key)

    return remove


@contextmanager
def put_aside() -> Iterator[None]:
    """Every function has its own code again; afterwards the layers are back. For a compiler, which reads the functions it finds."""
    global _aside
    with _LOCK:
        _aside += 1
        if _aside == 1:
            for patched in _LAYERS.values():
                if isinstance(patched, _Body):
                    patched.restore()
    try:
        yield
    finally:
        with _LOCK:
            _aside -= 1
            if _aside == 0:
                for patched in _LAYERS.values():
                    if isinstance(patched, _Body):
                        patched.put()


def _rebuild(key: tuple[int, str]) -> None:
    patched = _LAYERS[key]
    patched.build()
    if not patched.layers:
        del _LAYERS[key]
        patched.restore()
    elif not (_aside and isinstance(patched, _Body)):
        patched.put()


class _Patched:
    """Something in whose place layers are."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def build(self) -> None:
        """Put the layers together, on top of the original."""
        raise NotImplementedError

    def put(self) -> None:
        """Let them be found."""
        raise NotImplementedError

    def restore(self) -> None:
        """Let the original be found."""
        raise NotImplementedError


class _Attribute(_Patched):
    """An attribute of a class or module; its own, or one that it inherits."""

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__()
        self._owner, self._name = owner, name
        self._original = vars(owner).get(name, _ABSENT)
        self._built: Any = None

    def build(self) -> None:
        # What is inherited is looked up anew by each call: the class that owns it may have been patched since.
        built = _inherited(self._owner, self._name) if self._original is _ABSENT else self._original
        for layer in self.layers:
            built = layer(built)
        self._built = built

    def put(self) -> None:
        setattr(self._owner, self._name, self._built)

    def restore(self) -> None:
        if self._original is not _ABSENT:
            setattr(self._owner, self._name, self._original)
        elif self._name in vars(self._owner):
            delattr(self._owner, self._name)


def _inherited(owner: Any, name: str) -> Any:
    def call(this: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(owner, this), name)(*args, **kwargs)

    return call


class _Body(_Patched):
    """A function's own code, and how to put another in its place."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__()
        self._function, self._code = function, function.__code__
        self._original = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self._original.__kwdefaults__ = function.__kwdefaults__
        self._detour = self._code

    def build(self) -> None:
        target: Any = self._original
        for layer in self.layers:
            target = layer(target)
        self._detour = _detour(target, self._code)

    def put(self) -> None:
        self._function.__code__ = self._detour

    def restore(self) -> None:
        self._function.__code__ = self._code


def _entrance(*args: Any, **kwargs: Any) -> Any:
    target: Any = "the target goes here"
    return target(*args, **kwargs)


def _detour(target: Any, code: CodeType) -> CodeType:
    """The entrance's code with the target among its constants: a function's code can be replaced, the names that it sees cannot."""
    constants = tuple(target if item == "the target goes here" else item for item in _entrance.__code__.co_consts)
    return _entrance.__code__.replace(co_consts=constants, co_freevars=code.co_freevars, co_name=code.co_name)
