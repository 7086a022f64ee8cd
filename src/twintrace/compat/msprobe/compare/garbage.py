"""Looking for circles less often, for as long as a comparison takes.

    with seldom():
        …

Two dumps are a million small objects, and none of them refer to each other in circles. Python looks through all of them again and
again while they are made: a fifth of the time of a comparison.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["seldom"]

_OBJECTS = 500_000  # that come on top before anybody looks: what does go round in circles is still found


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Pauses the garbage collector; at the end it works as before."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
