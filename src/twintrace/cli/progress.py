"""The bar that the commands show for long work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..api import progress_bar

__all__ = ["bar"]


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on the terminal; where nothing is to be printed, none, and no notice of what takes long either."""
    if not quiet:
        with progress_bar() as shown:
            yield shown
        return
    log = logging.getLogger("twintrace")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield None
    finally:
        log.setLevel(before)
