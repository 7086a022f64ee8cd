"""One run over its steps and over its depth, in a few numbers each.

Curve    a number of each step: the loss, the norm of all gradients, …
Layer    one module in one step: the size of its results and of the gradients that come back
Curves   all of a trace
"""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Curves:
    """A run over its steps, and over the depth of the network in the last of them."""

    path: str
    rank: int
    curves: tuple[Curve, ...]
    layers: tuple[Layer, ...]
    step: int
    """The step of the layers."""
