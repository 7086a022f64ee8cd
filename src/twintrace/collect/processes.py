"""Recorders and the process around them: closed when it ends, let go in children that are forked; and its threads.

unseen()            a block whose work is kept out of every recording
adopt(session)      closed at exit, whatever the user forgets; a forked child lets go of it
release(session)    it is closed: nothing of that any more
uninterrupted()     a block that is run whole, whatever signal comes in between
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol


class _Busy(threading.local):
    """True while this thread is inside a recorder. One for all sessions: what one recorder does is not another's business."""

    busy = False


HERE = _Busy()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Keeps the work of this thread out of every recording."""
    before = HERE.busy
    try:
        HERE.busy = True
        yield
    finally:
        HERE.busy = before


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


Handler = Callable[[int, FrameType | None], Any]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals wait until the end of the block: Ctrl-C, and every other one that has a handler in Python.

    Python runs handlers between two instructions, wherever they are: between the replacing of a function and the note of how to
    undo it, for one. Only the main thread runs them, so in others nothing is to be done.
    """
    handlers = _handlers() if threading.current_thread() is threading.main_thread() else {}
    waiting: list[tuple[int, FrameType | None]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))

    replaced: list[int] = []
    try:
        for number in handlers:
            replaced.append(number)
            signal.signal(number, wait)
        yield
    finally:
        for number in replaced:
            if signal.getsignal(number) is wait:  # else somebody has set another meanwhile
                signal.signal(number, handlers[number])
    for number, frame in waiting:  # one that raises is enough: those behind it came while it was waited for
        handlers[number](number, frame)


def _handlers() -> dict[int, Handler]:
    """Each signal that has a handler in Python. Nothing where this interpreter may not set any (it is not the process's first)."""
    handlers: dict[int, Handler] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
    try:
        for first in [*handlers][:1]:
            signal.signal(first, handlers[first])
    except ValueError:
        return {}
    return handlers
