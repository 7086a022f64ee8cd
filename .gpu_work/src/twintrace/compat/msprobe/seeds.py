"""`seed_all` of both doors: as msprobe's it has no result; what it changed is undone by the next, and when a script has ended."""

from __future__ import annotations

from ... import api

_SEEDED: api.Seeded | None = None


def seed_all(seed: int, *, mode: bool, rm_dropout: bool, framework: str) -> None:
    """Seed Python, numpy and every imported framework; `framework` is imported if it is not yet."""
    global _SEEDED
    restore()
    _SEEDED = api.seed_all(seed, deterministic=mode, disable_dropout=rm_dropout, frameworks=(framework,))


def restore() -> None:
    """Everything as it was before the first `seed_all`."""
    global _SEEDED
    seeded, _SEEDED = _SEEDED, None
    if seeded is not None:
        seeded()
