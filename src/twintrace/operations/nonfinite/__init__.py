"""Causes of results and gradients that are not finite, by operation and the ranges of what comes in.

    cause_of_result("exp", terms, settings, made)      overflow: exp of 13.2, and f16 ends at exp(11.09)
    cause_of_gradient("sqrt", …)                       the derivative of sqrt at 0 is infinite
    cause_of_update(dtypes, eps)                       eps=1e-08 is 0 in f16

Statistics are enough: no value is opened, and no torch is needed. For one run (`diagnose`), and for two (`judge`).
"""

from __future__ import annotations

from .backward import cause_of_gradient
from .forward import REDUCES, cause_of_result
from .terms import Cause, by_position, settings_of, terms_of
from .updates import cause_of_update

__all__ = [
    "REDUCES", "Cause", "by_position", "cause_of_gradient", "cause_of_result", "cause_of_update", "settings_of", "terms_of",
]  # fmt: skip
