"""Settings that decide in which precision the miniature computes: there are none, it computes in the types that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SETTINGS: Mapping[str, Any] = {"autocast": {}, "deterministic": True}


def precision() -> Mapping[str, Any]:
    """The settings of this thread now."""
    return _SETTINGS
