"""Replace a function for a while, so that several recorders can do so and leave in any order.

    remove = patch(nn.Cell, "__call__", lambda original: wrapped)        an attribute of a class or module
    remove = patch(ops.relu, "__call__", lambda original: wrapped)       a function itself, whoever holds it
    remove()          the original is back once the last recorder has left

    again = Patch(ops.relu, "__call__", layer)      the same, to be put in and taken out many times: what was built is kept
    again.install(), again.remove()

MindSpore has no function mode: its functions are replaced. Not where they are looked up, since a function has many names
(`from mindspore.ops import relu`, `self.act = ops.relu`, a dict of activations), but in the function object: while it is replaced,
its code is one line that calls the layers, and every name leads there.
"""

from __future__ import annotations

import functools
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
    return Patch(owner, name, layer).install()


class Patch:
    """One layer in one place. A recorder that is started for a step and stopped after it does so with thousands of them."""

    __slots__ = ("_kept", "_key", "_layer", "_owner")

    def __init__(self, owner: Any, name: str, layer: Layer) -> None:
        self._owner, self._key, self._layer = owner, (id(owner), name), layer
        self._kept: _Patched | None = None

    def install(self) -> Callable[[], None]:
        """Put the layer in; the result takes it out again."""
        with _LOCK:
            if self._key not in _LAYERS:
                if self._kept is None or not self._kept.fits():
                    name = self._key[1]
                    self._kept = (
                        _Body(self._owner) if isinstance(self._owner, FunctionType) else _Attribute(self._owner, name)
                    )
                _LAYERS[self._key] = self._kept
            _LAYERS[self._key].layers.append(self._layer)
            _rebuild(self._key)
        return self.remove

    def remove(self) -> None:
        """Take the layer out."""
        with _LOCK:
            _LAYERS[self._key].layers.remove(self._layer)
            _rebuild(self._key)


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
    if not patched.layers:
        del _LAYERS[key]
        patched.restore()
        return
    if patched.built_of != patched.layers:
        patched.build()
        patched.built_of = patched.layers.copy()
    if not (_aside and isinstance(patched, _Body)):
        patched.put()


class _Patched:
    """Something in whose place layers are."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.built_of: list[Layer] = []

    def fits(self) -> bool:
        """Is what is there now, without any layer, still what it was built on?"""
        raise NotImplementedError

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

    def fits(self) -> bool:
        return vars(self._owner).get(self._name, _ABSENT) is self._original

    def build(self) -> None:
        # An inherited method is looked up anew by each call: the class that owns it may have been patched since.
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

    def fits(self) -> bool:
        now, then = self._function, self._original
        return (
            now.__code__ is self._code
            and now.__defaults__ is then.__defaults__
            and now.__kwdefaults__ is then.__kwdefaults__
        )

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
    entrance = _entrance_beside(code.co_freevars)
    constants = tuple(target if item == "the target goes here" else item for item in entrance.co_consts)
    return entrance.replace(co_consts=constants, co_name=code.co_name)


@functools.cache
def _entrance_beside(free: tuple[str, ...]) -> CodeType:
    """The entrance's code in a closure over variables, since the code of a function has to have those of the function.

    Compiled as such: with their names alone, who reads the variables of its frame (a debugger, a test runner) ends the process.
    """
    code = _entrance.__code__
    if not free:
        return code
    names = ", ".join(free)
    source = (
        f"def outer({names}):\n"
        "    def _entrance(*_args_, **_kwargs_):\n"
        "        _target_ = 'the target goes here'\n"
        "        return _target_(*_args_, **_kwargs_)\n"
        f"        ({names},)\n"
        "    return _entrance\n"
    )
    room = "\n" * (code.co_firstlineno - 2)  # the lines of a traceback are those of this file
    scope: dict[str, Any] = {}
    exec(compile(room + source, code.co_filename, "exec"), scope)
    made: CodeType = scope["outer"](*free).__code__
    return made
