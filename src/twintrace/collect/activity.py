"""Facts about a run that a recorder has seen: they tell why a record is empty, or has less in it than was asked for.

Silence would read as agreement, so a record with nothing in it is told when it is closed:

    nothing was recorded: no module of the model was called, but others were (Linear). Give tt.record the model that runs
"""

from __future__ import annotations

from collections.abc import Sequence

from .complaints import Complaints
from .selection import Selection, Sieve

_STRANGERS = 4
"""Classes of modules that are named when none of the model's was called: enough to recognise another model by."""


class Activity:
    """Facts about one session, as they come."""

    def __init__(self, selection: Selection, models: Sequence[str]) -> None:
        self._selection, self._models = selection, models
        self.begun = False
        """`start` was called."""
        self.started = False
        """Hooks were in place."""
        self.model_called = False
        self.steps = [0, 0]
        """The first and the last step."""
        self._strangers: dict[str, None] = {}

    def stranger(self, kind: str) -> None:
        """A module of this class was called that is none of the model's."""
        if len(self._strangers) < _STRANGERS:
            self._strangers[kind] = None

    def tell_absent_ranks(self, complaints: Complaints, rank: int, world: int) -> None:
        """This rank is not recorded: tells, on the first, if none is."""
        wanted = self._selection.ranks or ()
        if rank == 0 and not any(number < world for number in wanted):
            there = "rank 0 alone" if world == 1 else f"the ranks 0 to {world - 1}"
            complaints.tell(f"nothing was recorded: ranks={sorted(wanted)}, and the run has {there}", key="nothing")

    def tell_silence(self, complaints: Complaints, sieve: Sieve, calls: int) -> None:
        """Tells why nothing was recorded, or which condition nothing has met."""
        if self._selection.steps is not None and not self._selection.steps:
            return  # nothing was asked for
        idle = sieve.without_effect() if self.started else []
        others = f"no module of the model was called, but others were ({', '.join(self._strangers)})"
        if calls:
            if self._models and self._strangers and not self.model_called:
                idle.append(f"{others}: was it given the model that runs?")
            for text in idle:
                complaints.tell(text, key=text)
            return
        if complaints.beside("compiled"):
            return  # what went wrong was told
        if not self.begun:
            why = "the recorder was never started. Use it with `with`, or call start()"
        elif not self.started:
            first, last = self.steps
            ran = f"step {first} ran" if first == last else f"the steps {first} to {last} ran"
            why = f"{ran}, and none of them is among steps={sorted(self._selection.steps or ())[:8]}"
        elif not self.model_called and self._strangers:
            why = f"{others}. Give tt.record the model that runs"
        elif not sieve.everything:
            why = f"no call fits the selection ({'; '.join(idle) or 'names, between, first, predicate'})"
        elif "compiled" in complaints:
            why = "what ran was compiled, and cannot be seen from inside"
        elif self._models and not self.model_called:
            why = "the model was not called between start() and stop()"
        else:
            why = "nothing was called between start() and stop()"
        complaints.tell(f"nothing was recorded: {why}", key="nothing")
