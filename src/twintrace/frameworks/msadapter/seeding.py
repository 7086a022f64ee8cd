"""Seed MSAdapter and the MindSpore beneath it, make them deterministic, take dropout out; each change with its undoing.

On CPU mindtorch's `randn`, `rand`, `randint` and `dropout` draw from kernels that no seed reaches. While it is seeded they draw
from numpy, by the seed and the offset of torch's generator, so that `torch.manual_seed` counts as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
from torch.nn import functional

from ..mindspore import seeding
from .names import PACKAGE
from .patches import patch

_STEP = 12
"""Numbers by which a generator goes on with each draw."""
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change the global state; the results undo it, to be called last first."""
    undo = seeding.seed_all(seed, deterministic=deterministic, disable_dropout=False)
    state = torch.get_rng_state()
    undo.append(lambda: torch.set_rng_state(state))
    torch.manual_seed(seed)
    undo += _listening()
    if disable_dropout:
        undo += without_dropout()
    return undo


def _listening() -> list[Callable[[], None]]:
    """Replaces mindtorch's functions for the CPU that ask for no seed by ones that do; does nothing where it has another form."""
    kernels: Any = sys.modules.get(f"{PACKAGE}._apis.cpu")
    default: Any = torch.default_generator
    if kernels is None or not hasattr(default, "_step"):
        return []

    def draws(generator: Any = None) -> np.random.RandomState:
        own = generator if hasattr(generator, "_step") else default
        seed, offset = (int(number.item()) for number in own._step(_STEP))
        if int(own._offset.item()) == offset:  # MindSpore 2.7 does not go on by itself
            own._offset.assign_value(ms.Tensor(offset + _STEP))
        return np.random.RandomState([seed & 0xFFFFFFFF, offset & 0xFFFFFFFF])

    def randn(size: Any, generator: Any, dtype: Any) -> Any:
        return kernels.cast(ms.Tensor(draws(generator).standard_normal(tuple(size)).astype(np.float32)), dtype)

    def rand(size: Any, generator: Any, dtype: Any) -> Any:
        return kernels.cast(ms.Tensor(draws(generator).random_sample(tuple(size)).astype(np.float32)), dtype)

    def randint(low: Any, high: Any, shape: Any, generator: Any, dtype: Any) -> Any:
        return ms.Tensor(draws(generator).randint(int(low), int(high), tuple(shape)).astype(np.int32))

    def dropout(input: Any, p: float, *_: Any) -> Any:
        kept = (draws().random_sample(tuple(input.shape)) >= p).astype(np.float32)
        scale = kernels.cast(ms.Tensor(kept / (1 - p) if p < 1 else kept), input.dtype)
        return kernels.mul(input, scale), kernels.cast(ms.Tensor(kept), input.dtype)

    replaced: dict[str, Callable[..., Any]] = {"randn": randn, "rand": rand, "randint": randint, "dropout": dropout}
    there = [name for name in replaced if callable(getattr(kernels, name, None))]
    return [patch(kernels, name, functools.partial(_instead, replaced[name])) for name in there]


def _instead(function: Callable[..., Any], _: Any) -> Callable[..., Any]:
    return function


def without_dropout() -> list[Callable[[], None]]:
    """Every dropout becomes the identity, torch's and those of the MindSpore beneath."""
    theirs = [patch(getattr(functional, n), "__call__", _identity) for n in _DROPOUTS if hasattr(functional, n)]
    return [*seeding.without_dropout(), *theirs]


def _identity(_: Any) -> Callable[..., Any]:
    def dropout(input: Any, *_: Any, **__: Any) -> Any:
        return input

    return dropout
