"""The journal of the present step: begun with the first record, told of what goes wrong, ended with the step.

    journals.open()               the journal, with its head
    journals.write('{"k":…')      a line; it survives the process from here on
    journals.note(topic, text)    a remark, once a step
    journals.trouble(name, error) something went wrong in the recorder: told once and noted, or raised

A step may be held against a plan (`plans.py`); whatever the plan has not goes through `leave_plan` first.
"""

from __future__ import annotations

import threading
from typing import Any

from ..frameworks.protocol import Framework
from ..model.errors import TraceWriteError
from ..model.sites import Kind, Phase
from ..model.words import error_text
from ..store.lines import Wire, seal, seal_text
from ..store.writer import Journal, Lines, TraceWriter, Writer
from .alarms import Alarms
from .complaints import Complaints
from .flatten import Unobserved
from .late import HeldLines
from .numbering import Numbering
from .observer import Observer
from .plans import Planner
from .processes import HERE


class _Work:
    """A class, as a generator would put a frame of Python's between the user's line and the warning that points there."""

    def __init__(self, journals: Journals, where: str) -> None:
        self._journals, self._where, self._before, self._lock = journals, where, HERE.busy, journals.lock

    def __enter__(self) -> None:
        try:
            HERE.busy = True
            self._lock.acquire()
        except BaseException:
            HERE.busy = self._before
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        try:
            self._lock.release()
            if isinstance(error, Exception):  # a recorder must never end the training
                self._journals.trouble(self._where, error)
                return True
            return False
        finally:
            HERE.busy = self._before


