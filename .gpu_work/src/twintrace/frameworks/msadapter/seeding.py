"""Seed MSAdapter and the MindSpore beneath it, make them deterministic, take dropout out; each change with its undoing.

Not everything listens: on CPU mindtorch's `randn`, `rand`, `randint` and `dropout` draw from kernels that no seed reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from ..mindspore import seeding
from .patches import patch

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change the global state; the results undo it, to be called last first."""
    undo = seeding.seed_all(seed, deterministic=deterministic, disable_dropout=False)
    state = torch.get_rng_state()
    undo.append(lambda: torch.set_rng_state(state))
    torch.manual_seed(seed)
    if disable_dropout:
        undo += without_dropout()
    return undo


def without_dropout() -> list[Callable[[], None]]:
    """Every dropout becomes the identity, torch's and those of the MindSpore beneath."""
    theirs = [patch(getattr(functional, n), "__call__", _identity) for n in _DROPOUTS if hasattr(functional, n)]
    return [*seeding.without_dropout(), *theirs]


def _identity(_: Any) -> Callable[..., Any]:
    def dropout(input: Any, *_: Any, **__: Any) -> Any:
        return input

    return dropout
