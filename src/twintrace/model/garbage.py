"""Pauses of Python's garbage collector.

with collecting_later():     many small objects without cycles are made: looking for cycles takes up to half the time
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collecting_later() -> Iterator[None]:
    """Pauses the search for cycles; who has paused it before goes on doing so."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
