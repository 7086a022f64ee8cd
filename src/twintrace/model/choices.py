"""Words that the verbs take, for type checkers and editors: a mistyped one is seen before the run.

The enums `Level` and `Keep` (records.py) and the table of policies have the same words; a test holds them together.
"""

from __future__ import annotations

from typing import Literal

LevelName = Literal["module", "api", "mix", "op"]
KeepName = Literal["statistics", "fingerprint", "tensor"]
PolicyName = Literal["auto", "msprobe", "troubleshooter", "torch_testing"]
LayoutName = Literal["auto", "whole", "ranks"]
EngineName = Literal["auto", "threads", "processes", "ray"]