class Journals:
    """The journals of one session, one step after the other."""

    observer: Observer
    numbering: Numbering

    def __init__(
        self, framework: Framework, settings: dict[str, Wire], complaints: Complaints, *, strict: bool, tells_gaps: bool
    ) -> None:
        self._framework, self._settings, self._complaints, self._strict = framework, settings, complaints, strict
        self._tells_gaps = tells_gaps
        self.rank, self.world = framework.rank()
        self.writer: Writer | None = None
        """None on a rank that is not recorded; otherwise `observer` and `numbering` are there as well."""
        self.alarms: Alarms | None = None
        self.planner: Planner | None = None
        """Holds steps that repeat against a plan: where the framework can do that, and all is recorded into a trace of ours."""
        self.lock = threading.RLock()
        self.present: Lines | None = None
        self.step = 0
        """Number of the present step."""
        self.epoch = 0
        """Another number after each step: a call of an earlier one is not written into this."""
        self.total = 0
        """Number of calls in the steps that have ended."""
        self.lost = False
        """True if a journal could not be written: nothing is recorded any more."""
        self.closed = False
        self.halted = False
        """True if what was watched for has ended the recording."""
        self._noted: set[tuple[str, str]] = set()
        self._carried: list[tuple[str, str]] = []  # notes of a step that was taken back

    # --- lines --------------------------------------------------------------------------------------------------

    def open(self) -> Lines:
        """The present step's journal; made when the step's first record comes."""
        if self.present is not None:
            return self.present
        assert self.writer is not None
        try:
            groups: list[Wire] = [list(group) for group in self._framework.groups()]
            environment = dict(self._framework.environment())
        except Exception as error:  # noqa: BLE001 - what a framework says of itself is not worth a training
            self.trouble("environment", error)
            groups, environment = [], {}
        precision = self.numbering.precision = self._framework.precision()
        header: dict[str, Any] = {
            "rank": self.rank,
            "world": self.world,
            "framework": self._framework.name,
            "settings": self._settings,
            "environment": environment,
            "groups": groups,
        }
        journal = self.writer.begin_step(self.step, header | ({"precision": dict(precision)} if precision else {}))
        self.present = journal if isinstance(journal, Journal) else HeldLines(journal)
        self.observer.begin(self.present)
        if self.alarms is not None:
            self.alarms.begin(self.step, self.rank)
        carried, self._carried = self._carried, []
        for topic, text in carried:
            self.note(topic, text)
        if self.planner is not None:
            self.planner.journal_opened()
        return self.present

    def write(self, text: str) -> None:
        """A line, which is not closed yet."""
        journal = self.present or self.open()
        journal.add(seal_text(text))
        self.commit(journal)

    def commit(self, journal: Lines) -> None:
        """Lines so far survive the process. Tells of values that could not be kept; a strict session raises."""
        try:
            journal.commit()
        except TraceWriteError as error:
            self.lose(error)
            return
        if self.observer.gaps:
            self._tell_gaps()
        trouble = self.observer.payload_trouble
        if trouble is not None and "payload" not in self._complaints:
            self.tell("payload", str(trouble))
            if self._strict:
                raise trouble

    def _tell_gaps(self) -> None:
        """Tells the user of the first value that could not be kept; each is in its record, and a strict session raises."""
        known = self.observer.gaps.items() if self._tells_gaps else ()
        gaps = [(topic, text) for topic, text in known if topic not in self._complaints]
        self.observer.gaps.clear()
        for topic, text in gaps:
            if self._strict:
                self.note(topic, text)
                raise TraceWriteError(f"{text}. Record without strict=True to go on without it.")
            self.tell(topic, text)

    def tell(self, topic: str, text: str) -> None:
        """Tells the user, and notes it in the journal."""
        self._complaints.tell(f"{topic}: {text}", key=topic)
        self.note(topic, text)

    def note(self, topic: str, text: str) -> None:
        """A remark in the journal, where there is one, once."""
        with self.lock:
            if (topic, text) in self._noted or self.lost or self.closed or self.present is None:
                return
            self.leave_plan("a note")
            self._noted.add((topic, text))
            self.present.add(seal({"k": "note", "topic": topic, "text": text}))
            self.commit(self.present)

    def write_stack(self, number: int, frames: str) -> None:
        """A stack that was not met before in this journal."""
        self.open().add(seal_text(f'{{"k":"stack","id":{number},"frames":{frames}'))

    def write_saved(self, name: str, path: str, up: int | None, stack: int, value: str) -> int:
        """A value that was saved under a name, as a call's line; the identity of the call."""
        number = self.numbering.count(Kind.SAVE, name, Phase.FORWARD)
        identity, text = self.numbering.begin(Kind.SAVE, name, number, Phase.FORWARD, path, up)
        self.write(f'{text},"in":[],"kw":{{}},"stack":{stack},"out":{value}')
        return identity

    # --- the end of a step --------------------------------------------------------------------------------------

    def withdraw(self) -> bool:
        """Take the journal of a step back in which there is nothing but its head and notes, which go into the next."""
        if self.present is None or self.numbering.calls or self.is_followed or self.observer.count:
            return False
        if not isinstance(self.writer, TraceWriter):
            return False
        self._carried = [note for note in self._noted if note not in self._carried] + self._carried
        self.writer.withdraw_step()
        self.observer.end()
        self.present = None
        return True

    def end_step(self) -> None:
        """End the present journal; the next one begins with the next record."""
        self.epoch += 1
        if self.writer is None:
            return
        if self.present is not None:
            try:
                if not self._end_followed():
                    with self.recording("device"):
                        self.observer.settle()  # lines of tensors on a device, which has told of them now
                        if not self.lost:
                            self.commit(self.present)
                    for value in self.alarms.end() if self.alarms is not None else ():
                        number = self.observer.keep_value(value.look, value.array)
                        self.write_saved(value.name, "", None, value.stack, f'{{"$t":{number}}}')
                    if not self.lost:  # a journal with a gap does not call itself complete
                        counts = {"calls": self.numbering.calls, "tensors": self.observer.count}
                        self.present.add(seal({"k": "end", **counts}))
                    self.writer.end_step()
            except TraceWriteError as error:
                self.lose(error)
            self.observer.end()
            self.present = None
            if self.planner is not None and isinstance(self.writer, TraceWriter):
                self.planner.step_ended(self.writer.pattern)
        self.total += self.numbering.calls
        self.numbering.reset()
        self._noted.clear()
        if self.planner is not None and not self.closed:
            self.planner.expect_step()

    # --- steps that follow a plan (plans.py) --------------------------------------------------------------------------

    @property
    def is_followed(self) -> bool:
        """Has the present step been as planned, from its first event on?"""
        return self.planner is not None and self.planner.is_followed

    @property
    def calls(self) -> int:
        """Number of calls recorded so far, over all steps."""
        present = 0 if self.writer is None else self.numbering.calls
        return self.total + (present or int(self.is_followed))

    def leave_plan(self, why: str = "") -> None:
        """Something comes that no plan has: what was followed is written; with a reason, no plan is made of this step either."""
        if self.planner is not None:
            if self.planner.follower is not None:
                with self.recording("plan"):
                    self.planner.depart()
            if why:
                self.planner.spoil(why)

    def _end_followed(self) -> bool:
        """Ends the journal of a step that was as planned; False: it is to be ended like any other."""
        if self.planner is None or not self.is_followed or self.lost:
            return False
        ended = None
        with self.recording("plan"):
            ended = self.planner.finish()
        if ended is None:
            return False
        assert isinstance(self.writer, TraceWriter)
        self.numbering.calls = ended[0].calls
        self.writer.end_step_as(*ended)
        return True

    # --- trouble ------------------------------------------------------------------------------------------------

    def recording(self, where: str) -> _Work:
        """A block of the recorder's own work: it is not reported, and raises only where the user wants that."""
        return _Work(self, where)

    def lose(self, error: TraceWriteError) -> None:
        """The journal itself cannot be written: nothing more can be said on disk, so it is said once, here."""
        if self._strict:
            raise error
        if not self.lost:
            self.lost = True
            self._complaints.tell(f"recording has ended: {error}", key="lost")

    def trouble(self, where: str, error: Exception) -> None:
        """Something went wrong in the recorder: raise if the user wants that, otherwise say it once and go on."""
        if isinstance(error, Unobserved) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if self._strict:
            raise error
        if isinstance(error, TraceWriteError) and self.present is None:  # not even a step can be begun
            self.lose(error)
            return
        text = f"{where or 'the model'}: could not be recorded ({error_text(error)})"
        self._complaints.tell(
            f"{text}. Further failures of this kind are only noted in the trace.", key=type(error).__name__
        )
        self.note("unrecorded", text)
