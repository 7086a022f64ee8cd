"""Places of a view's elements in memory: axes that are walked as one are one run.

merged((4, 8, 16), (256, 16, 1))      [(512, 1)]             contiguous
merged((4, 8, 16), (512, 16, 1))      [(4, 512), (128, 1)]   every other piece of 128
Runs.of((4, 8, 16), (2048, 64, 4), 4)                        the same in bytes, for whoever brings them together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


@dataclass(slots=True)
class Runs:
    """Walk from the first element of a view through all of them, in order."""

    table: np.ndarray[Any, Any]
    """int64, (two axes or more, 2): how many, and bytes from one to the next; the outermost first."""
    size: int
    """Bytes of an element."""
    nbytes: int
    """Bytes of all."""

    @classmethod
    def of(cls, shape: Sequence[int], steps: Sequence[int], size: int) -> Runs:
        """`steps` in bytes, of any sign; 0 where one element stands for a whole axis."""
        axes = merged(shape, steps)
        axes = [(1, 0)] * (2 - len(axes)) + axes
        return cls(np.array(axes, np.int64), size, prod(shape) * size)


def merged(shape: Sequence[int], steps: Sequence[int]) -> list[tuple[int, int]]:
    """(size, step) of each run, the outermost first: two shapes with the same runs have the same elements in the same order."""
    runs: list[tuple[int, int]] = []
    for size, step in zip(shape, steps, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * step:
            runs[-1] = (runs[-1][0] * size, step)
        else:
            runs.append((size, step))
    return runs
