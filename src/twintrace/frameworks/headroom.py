"""Room on Python's stack for what a recorder puts on it.

    headroom.count += 1; if not headroom.count % EVERY: headroom.grow()      a module is called
    if not headroom.count % EVERY: headroom.shrink(); headroom.count -= 1    it returns

Each recorded module stands on the stack with two frames of the recorder's beside torch's three. A network nested two hundred deep
would then reach Python's limit though by itself it does not. So the limit is moved by as much as we take, and by no more: what
recurs without end still ends where it would have ended.
"""

from __future__ import annotations

import contextlib
import sys
import threading

EVERY = 16
"""Modules between two moves of the limit. Networks that are nested less deep never pay for one."""
_FRAMES = 2 * EVERY
_ALSO = 64
"""Once, for the recorder itself, which looks into arguments at the innermost place: about 25 frames, by the deepest test."""
_LOCK = threading.Lock()


class _Headroom(threading.local):
    """Depth of this thread in recorded modules."""

    def __init__(self) -> None:
        self.count = 0

    def grow(self) -> None:
        """Move the limit up."""
        _move(_FRAMES + (_ALSO if self.count == EVERY else 0))

    def shrink(self) -> None:
        """Move it back."""
        _move(-_FRAMES - (_ALSO if self.count == EVERY else 0))


def _move(frames: int) -> None:
    with _LOCK, contextlib.suppress(RecursionError, ValueError):  # lower than the stack is now: it stays
        sys.setrecursionlimit(sys.getrecursionlimit() + frames)


headroom = _Headroom()
