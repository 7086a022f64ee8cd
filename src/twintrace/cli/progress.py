"""The bar that the commands show for long work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..api import progress_bar

__all__ = ["bar"]


def bar(*, quiet: bool = False) -> AbstractContextManager[Callable[[str, int, int], None] | None]:
    """A bar on the terminal; none where nothing is to be printed."""
    return contextlib.nullcontext() if quiet else progress_bar()
