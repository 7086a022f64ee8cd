"""Changes that must be made whole, whatever signal comes in between.

    with uninterrupted():       Ctrl-C, and every other signal that has a handler in Python, waits
        install()
                                its handler is called here; KeyboardInterrupt is raised here

Python runs the handlers of signals between two instructions, wherever they are: between the replacing of a function and the note of
how to undo it, for one. Only the main thread runs them, so in others nothing is to be done.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals wait until the end of the block."""
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
    found: dict[int, Handler] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            found[number] = handler
    try:
        for first in [*found][:1]:
            signal.signal(first, found[first])
    except ValueError:
        return {}
    return found
