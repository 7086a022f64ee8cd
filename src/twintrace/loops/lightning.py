"""Record what Lightning's `Trainer` trains.

    from twintrace.loops.lightning import RecordCallback
    trainer = Trainer(max_epochs=3, callbacks=[RecordCallback("runs/a", level="module")])

A step of the trace is a step of the optimizer, numbered as `trainer.global_step` was before it: the batches of
`accumulate_grad_batches` are one; of a module with several optimizers, whose steps Lightning counts each, the numbers have
gaps. Validation is not recorded. `trainer.fit(ckpt_path=…)` goes on in the same trace. `lightning` and `pytorch_lightning`
are both taken: the one that is imported.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ..model.errors import MissingPackageError
from .steps import LoopRecorder, RecordsLoop

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ImportError as error:  # pragma: no cover - without the package there is nothing to test
        raise MissingPackageError(
            'twintrace.loops.lightning needs lightning: pip install "twintrace[lightning]".'
        ) from error

__all__ = ["RecordCallback"]


class RecordCallback(RecordsLoop, Callback):  # type: ignore[misc]  # a class without types
    """Records the training to `path`; options are those of `tt.record`."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._loop = LoopRecorder(path, options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins, or goes on from a checkpoint."""
        self._loop.begin(pl_module, done=trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch of a step is there: the first, or another that is accumulated."""
        self._loop.begin_step(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The batch is done; if the optimizer has made a step, so is the step."""
        if self._loop.number != trainer.global_step:
            self._loop.end_step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation comes in between."""
        self._loop.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation is over."""
        self._loop.go_on()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training is over."""
        self._loop.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training has failed: nothing that was installed remains."""
        self._loop.end()
