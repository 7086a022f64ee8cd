"""Record what MindSpore's `Model.train` trains.

    from twintrace.loops.mindspore import RecordCallback
    model.train(3, dataset, callbacks=[RecordCallback("runs/ms", level="mix")], dataset_sink_mode=False)

A step of the trace is a step of the model, numbered from 0 as `cur_step_num` is from 1. Evaluation (`model.fit`) is not
recorded. `model.train(..., initial_epoch=…)` goes on in the same trace. With `dataset_sink_mode=True` a whole epoch is one
call of a graph, in which there is no step to be seen: that is told.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from .. import api
from .steps import LoopRecorder, RecordsLoop

__all__ = ["RecordCallback"]

_Callback: Any = api.callback_class()


class RecordCallback(RecordsLoop, _Callback):  # type: ignore[misc]  # a class that is known when it runs
    """Records the training to `path`; options are those of `tt.record`."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._loop = LoopRecorder(path, options)
        self._before = 0  # steps that were done before MindSpore began to count

    def on_train_begin(self, run_context: Any) -> None:
        """Training begins; where it goes on from is known with the first epoch."""
        self._loop.end()

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """An epoch begins: the first, or one from which the training goes on, with steps that are counted from 0 again."""
        if self._loop.recorder is None:
            said = run_context.original_args()
            counted = int(said.cur_step_num)
            self._before = max(0, (int(said.cur_epoch_num) - 1) * int(said.batch_num) - counted)
            self._loop.begin(said.network, done=self._before + counted)

    def on_train_step_begin(self, run_context: Any) -> None:
        """A step begins; its number has been counted."""
        said = run_context.original_args()
        if said.dataset_sink_mode:
            warnings.warn(
                "twintrace: with dataset_sink_mode=True many steps are one call of a graph, and are recorded as one. "
                "Train with dataset_sink_mode=False.",
                RuntimeWarning,
                stacklevel=2,
            )
        self._loop.begin_step(self._before + int(said.cur_step_num) - 1)

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is over."""
        self._loop.end_step()

    def on_train_end(self, run_context: Any) -> None:
        """Training is over."""
        self._loop.end()
