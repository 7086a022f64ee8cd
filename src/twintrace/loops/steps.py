"""A recorder in the hands of somebody else's loop: begins with the training, runs within steps alone, ends with the training.

loop = LoopRecorder("runs/a", {"level": "mix"})
loop.begin(model, done=0)       the training begins; `done` steps of it were done before, by another process perhaps
loop.begin_step(0)              hooks in place
loop.end_step()                 the step is written; nothing is recorded until the next one begins
loop.end()                      everything is on disk
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import api
from ..model.errors import UsageError

_OURS = ("path", "model", "resume")


class RecordsLoop:
    """Members that all recorders for loops have."""

    _loop: LoopRecorder

    @property
    def recorder(self) -> Any:
        """The recorder, while the training runs: `recorder.save(name, value)`."""
        return self._loop.recorder

    def close(self) -> None:
        """Everything is written, and nothing that was installed remains: for a training that has raised."""
        self._loop.end()


class LoopRecorder:
    """One training, and the trace that it is recorded to."""

    def __init__(self, path: str | os.PathLike[str], options: Mapping[str, Any]) -> None:
        taken = [name for name in _OURS if name in options]
        if taken:
            raise UsageError(
                f"{', '.join(taken)}: the loop says it itself. Give the other options of tt.record: level, keep, steps, …"
            )
        self.path, self._options = path, dict(options)
        self.recorder: api.Recorder | None = None
        """The recorder, while the training runs: for `save`, and for whatever else `tt.record` gives."""
        self._there: frozenset[int] = frozenset()
        self._running = self._told = False
        self._calls = 0  # recorded before this step

    def begin(self, model: Any, done: int = 0) -> None:
        """The training begins, of which so many steps were done before: then it goes on in its trace, if that is there."""
        self.end()  # a training that raised has left it open
        options = dict(self._options)
        if done and Path(self.path).exists() and not options.get("overwrite"):
            self._there = frozenset(api.open(self.path).steps)
            options["resume"] = True
        else:
            self._there = frozenset()
        self.recorder = api.record(self.path, model, **options)

    @property
    def number(self) -> int | None:
        """The step that is being recorded; None between steps."""
        return self.recorder.number if self.recorder is not None and self._running else None

    def begin_step(self, number: int) -> None:
        """A step begins. One that the trace has already, from before the training was taken up again, is not recorded again."""
        if self.recorder is None or self._running:
            return
        if number in self._there:
            if not self._told:
                self._told = True
                warnings.warn(
                    f"twintrace: step {number} is in {self.path} already, from before the training was taken up again, "
                    f"and is not recorded again; nor are others that are",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        if self.recorder.number != number:
            self.recorder.step(number)
        self._calls = self.recorder.total_calls
        self.recorder.start()
        self._running = True

    def next_step(self, number: int) -> None:
        """A step is over, and the next begins at once."""
        if self.recorder is None or not self._running or number in self._there:
            self.end_step()
            self.begin_step(number)
        else:
            self.recorder.step(number)
            self._calls = self.recorder.total_calls

    def end_step(self) -> None:
        """The step is over, and is written."""
        if self.recorder is None or not self._running:
            return
        self._running = False
        self.recorder.stop()
        self.recorder.step(self._following(self.recorder.number))

    def _following(self, number: int) -> int:
        return next(each for each in itertools.count(number + 1) if each not in self._there)

    def pause(self) -> None:
        """Something else than the step runs: an evaluation."""
        if self.recorder is not None and self._running:
            self.recorder.stop(keep_gradients=True)

    def go_on(self) -> None:
        """The step goes on."""
        if self.recorder is not None and self._running:
            self.recorder.start()

    def end(self) -> None:
        """The training is over, or has failed."""
        recorder, self.recorder = self.recorder, None
        running, self._running = self._running, False
        if recorder is None:
            return
        if running and recorder.total_calls == self._calls:  # a step that was begun and has not been
            recorder.step(self._following(recorder.number))
        recorder.close()
