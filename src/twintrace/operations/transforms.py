"""Fourier transforms: the size of what is added up in each element, by which it is rounded.

    rounding_of_transform(meaning, x, y, x)         of y = rfft(x)
    rounding_of_transform(meaning, x, y, seed)      of the gradient of x, where `seed` is that of y

A transform of n numbers takes log n steps of sums and turns; each rounds by what all numbers together have in energy, however small
the one result is.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .meanings import Meaning

Tensor = torch.Tensor

_NAMES = ("fft", "fft2", "fftn", "rfft", "rfft2", "rfftn", "hfft", "ihfft")
TRANSFORMS = frozenset(f"torch.fft.{name}" for name in (*_NAMES, *(f"i{name}" for name in _NAMES if name[0] in "fr")))
"""Fourier transforms; they are called as they stand, with their positions as `0`, `1` …"""
_FOLDED = 2.0
"""Half of a spectrum stands for all of it."""


def rounding_of_transform(meaning: Meaning, source: Tensor, result: Tensor, taken: Tensor) -> Tensor:
    """Rounding of each element of what a transform makes of `taken`, in units: its own source, or a gradient of its result, which
    goes the same way back. It has one element along the transformed axes.
    """
    axes = _axes(meaning, source.dim())
    count = max(math.prod(tensor.shape[axis] for axis in axes) for tensor in (source, result))
    energy = taken.abs().double().square().sum(axes, keepdim=True).sqrt()
    steps = math.log2(count) if count > 2 else 1.0
    return _FOLDED * steps * _factor(meaning, count) * energy


def _argument(meaning: Meaning, place: int, *names: str) -> Any:
    found = (meaning.arguments.get(name) for name in (*names, str(place)))
    return next((value for value in found if value is not None), None)


def _axes(meaning: Meaning, dimensions: int) -> tuple[int, ...]:
    """Transformed axes, counted from the front."""
    name, given = meaning.operation, _argument(meaning, 2, "dim")
    if given is None:
        sizes = _argument(meaning, 1, "s")
        many = len(sizes) if isinstance(sizes, tuple | list) else dimensions
        given = range(-many, 0) if name.endswith("n") else (-2, -1) if name.endswith("2") else (-1,)
    axes = (given,) if isinstance(given, int) else tuple(given)
    return tuple(axis % dimensions for axis in axes)


def _factor(meaning: Meaning, count: int) -> float:
    """Factor on the sums: where, and by what, a transform is normalised."""
    norm = _argument(meaning, 3, "norm") or "backward"
    inverse = meaning.operation.rpartition(".")[2].startswith("i")
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm == "backward") else 1.0
