"""Fill values: what a program writes into a tensor to say that nothing is there, far beyond what it computes.

    scores  0.31  -1e9   -1e9          filled 3 of 6, and the root mean square of the rest is 0.27
            0.12   0.43  -1e9

A mask of -1e9 has a root mean square of half a billion, beside which every mistake in the scores is nothing. So where the largest
magnitude stands in the same places on both sides, in a few values that are repeated, and the rest is a thousand times smaller,
the rest is measured by itself. That takes a second pass, over the few tensors that may be such.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..model.measurements import Worst
from . import totals
from .kernel_numpy import Block

_BEYOND = 1000.0
_VALUES = 4
"""Masks are added up: -1e9 and -2e9 stand in one tensor."""


def may_be_filled(worst: Worst, numbers: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Is the largest magnitude the same on both sides, and the largest error far from it?"""
    largest, other = numbers.item(totals.LARGEST_LEFT), numbers.item(totals.LARGEST_RIGHT)
    return largest == other and max(abs(worst.left), abs(worst.right)) * _BEYOND <= largest < math.inf


def filled(blocks: Iterator[Block], largest: float) -> tuple[int, float | None]:
    """Number of fill values, and the root mean square of the other elements, of the larger side; (0, None) if none are."""
    count = others = 0
    values: set[float] = set()
    squares = [0.0, 0.0]
    least, most = math.inf, 0.0
    with np.errstate(all="ignore"):
        for block in blocks:
            regular = np.isfinite(block.left) & np.isfinite(block.right)
            sizes = np.abs(block.left[regular]), np.abs(block.right[regular])
            far = np.maximum(*sizes) * _BEYOND >= largest
            if np.any(block.error[regular][far]):
                return 0, None
            count += int(np.count_nonzero(far))
            others += int(np.count_nonzero(~far))
            if far.any():
                least = min(least, float(sizes[0][far].min()))
                values |= set(np.unique(block.left[regular][far])[: _VALUES + 1].tolist())
            for side, size in enumerate(sizes):
                rest = size[~far]
                most = max(most, float(rest.max(initial=0.0)))
                squares[side] += float(np.square(rest).sum())
            if len(values) > _VALUES:
                return 0, None
    if count <= len(values) or not others or most * _BEYOND > least:
        return 0, None
    return count, math.sqrt(max(squares) / others)
