"""Replacing functions for a while: as MindSpore's adapter does it. All of MSAdapter's are plain Python functions."""

from ..mindspore.patches import Patch, patch

__all__ = ["Patch", "patch"]
