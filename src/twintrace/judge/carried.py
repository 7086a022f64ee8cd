"""Differences that one step leaves to the next: bounds on those in the values with which the next step begins.

    step 0   gradient of k.bias    3e-09 | -7e-09     zero but for rounding, on both sides
             Adam divides it by its own size: the bias goes up by a learning rate on the left, and down on the right
    step 1   k.bias                1e-03 | -1e-03     rounding has left it so, however large it looks

A gradient may be exact as a whole, and nothing but rounding in a third of its elements (the keys' part of a bias that queries, keys
and values have in common). What an optimizer makes of it is as uncertain as its elements are, each beside itself; but no more than
the weight has moved.

Values are known again by their bits, weights by their names.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ..model.measurements import HISTOGRAM_EDGES
from ..model.tensors import Statistics, Tensor
from .policies import Evidence, relative_error
from .rounding import elements, root_mean_square, unit

UNCERTAIN = 0.1
"""From here on a weight is made of noise, at least in part: it says nothing of the others."""
_FLIPPED = 2.0
"""The relative error of a number that has changed its sign. An optimizer makes no more of a larger one."""
_BINS = (0.0, *(10.0 ** (edge - 0.5) for edge in HISTOGRAM_EDGES), _FLIPPED)
"""The relative error that stands for a bin of the histogram."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight as the left side had it in a step, and what that step makes of it."""

    tensor: Tensor
    apart: float
    """Its own difference."""
    uncertain: float
    """Relative difference of its gradient's elements, each beside itself; the worst of all steps."""


@dataclass(frozen=True, slots=True)
class CarriedBounds:
    """Facts about the beginning of a step, from those before it."""

    apart: float = 0.0
    """Bound for any value."""
    values: Mapping[tuple[Hashable, Hashable], float] = field(default_factory=dict)
    """Differences of single values, by their bits: weights, running averages, an optimizer's state."""
    weights: Mapping[str, Weight] = field(default_factory=dict)

    def of_value(self, evidence: Evidence) -> float:
        """Bound for a value that a step before has made."""
        return self.values.get(identities(evidence), 0.0) if self.values else 0.0

    def of_weight(self, name: str, tensor: Tensor) -> float | None:
        """Bound for a weight by its name, of which the left side has this value now. None: nothing is known of it."""
        known = self.weights.get(name)
        if known is None:
            return None
        share = moved(known.tensor, tensor)
        # Noise moves each element by another amount, and the ends may have moved least.
        return known.apart + known.uncertain * (min(1.0, 4 * share) if known.uncertain >= UNCERTAIN else share)


def identities(evidence: Evidence) -> tuple[Hashable, Hashable]:
    """The key by which two values are known in another step."""
    return identity(evidence.left), identity(evidence.right)


def identity(tensor: Tensor) -> Hashable:
    """The key of a value: its bits, or else its statistics; itself where there is neither."""
    return tensor.fingerprint or (tensor.statistics and (tensor.spec, tensor.statistics)) or id(tensor)


def uncertainty(evidence: Evidence) -> float:
    """The root mean square of the relative errors of the elements, each beside itself; no more than that of a flipped sign.

    Without values it is what it would be of elements of all sizes: the smaller one is, the larger is its relative error. But of a
    bias whole parts may be noise.
    """
    measured = evidence.measurement
    if measured is not None and measured.histogram and measured.finite:
        squares = sum(
            number * min(error, _FLIPPED) ** 2 for error, number in zip(_BINS, measured.histogram, strict=True)
        )
        return math.sqrt(squares / measured.finite)
    if len(evidence.left.spec.shape) < 2:
        return 1.0
    error = max(relative_error(evidence) or 0.0, unit(evidence.left.spec.dtype, evidence.right.spec.dtype))
    return _FLIPPED * math.sqrt(min(error, 1.0))


def moved(before: Tensor, after: Tensor) -> float:
    """Share of its size by which a weight has changed, as far as its statistics tell: an optimizer that divides by the size of the
    gradient moves the ends as far as everything else.
    """
    one, two = before.statistics, after.statistics
    whole = root_mean_square(two, elements(after)) if two else 0.0
    if one is None or two is None or not whole:
        return 1.0
    return min(1.0, max(_changes(one, two, elements(after))) / whole)


def _changes(one: Statistics, two: Statistics, count: int) -> list[float]:
    numbers = [(one.min, two.min), (one.max, two.max), (one.mean, two.mean)]
    found = [abs(now - then) for then, now in numbers if then is not None and now is not None]
    if one.norm is not None and two.norm is not None:
        found.append(abs(two.norm - one.norm) / math.sqrt(max(count, 1)))
    return found or [0.0]
