"""Seed the miniature, take dropout out; each change with its undoing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .miniature import RANDOM


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change the miniature's global state; the results undo it, to be called last first. It is always deterministic."""
    numbers, dropout = RANDOM.numbers, RANDOM.dropout

    def restore() -> None:
        RANDOM.numbers, RANDOM.dropout = numbers, dropout

    RANDOM.numbers = np.random.default_rng(seed)
    RANDOM.dropout = dropout and not disable_dropout
    return [restore]
