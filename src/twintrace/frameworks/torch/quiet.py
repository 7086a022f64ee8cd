"""Keep what the recorder does with tensors from the user's code.

    with quiet():
        tensor.detach().contiguous()     no function mode, no dispatch mode and no subclass of the user's hears of it

Subclasses and modes are there to see what a program does, and a recorder is no part of the program: one that counts, logs or raises
would do so for our looks at a tensor. Python's part of the dispatcher is switched off within, so a tensor whose kernels are written
in Python (a wrapper) has none there: of those only attributes may be asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class quiet:
    """A block that only torch's own code hears of."""

    __slots__ = ("_dispatch", "_function", "_transformations")

    def __init__(self) -> None:
        self._function: Any = torch._C.DisableTorchFunction()
        self._dispatch: Any = torch._C._DisableTorchDispatch()
        # Inside `vmap` or `grad` the result of every kernel is wrapped once more.
        self._transformations: Any = None if _innermost_transformation() is None else _without_transformations()

    def __enter__(self) -> None:
        self._function.__enter__()
        self._dispatch.__enter__()
        if self._transformations is not None:
            self._transformations.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._transformations is not None:
            self._transformations.__exit__(*exc)
        self._dispatch.__exit__(*exc)
        self._function.__exit__(*exc)


@contextlib.contextmanager
def _without_transformations() -> Iterator[None]:
    taken: list[Any] = []
    try:
        while _innermost_transformation() is not None:
            taken.append(torch._C._functorch.pop_dynamic_layer_stack())
        yield
    finally:
        while taken:
            torch._C._functorch.push_dynamic_layer_stack(taken.pop())


_innermost_transformation: Any = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
