"""Kernels: MindSpore's, through its dispatch mode; MSAdapter has none of its own.

forward/op:Dense#0     backward/op:MatMul#0
"""

from __future__ import annotations

from ..mindspore.ops import OpMode, is_offered
from ..mindspore.ops import Ops as MindsporeOps
from ..protocol import Sink
from .updates import Updates

__all__ = ["OpMode", "Ops", "is_offered"]


class Ops(MindsporeOps):
    """MindSpore's kernels, with torch's optimizers as what is an update."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._updates = Updates()
