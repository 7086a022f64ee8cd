"""Faults of a recorder, told to the user: once, as a warning at their own line.

complaints = Complaints(strict=False)
complaints.tell("payload: the disk is full", key="payload")     a warning; the second time nothing
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent.parent) + os.sep


class Complaints:
    """Remembers what was told. `strict`: who turns warnings into errors gets them."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._told)

    def __contains__(self, key: str) -> bool:
        return key in self._told

    def beside(self, key: str) -> bool:
        """Was anything told but this?"""
        return bool(self._told - {key})

    def tell(self, text: str, *, key: str) -> None:
        """Say it, unless something with this key was said before."""
        if key in self._told:
            return
        self._told.add(key)
        try:
            warnings.warn(f"twintrace: {text}", RuntimeWarning, stacklevel=_frames_of_ours())
        except RuntimeWarning:
            if self._strict:
                raise  # otherwise: the user turned warnings into errors, but a recorder does not end the training


def _frames_of_ours() -> int:
    """Number of frames up to the user's own line: a warning is to point there."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
