"""Two computed results beside each other: how far apart they are, and whether more than their tolerance allows.

difference_of(f, g, tolerance, unit)      Difference(significant=True, relative=3e-4, …)
laid_out(g, layout, f.shape)              the right's result as it lies on the left's
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..model.pairs import Layout

Tensor = torch.Tensor

_UNBOUNDED = 1e-4
"""Relative difference in meaning that is passed over where the running error bound is infinite."""
_INFINITE = 3.4028e38
"""Numbers from here on are what float32 has for infinity: masks are filled with either."""
_FILL = 1e3
"""Least size of the value that a mask fills in, beside the other elements: -1e4 in 16 bits, -1e9, -3.4e38."""
HIDDEN = -1e3
"""Upper limit of what is added to a score to mask it: -1e4, -65504, -1e9, -3.4e38, -inf."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Meaning term of one pair of values."""

    significant: bool
    relative: float
    """Root mean square of f(X_L) - g(X_L) over that of f(X_L)."""
    units: float
    """The same, in units of the rounding of the recorded results."""
    index: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Shapes of two results that do not have the same number of elements."""


def difference_of(f: Tensor, g: Tensor, tolerance: Tensor, unit: float) -> Difference:
    """The difference of two results, significant where it is more than their tolerance; `unit` is that of the recorded ones."""
    if f.shape != g.shape:
        return Difference(True, math.inf, math.inf, (), (tuple(f.shape), tuple(g.shape)))
    if not f.numel():
        return Difference(False, 0.0, 0.0)
    apart = (f - g).abs()
    same = (f == g) | (f.isnan() & g.isnan())
    same |= (f.sgn() == g.sgn()) & (f.abs() >= _INFINITE) & (g.abs() >= _INFINITE)
    # An infinite bound (the slope of a logarithm at 0) excuses nothing here: what float64 gives is compared as it is.
    tolerance = torch.where(tolerance.isfinite(), tolerance, _UNBOUNDED * f.abs())
    beyond = ~same & ~(apart <= tolerance)
    significant = bool(beyond.any())
    ratio = torch.where(same, 0.0, apart).nan_to_num(math.inf, math.inf)
    index = tuple(int(item) for item in np.unravel_index(int(ratio.argmax()), f.shape))
    relative = relative_difference(f, g)
    return Difference(significant, relative, relative / unit if unit else math.inf, index)


def relative_difference(f: Tensor, g: Tensor) -> float:
    """Root mean square of the difference of two tensors over that of the first."""
    if f.shape != g.shape:
        return math.inf
    rest = _unfilled(f)
    if rest is not None and bool((f != g)[rest].any()):  # beside what a mask has filled in nothing else counts
        f, g = f[rest], g[rest]
    apart, own = float((f - g).norm()), float(f.norm())
    if math.isfinite(apart) and math.isfinite(own) and own:
        return apart / own
    difference, size = (f - g).abs(), f.abs()
    finite = difference.isfinite() & size.isfinite()
    if not bool((f == g).logical_or(f.isnan() & g.isnan()).logical_or(finite).all()):
        return math.inf
    top = float(difference[finite].pow(2).sum().sqrt()) if bool(finite.any()) else 0.0
    base = float(size[finite].pow(2).sum().sqrt()) if bool(finite.any()) else 0.0
    return top / base if base else (math.inf if top else 0.0)


def hide_the_same(one: Tensor, two: Tensor) -> bool:
    """True if two tensors differ only where both have a value that hides an element from a softmax."""
    if one.shape != two.shape or one.is_complex() or two.is_complex():
        return False
    return bool(((one == two) | ((one <= HIDDEN) & (two <= HIDDEN))).all())


def spread(apart: Tensor, result: Tensor) -> Tensor:
    """Root mean square of a change, for each element; of those that a mask has filled apart from the others."""
    rest = _unfilled(result)
    if rest is None:
        return apart.pow(2).mean().sqrt().expand_as(apart)
    own, others = (apart[places].pow(2).mean().sqrt() for places in (~rest, rest))
    return torch.where(rest, others, own)


def _unfilled(result: Tensor) -> Tensor | None:
    """Elements that no mask has filled with a value beside which they vanish; None if there is no such value."""
    size = result.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = float(size.max()) if size.numel() else 0.0
    rest = size <= largest / 2
    if not largest or not bool(rest.any()) or largest < _FILL * float(size[rest].pow(2).mean().sqrt()):
        return None
    return rest


def laid_out(tensor: Tensor, layout: Layout, shape: Sequence[int]) -> Tensor:
    """A tensor of the right side as it lies on the left one."""
    if layout.axes is not None:
        tensor = tensor.permute(layout.axes)
    return tensor.reshape(tuple(shape)) if layout.reshaped else tensor


def laid_back(tensor: Tensor, layout: Layout, shape: Sequence[int]) -> Tensor:
    """A tensor of the left side as the right one would have it, of that shape."""
    if layout.axes is None:
        return tensor.reshape(tuple(shape)) if layout.reshaped else tensor
    permuted = [shape[axis] for axis in layout.axes]
    back = sorted(range(len(layout.axes)), key=layout.axes.__getitem__)
    return tensor.reshape(permuted).permute(back)
