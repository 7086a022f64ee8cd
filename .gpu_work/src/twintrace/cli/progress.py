"""The bar that the commands show for long work."""

from __future__ import annotations

from ..api import progress_bar as bar

__all__ = ["bar"]
