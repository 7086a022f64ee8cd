"""Values that are watched while they are recorded: those that are not finite, and those that differ from another run's.

a call ends       the watch (`watching.py`, `lockstep.py`) says that something arose in it: the user is told, and the values
                  that the call took and gave are kept
a step ends       the watch judges the step: where what arose has an effect, recording ends with it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..frameworks.protocol import Framework, Open, Unreadable
from ..model.errors import DifferenceError, NonfiniteError, TwintraceError
from ..model.records import APART, NONFINITE
from ..model.sites import Phase
from .complaints import Complaints
from .lockstep import Lockstep
from .numbering import CallState
from .watching import NonfiniteWatch

_MOST_KEPT_BYTES = 64 << 20
"""Of a value that is kept because something arose beside it: copying it must not be felt."""


class KeptValue(NamedTuple):
    """A value to save with the step, as if the user had done so."""

    name: str
    look: Any
    array: Any
    stack: int


class Alarms:
    """The watches of one session, and the values that are kept because of them.

    Values are saved at the end of the step, so that the numbers of calls and tensors are those of a run in which nothing was kept.
    """

    def __init__(
        self,
        framework: Framework,
        complaints: Complaints,
        capture: Callable[[], int],
        nonfinite: NonfiniteWatch | None,
        lockstep: Lockstep | None,
    ) -> None:
        """`capture` gives the number of the present stack."""
        self._framework, self._complaints, self._capture = framework, complaints, capture
        self._nonfinite, self._lockstep = nonfinite, lockstep
        self._kept: list[KeptValue] = []
        self._step = 0

    def begin(self, step: int, rank: int) -> None:
        """A new journal."""
        self._step = step
        if self._nonfinite is not None:
            self._nonfinite.begin()
        if self._lockstep is not None:
            why = self._lockstep.begin(step, rank)
            if why:
                self._complaints.tell(why, key="lockstep")

    def call_begins(self, phase: Phase, state: CallState, inputs: Sequence[tuple[str, Any]]) -> None:
        """Copies the arguments that are about to be written to: their values are gone afterwards."""
        if self._nonfinite is not None and phase is not Phase.UPDATE:
            for slot, tensor in state.mutated(inputs):
                value = self._small_value(tensor)
                if value is not None:
                    state.before[slot] = value[0], value[1].copy()

    def call_ended(self, call: Open, text: str, before: int) -> None:
        """A call has ended, with this line; `before`: the number of tensors in the journal without its results."""
        state: CallState = call.state
        assert state.text is not None
        watch = self._nonfinite
        if watch is not None and watch.counts:
            fresh = watch.fresh(before)
            if fresh and watch.is_origin(state.text, fresh) and watch.may_keep():
                self._keep_around(NONFINITE, call, state)
                if watch.tells_now(fresh):
                    self._tell_nonfinite(f"{call.name or 'the model'} made NaN out of values without NaN")
        if self._lockstep is not None:
            if self._lockstep.call(call.id, state.text, text):
                self._keep_around(APART, call, state)
            self._tell_apart(self._lockstep)

    def gradient_came(self, tensor: Any, line: str, number: int, before: int) -> None:
        """A gradient has come, as tensor `number`, with this line; `before` as for `call_ended`."""
        watch = self._nonfinite
        if watch is not None and watch.counts:
            fresh = watch.fresh(before)
            if fresh and len(fresh) == len(watch.counts) and watch.may_keep():
                self._keep(f"{NONFINITE}gradient", self._small_value(tensor))
                if watch.tells_now(fresh):
                    self._tell_nonfinite("a gradient is NaN")
        if self._lockstep is not None:
            if self._lockstep.gradient(line, number):
                self._keep(f"{APART}gradient", self._small_value(tensor))
            self._tell_apart(self._lockstep)

    def end(self) -> list[KeptValue]:
        """The step is over: the values that are to be saved with it."""
        if self._lockstep is not None:
            self._lockstep.end()
        kept, self._kept = self._kept, []
        return kept

    def judge(self, path: Path, step: int, rank: int) -> TwintraceError | None:
        """The reason why recording ends with the step that has just ended, where what was watched for is in it."""
        if self._nonfinite is not None:
            sentence = self._nonfinite.judge(path, step, rank)
            if sentence:
                return NonfiniteError(f"{sentence}. More: twintrace why-nan {path}")
        if self._lockstep is not None:
            sentence = self._lockstep.judge(path, step, rank)
            if sentence:
                runs = f"{self._lockstep.other.path} {path}"
                return DifferenceError(f"{sentence}. More: twintrace compare {runs}; twintrace zoom {runs}")
        return None

    def raises(self, ending: TwintraceError) -> bool:
        """Is such an end to be raised? Otherwise it is told."""
        watch = self._nonfinite if isinstance(ending, NonfiniteError) else self._lockstep
        return watch is not None and watch.raises

    def _small_value(self, tensor: Any) -> tuple[Any, Any] | None:
        """A look at a tensor and its values, if they are on the host and not too large to be copied."""
        look = self._framework.look(tensor)
        if look.elsewhere or look.parts:
            return None
        try:
            array = self._framework.host(tensor)
        except Unreadable:
            return None
        return (look, array) if array.nbytes <= _MOST_KEPT_BYTES else None

    def _keep_around(self, kept: str, call: Open, state: CallState) -> None:
        """Keeps the values that a call took and gave."""
        for slot, value in state.before.items():
            self._keep(f"{kept}{call.name} input {slot}", value)
        for slot, tensor in call.inputs:
            if slot not in state.before:
                self._keep(f"{kept}{call.name} input {slot}", self._small_value(tensor))
        for slot, tensor in call.outputs:
            self._keep(f"{kept}{call.name} output {slot or '0'}", self._small_value(tensor))

    def _keep(self, name: str, value: tuple[Any, Any] | None) -> None:
        if value is not None:
            self._kept.append(KeptValue(name, value[0], value[1].copy(), self._capture()))

    def _tell_nonfinite(self, text: str) -> None:
        self._complaints.tell(
            f"step {self._step}: {text}; whether it has an effect is seen at the end of the step", key="nan"
        )

    def _tell_apart(self, lockstep: Lockstep) -> None:
        if lockstep.first:
            self._complaints.tell(
                f"step {self._step} differs from {lockstep.other.path}, first seen at: {lockstep.first}; "
                f"whether it has an effect is seen at the end of the step",
                key="apart",
            )
