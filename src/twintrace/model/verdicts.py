"""Verdicts on two values.

same        equal bits, or equal numbers
rounding    not equal, but within rounding or measured noise, here or before
unknown     nothing could be compared, or something on the way could not be recomputed; the reason says why
different   more than that: a mistake has reached them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .words import Word


class Outcome(Word):
    """From good to bad. `unknown` is neither: what it is made of may have been either."""

    SAME = "same"
    ROUNDING = "rounding"
    UNKNOWN = "unknown"
    DIFFERENT = "different"

    @property
    def good(self) -> bool:
        """Do the two agree?"""
        return self in (Outcome.SAME, Outcome.ROUNDING)


BADNESS: Mapping[Outcome, int] = {outcome: place for place, outcome in enumerate(Outcome)}
"""Places of the outcomes from the best to the worst."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and its reason, one sentence. `error` was measured, `bound` is the allowance, in the same unit."""

    outcome: Outcome
    because: str
    error: float | None = None
    bound: float | None = None

    @property
    def ratio(self) -> float | None:
        """The error in units of the bound; 0 for the same, None where either is not known."""
        if self.outcome is Outcome.SAME:
            return 0.0
        return None if self.error is None or not self.bound else self.error / self.bound

    @property
    def score(self) -> float:
        """0 for the same, up to 0.5 within the bound, towards 1 the farther beyond it."""
        ratio = self.ratio
        if ratio is None:
            return 1.0 if self.outcome is Outcome.DIFFERENT else 0.5
        return ratio / 2 if ratio <= 1 else 1 - 0.5 / ratio
