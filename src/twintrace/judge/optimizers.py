"""The record of an optimizer's step: the meaning of its slots, its settings, and by how much two optimizers differ by themselves.

    0.3  kw.gradients.3  kw.state.3.exp_avg     ─▶     parameters.3  state.3.exp_avg

The number tells which parameter it is about.
"""

from __future__ import annotations

import math

from ..model.pairs import Match
from .policies import Evidence
from .rounding import of_average, size
from .settings import number_set

GRADIENTS = "kw.gradients."
"""Beginning of the slots of the gradients that an optimizer takes."""


def rate_and_precision(match: Match) -> tuple[float, float]:
    """The learning rate, and how far apart two optimizers are that keep their settings in other dtypes."""
    calls = (*match.left, *match.right)
    decays = [number_set(call, name) for call in calls for name in ("betas.0", "betas.1")]
    rates = [number_set(call, "lr") for call in calls]
    return max((rate for rate in rates if rate), default=0.0), max(
        (of_average(decay or 0.0) for decay in decays), default=0.0
    )


def of_adam(epsilon: float, decay: float) -> float:
    """Difference of two implementations of Adam in what they add to the root of the mean square: one before, the other after
    it has corrected the average for its beginning.
    """
    return epsilon / math.sqrt(1 - decay) if decay < 1 else 0.0


def epsilon_of(match: Match) -> float:
    """The same, as the two were told; nothing, where there is one implementation."""
    names = {call.site.name for call in (*match.left, *match.right)}
    if len(names) < 2:
        return 0.0
    found = [(number_set(call, "eps"), number_set(call, "betas.1")) for call in (*match.left, *match.right)]
    return max((of_adam(eps, beta) for eps, beta in found if eps and beta), default=0.0)


def epsilon_uncertainty(epsilon: float, gradient: Evidence) -> float:
    """Uncertainty of a step by that, with elements of all sizes in its gradient."""
    whole = size(gradient.left)
    return math.sqrt(min(1.0, epsilon / whole)) if whole else 0.0


def share_of(evidence: Evidence, rate: float) -> float:
    """The share of a value that this step has made: all of a running average; of a parameter of Adam's about the learning rate."""
    if not is_parameter(evidence):
        return 1.0
    whole = size(evidence.left)
    return min(1.0, rate / whole) if whole else 1.0


def is_gradient(evidence: Evidence) -> bool:
    """True of a gradient among what an optimizer takes."""
    return evidence.pair.left_slot.startswith(GRADIENTS)


def is_parameter(evidence: Evidence) -> bool:
    """True of a parameter itself, among what an optimizer takes and makes. They are its first argument."""
    return evidence.pair.left_slot.startswith(("parameters", "0."))


def number_in(slot: str) -> str:
    """`3` of `parameters.3`, `state.3.momentum_buffer` and `state.accum.3`."""
    return next((part for part in reversed(slot.split(".")) if part.isdigit()), "")
