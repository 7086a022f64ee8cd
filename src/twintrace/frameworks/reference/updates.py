"""Tells that an optimizer is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .miniature import HOOKS


class Updates:
    """Tells the optimizer's calls from those of the forward pass."""

    def __init__(self) -> None:
        self.running = False

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        HOOKS.updates.append(self._step)
        yield lambda: HOOKS.updates.remove(self._step)

    def _step(self, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        self.running = True
        try:
            return run()
        finally:
            self.running = False
