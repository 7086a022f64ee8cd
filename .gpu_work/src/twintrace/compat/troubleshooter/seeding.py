"""`ts.fix_random`: the same random numbers in every run."""

from __future__ import annotations

from ... import api


def fix_random(seed: int = 16) -> None:
    """Seed python, numpy and every framework that is imported."""
    api.seed_all(seed)
