"""`MsprobeStep` and `MsprobeInitStep`: callbacks of MindSpore's `Model.train`.

    trainer.train(1, dataset, callbacks=[MsprobeStep(debugger)])     start at the beginning of each step, stop and step at its end

They are made when they are asked for: a callback must be of MindSpore's own class, and importing this imports no framework.
"""

from __future__ import annotations

import functools
from typing import Any

from ... import api
from . import debugger


@functools.cache
def step_class() -> type:
    """`MsprobeStep`."""
    base: Any = api.callback_class()

    class MsprobeStep(base):  # type: ignore[misc]  # a class that is known when it runs
        """Records each step of a training: `debugger` is started before it, and told of its end."""

        def __init__(self, debugger: Any) -> None:
            super().__init__()
            self.debugger = debugger

        def on_train_step_begin(self, run_context: Any) -> None:
            self.debugger.start()

        def on_train_step_end(self, run_context: Any) -> None:
            self.debugger.stop()
            self.debugger.step()

    return MsprobeStep


@functools.cache
def init_step_class() -> type:
    """`MsprobeInitStep`."""
    base: Any = api.callback_class()

    class MsprobeInitStep(base):  # type: ignore[misc]  # a class that is known when it runs
        """Counts steps on from where a training is taken up again."""

        def on_train_begin(self, run_context: Any) -> None:
            debugger.begin_at(int(run_context.original_args().cur_step_num))

    return MsprobeInitStep
