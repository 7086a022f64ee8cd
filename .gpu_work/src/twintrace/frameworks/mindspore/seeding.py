"""Seed MindSpore, make it deterministic, take dropout out; each change with its undoing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.mint import nn as mint_nn
from mindspore.ops.function import nn_func

from .patches import patch
from .tensors import launch_synchronously

_SEEDS: Any = importlib.import_module("mindspore.common.seed")  # `from mindspore.common import seed` is a function
_DROPOUTS = ("dropout", "dropout_ext", "dropout1d", "dropout2d", "dropout2d_ext", "dropout3d", "_inner_dropout")
"""The last one is that of attention."""
_DROPOUT_CELLS = (
    *(getattr(nn, name) for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")),
    *(getattr(mint_nn, name) for name in ("Dropout", "Dropout2d") if hasattr(mint_nn, name)),
)


def seed_all(seed: int, *, deterministic: bool, disable_dropout: bool) -> list[Callable[[], None]]:
    """Change MindSpore's global state; the results undo it, to be called last first."""
    launch_synchronously()  # the generator's state is had by an operator, and a recorder may follow
    undo: list[Callable[[], None]] = [_restore_seeds()]
    ms.set_seed(seed)
    ms.manual_seed(seed)
    if deterministic:
        before = ms.get_context("deterministic")
        ms.set_context(deterministic="ON")
        undo.append(lambda: ms.set_context(deterministic=before))
    if disable_dropout:
        undo.extend(without_dropout())
    return undo


def _restore_seeds() -> Callable[[], None]:
    """The seed, the kernels' own, and where the generator of mint's random functions stands."""
    overall, kernels, generator = _SEEDS._GLOBAL_SEED, dict(_SEEDS._KERNEL_SEED), ms.get_rng_state()
    data = ms.dataset.config.get_seed()

    def restore() -> None:
        _SEEDS._GLOBAL_SEED = overall
        _SEEDS._KERNEL_SEED.clear()
        _SEEDS._KERNEL_SEED.update(kernels)
        ms.set_rng_state(generator)
        ms.dataset.config.set_seed(data)

    return restore


def without_dropout() -> list[Callable[[], None]]:
    """Every dropout becomes the identity: the functions under each name that a module has for them, MindSpore's or the user's, the
    Cells, and the primitives, which keep all.

    Plain functions that MindSpore's compiler can read: what is compiled from here on has no dropout either. But for the primitives:
    a compiler calls the operator, not what stands in its place here.
    """
    originals = {id(getattr(nn_func, name)): name for name in _DROPOUTS if hasattr(nn_func, name)}
    undo = [patch(cell, "construct", lambda _: _construct) for cell in dict.fromkeys(_DROPOUT_CELLS)]
    undo.append(patch(ops.Dropout, "__call__", lambda _: _keep_all))
    undo.extend(patch(primitive, "__call__", lambda _: _keep_planes) for primitive in (ops.Dropout2D, ops.Dropout3D))
    for home in [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]:
        for name, value in list(vars(home).items()):
            if id(value) in originals:
                undo.append(patch(home, name, lambda _: _identity))
    return undo


def _identity(input: Any, p: float = 0.5, training: bool = True, seed: Any = None) -> Any:
    return input


def _construct(self: Any, x: Any) -> Any:
    return x


def _keep_all(self: Any, x: Any) -> Any:
    return super(ops.Dropout, self).__call__(x, 1.0, self.Seed0, self.Seed1)


def _keep_planes(self: Any, x: Any) -> Any:
    return x, ms.Tensor(np.ones(x.shape, bool))
