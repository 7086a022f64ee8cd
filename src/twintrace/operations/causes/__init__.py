"""The change that makes two slices compute the same, found by trying: a cause with its proof.

    cause_of(recomputation, left, right, bound, layout)      Cause("eps: 1e-05 | 1e-07", "3.1e-03 → 2.0e-08", …), or None

Tried, the likeliest first: settings that differ, operands that one side alone has, calls that one side alone makes, masks, the
other side's operation, known variants, operands exchanged or taken from elsewhere.

    trying.py      the order in which changes are tried, and the proof
    search.py      two slices between which a cause is looked for
    settings.py    settings, factors, operands of one side alone
    calls.py       calls of one side alone, other operations, known variants
    masks.py       masks of attention
    inputs.py      operands in other places
    paths.py       operands that reach a call in two ways
"""

from __future__ import annotations

from .trying import cause_of, is_oversized

__all__ = ["cause_of", "is_oversized"]
