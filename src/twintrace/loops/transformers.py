"""Record what `transformers.Trainer` trains.

    from twintrace.loops.transformers import RecordCallback
    trainer = Trainer(model, args, train_dataset=data, callbacks=[RecordCallback("runs/a", level="module")])

A step of the trace is a step of the optimizer, numbered as `state.global_step` was before it: the batches of
`gradient_accumulation_steps` are one. Evaluation and saving are not recorded. `trainer.train(resume_from_checkpoint=True)` goes on
in the same trace.
"""

from __future__ import annotations

import os
from typing import Any

from ..model.errors import MissingPackageError
from .steps import LoopRecorder, RecordsLoop

try:
    from transformers import TrainerCallback
except ImportError as error:  # pragma: no cover - without the package there is nothing to test
    raise MissingPackageError(
        'twintrace.loops.transformers needs transformers and accelerate: pip install "twintrace[transformers]".'
    ) from error

__all__ = ["RecordCallback"]


class RecordCallback(RecordsLoop, TrainerCallback):  # type: ignore[misc]  # a class without types
    """Records the training to `path`; options are those of `tt.record`.

    The Trainer has no word for a training that raises: then call `close()`, or begin the next training, which does.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._loop = LoopRecorder(path, options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training begins, or goes on from a checkpoint."""
        self._loop.begin(kwargs["model"], done=state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The first batch of a step of the optimizer is there."""
        self._loop.begin_step(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has made its step."""
        self._loop.end_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training is over."""
        self._loop.end()
