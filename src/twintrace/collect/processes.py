"""Recorders and the process around them: closed when it ends, let go in children that are forked.

adopt(session)      closed at exit, whatever the user forgets; a forked child lets go of it
release(session)    it is closed: nothing of that any more
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol


class Adopted(Protocol):
    """Session that has to be closed at exit."""

    def close(self) -> None: ...

    def abandon(self) -> None: ...


_LIVE: weakref.WeakSet[Adopted] = weakref.WeakSet()
_fork_hook_registered = False


def adopt(session: Adopted) -> None:
    """Close at exit; let go in forked children."""
    if not _LIVE:
        _register_fork_hook()
    _LIVE.add(session)
    atexit.register(session.close)


def release(session: Adopted) -> None:
    """Neither is needed any more."""
    atexit.unregister(session.close)
    _LIVE.discard(session)


def _register_fork_hook() -> None:
    global _fork_hook_registered
    if not _fork_hook_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_abandon_all)
        _fork_hook_registered = True


def _abandon_all() -> None:
    for session in list(_LIVE):
        with contextlib.suppress(Exception):  # one that cannot let go must not keep the others
            session.abandon()
