"""Pauses of Python's garbage collector.

with collecting_later():     many small objects without cycles are made: looking for cycles takes up to half the time
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collecting_later(*, settle: bool = False) -> Iterator[None]:
    """Pauses the search for cycles; who has paused it before goes on doing so.

    Args:
        settle: Count all objects that are there at the end among the old ones, which only a full collection looks at. Otherwise the
            next collection walks through everything that was made in the pause, which takes as long as making a tenth of it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if settle and not gc.get_freeze_count():  # objects that somebody froze would be thawed with ours
                gc.freeze()
                gc.unfreeze()
            gc.enable()
