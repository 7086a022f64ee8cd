"""Record a loop that is written with accelerate.

    from twintrace.loops.accelerate import record
    rec = record("runs/a", model, accelerator, level="module")
    with rec:
        for batch in loader:
            with accelerator.accumulate(model):
                ...
            rec.step()

`rec.step()` ends a step of the trace once gradients were synchronised, so that the batches of
`gradient_accumulation_steps` are one. The model may be the one that `prepare` gave: it is recorded under its own names. The
recorder is registered for checkpointing: `accelerator.load_state` between `record` and `with` makes it go on in the same
trace, under the numbers that follow. Evaluation is left out by `with rec.paused(): …`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ..model.errors import SessionError
from .steps import LoopRecorder, RecordsLoop

__all__ = ["AcceleratedRecorder", "record"]


def record(path: str | os.PathLike[str], model: Any, accelerator: Any, **options: Any) -> AcceleratedRecorder:
    """A recorder for a loop of `accelerator`.

    Args:
        path: directory of the trace.
        model: the model, before or after `accelerator.prepare`; a list or a dict of them.
        accelerator: the `accelerate.Accelerator` of the loop.
        options: those of `tt.record`: level, keep, steps, …

    Returns:
        A recorder to be used with `with`; its `step` is to be called after every batch.
    """
    return AcceleratedRecorder(path, model, accelerator, options)


class AcceleratedRecorder(RecordsLoop):
    """A recorder that knows when a step of the optimizer is over."""

    def __init__(
        self, path: str | os.PathLike[str], model: Any, accelerator: Any, options: dict[str, Any], done: int = 0
    ) -> None:
        self._loop = LoopRecorder(path, options)
        self._accelerator, self._done = accelerator, done
        if isinstance(model, dict):
            self._model: Any = {name: accelerator.unwrap_model(each) for name, each in model.items()}
        elif isinstance(model, list | tuple):
            self._model = [accelerator.unwrap_model(each) for each in model]
        else:
            self._model = accelerator.unwrap_model(model)
        accelerator.register_for_checkpointing(self)

    def __enter__(self) -> AcceleratedRecorder:
        self._loop.begin(self._model, done=self._done)
        self._loop.begin_step(self._done)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.end()

    def step(self) -> None:
        """A batch is done; if gradients were synchronised with it, so is the step."""
        if self._accelerator.sync_gradients:
            self._done += 1
            self._loop.next_step(self._done)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing inside is recorded: an evaluation."""
        self._loop.pause()
        try:
            yield
        finally:
            self._loop.go_on()

    def state_dict(self) -> dict[str, int]:
        """Steps that are done, for `accelerator.save_state`."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after these steps; called by `accelerator.load_state`."""
        if self._loop.recorder is not None:
            raise SessionError(
                "the state was loaded after recording had begun. Call accelerator.load_state between record(…) and `with`."
            )
        self._done = int(state["done"])
