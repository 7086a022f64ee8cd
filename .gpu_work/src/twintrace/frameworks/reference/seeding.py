"""Seed the miniature, take dropout out; each change with its undoing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .miniature import RANDOM


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change the miniature's global state; the results undo it, to be called last first. It is always deterministic."""
    numbers = RANDOM.numbers

    def restore() -> None:
        RANDOM.numbers = numbers

    RANDOM.numbers = np.random.default_rng(seed)
    return [restore, *(without_dropout() if disable_dropout else ())]


def without_dropout() -> list[Callable[[], None]]:
    """Dropout becomes the identity."""
    dropout = RANDOM.dropout

    def restore() -> None:
        RANDOM.dropout = dropout

    RANDOM.dropout = False
    return [restore]
