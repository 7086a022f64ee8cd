"""One run over its steps and over its depth, in a few numbers each.

Curve    a number of each step: the loss, the norm of all gradients, …
Layer    one module in one step: the size of its results and of the gradients that come back
Curves   all of a trace
ComparedCurves   those of two, and the distance between them
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .results import Comparison


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` are (step, value); None where a step does not tell it, or where it is not finite."""

    name: str
    meaning: str
    points: tuple[tuple[int, float | None], ...]

    @property
    def known(self) -> list[float]:
        return [value for _, value in self.points if value is not None]


@dataclass(frozen=True, slots=True)
class Layer:
    """One module: root mean squares of its first result and of the gradient that comes into it, and the share of zeros."""

    name: str
    type: str
    result: float | None
    gradient: float | None
    zeros: float | None
    update: float | None = None
    """Norm of the last update of its weights, over their norm; None where values were not kept."""


@dataclass(frozen=True, slots=True)
class Curves:
    """A run over its steps, and over the depth of the network in the last of them."""

    path: str
    rank: int
    curves: tuple[Curve, ...]
    layers: tuple[Layer, ...]
    step: int
    """The step of the layers."""


@dataclass(frozen=True, slots=True)
class ComparedCurves:
    """Two runs over the same steps: their own curves, and how far they are apart over steps and depth."""

    left: Curves
    right: Curves
    apart: tuple[Curve, ...]
    """Of each step: the relative distance of the losses and of the norms of gradients, and `bound_curve`."""
    layers: tuple[tuple[str, float, float | None], ...]
    """Over the depth of the first step that differs: module, relative difference of its result, and in units of the bound."""
    step: int
    """That step."""


def bound_curve(comparison: Comparison, rank: int) -> Curve:
    """Of each step the largest difference of any pair of calls, in units of the bound: beyond 1 the runs part."""
    largest: dict[int, float | None] = {}
    for result in comparison.results:
        if result.rank == rank:
            known = largest.setdefault(result.step, None)
            for ratio in (item.verdict.ratio for item in result.tensors):
                if ratio is not None and math.isfinite(ratio) and (known is None or ratio > known):
                    largest[result.step] = known = ratio
    return Curve("of bound", "largest difference of any pair, 1 is what is allowed", tuple(sorted(largest.items())))
