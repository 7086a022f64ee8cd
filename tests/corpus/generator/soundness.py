"""Is the truth of a case honest? Both sides in PyTorch, whatever frameworks they are for.

    changes(case)        how far the results of the two sides are apart in the case's own dtype, 0.0 where every bit is equal
    means(case)          the same in float64: what is left when nothing is rounded

A mistake that changes no bit of any result is none on these inputs; a rewrite that changes something in float64 is a mistake.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from .cases import Case, Side
from .running import run_side

NOISE = 1e-9
"""Relative, in float64: thousands of roundings of 1e-16 each, and norms that divide by small numbers, stay far below."""


def changes(case: Case, dtype: str = "") -> float:
    """The largest difference of any result, relative to the largest element of its kind; infinite where one is missing."""
    one, two = (_results(_in_torch(side, dtype or side.dtype)) for side in (case.left, case.right))
    if one.keys() != two.keys() or any(one[name].shape != two[name].shape for name in one):
        return np.inf
    # By kind: a bias before a softmax has a gradient of nothing but rounding, and is measured by the other gradients.
    sizes: dict[str, float] = {}
    for name, value in (*one.items(), *two.items()):
        kind = name.partition(":")[0]
        sizes[kind] = max(sizes.get(kind, 0.0), float(np.abs(value[np.isfinite(value)]).max(initial=0.0)))
    largest = 0.0
    for name, left in one.items():
        right = two[name]
        # The same NaN or infinity on both sides is no difference.
        apart = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0, left - right)
        if not np.isfinite(apart).all():
            return np.inf
        if apart.any():
            largest = max(largest, float(np.abs(apart).max() / sizes[name.partition(":")[0]]))
    return largest


def means(case: Case) -> float:
    return changes(case, "f64")


def _in_torch(side: Side, dtype: str) -> Side:
    return replace(side, framework="torch", dtype=dtype, names="same")


@functools.lru_cache(maxsize=256)
def _results(side: Side) -> dict[str, np.ndarray]:
    # A convolution that pads in a call of its own holds the layer one level deeper.
    return {name.replace(".inner", ""): value for name, value in run_side(side).items()}
