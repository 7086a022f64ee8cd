"""The same random numbers every time, and everything as it was afterwards.

undo = seed_all(0)            python, numpy, PYTHONHASHSEED, every imported framework
…
undo()                        or: with seed_all(0): …
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection

import numpy as np

from ..frameworks import registry
from ..model.errors import UsageError


class Seeded:
    """Undoes what `seed_all` changed, last change first. Call it, or use it with `with`. A second call does nothing."""

    def __init__(self, undo: list[Callable[[], None]]) -> None:
        self._undo = undo

    def __call__(self) -> None:
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Seeded:
        return self

    def __exit__(self, *exc: object) -> None:
        self()


def seed_all(
    seed: int = 1234,
    *,
    deterministic: bool = False,
    disable_dropout: bool = False,
    frameworks: Collection[str] = (),
) -> Seeded:
    """Seed Python, numpy and every imported framework.

        with tt.seed_all(0, deterministic=True):
            train()

    Args:
        seed: the seed of all of them.
        deterministic: ask the framework for deterministic kernels (it warns about those that have none).
        disable_dropout: dropout passes its input through, wherever it is.
        frameworks: packages to be imported first, where they are not yet: a framework that is imported later has not been seeded.

    Returns:
        A handle: calling it, or leaving it as a `with` block, undoes every change.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise UsageError(f"seed: expected a number from 0 to 2**32 - 1, got {seed!r}.")
    registry.load(frameworks)
    undo: list[Callable[[], None]] = []
    python, hashing = random.getstate(), os.environ.get("PYTHONHASHSEED")
    legacy = np.random.get_state()
    undo.append(lambda: random.setstate(python))
    undo.append(lambda: np.random.set_state(legacy))
    undo.append(lambda: _restore_hash_seed(hashing))
    random.seed(seed)
    np.random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes started from here on; this one's hashing is already fixed
    for adapter in registry.loaded():
        undo.extend(adapter.seed_all(seed, deterministic=deterministic, disable_dropout=disable_dropout))
    return Seeded(undo)


def without_dropout(framework: str) -> Seeded:
    """Dropout of this framework passes its input through until the result is called; no generator is touched."""
    return Seeded(registry.by_name(framework).without_dropout())


def _restore_hash_seed(value: str | None) -> None:
    if value is None:
        os.environ.pop("PYTHONHASHSEED", None)
    else:
        os.environ["PYTHONHASHSEED"] = value
