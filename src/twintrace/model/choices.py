"""Types of arguments of the verbs, for type checkers and editors: a mistyped word is seen before the run.

The enums `Level` and `Keep` (records.py) and the table of policies have the same words; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

LevelName = Literal["module", "api", "mix", "op"]
KeepName = Literal["statistics", "fingerprint", "tensor"]
PolicyName = Literal["auto", "msprobe", "troubleshooter", "torch_testing"]
LayoutName = Literal["auto", "whole", "ranks"]
EngineName = Literal["auto", "threads", "processes", "ray"]
Progress = Callable[[str, int, int], None]
"""Called with (task, done, total)."""
