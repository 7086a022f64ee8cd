"""A recording: hears of calls from a framework, decides what is wanted, writes it down.

    session = Session(path, framework, {"": model}, level=…, keep=…)
    session.start()          hooks in place
    … a training step …      enter / leave / gradient from the framework, lines to the journal
    session.step()           this step's journal is closed, the next one begins with the next call
    session.stop()           nothing that was installed remains
    session.close()          everything is on disk

Whatever goes wrong in here is told to the user once and noted in the journal; the training goes on. With `strict=True` it is
raised instead.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..frameworks.protocol import Framework, Open, Watch
from ..model.errors import SessionError, TraceWriteError, TwintraceError
from ..model.records import Keep, Level, Role
from ..model.sites import Kind, Phase
from ..store.digest import warm_up
from ..store.lines import Wire
from ..store.uploading import Uploader
from ..store.writer import TraceWriter, Writer
from .alarms import Alarms
from .calls import CallRecorder
from .complaints import Complaints
from .flatten import Flattener
from .journals import Journals
from .lockstep import Lockstep
from .numbering import CallState, Numbering
from .observer import Observer
from .plans import planner_for
from .processes import HERE, adopt, release, uninterrupted, unseen
from .selection import Selection
from .watching import NonfiniteWatch


class Session(CallRecorder):
    """One recording of one run, as `tt.record` begins it. Two may exist; they know nothing of each other."""

    _tells = True  # values that could not be kept, and records with nothing in them

    def __init__(
        self,
        path: Path,
        framework: Framework,
        models: Mapping[str, Any],
        *,
        level: Level,
        keep: Keep,
        selection: Selection,
        strict: bool = False,
        buffer: int,
        overwrite: bool = False,
        resume: bool = False,
        eager: bool = False,
        writer: Writer | None = None,
        kernels: bool = False,
        room: int | None = None,
        nonfinite: NonfiniteWatch | None = None,
        lockstep: Lockstep | None = None,
        zoom: str = "",
        uploader: Uploader | None = None,
    ) -> None:
        self.path = path
        # First: what the framework cannot do is said before anything is on disk.
        self._watch: Watch = framework.watch(models, level, self, eager=eager, kernels=kernels)
        settings: dict[str, Wire] = {"level": level.value, "keep": keep.value}
        if zoom:  # what an earlier run showed, and this one looks at closely
            settings["zoom"] = zoom
        self._complaints = Complaints(strict=strict)
        journals = Journals(framework, settings, self._complaints, strict=strict, tells_gaps=self._tells)
        super().__init__(framework, tuple(models), level, selection, journals)
        self._wanted_rank = selection.wants_rank(journals.rank)
        self._uploader = uploader if self._wanted_rank else None
        if self._wanted_rank:
            journals.writer = writer or TraceWriter.create(
                path,
                {"framework": framework.name, "settings": settings, "world": journals.world},
                rank=journals.rank,
                world=journals.world,
                keep_payload=keep is Keep.TENSOR,
                buffer=buffer,
                overwrite=overwrite,
                resume=resume,
                folds=keep is not Keep.TENSOR,
                ended=None if uploader is None else uploader.offer,
                taken=() if uploader is None else uploader.steps_there,
            )
            if uploader is not None:
                uploader.start()
            observer = journals.observer = Observer(
                framework, keep, journals.writer, autograd=level is not Level.OP, room=room, tell=self.note
            )
            observer.watch, observer.lockstep = nonfinite, lockstep
            self._flattener = Flattener(framework, observer.observe, observer.gaps)
            journals.numbering = Numbering(framework, observer.observe, journals.write_stack)
            if nonfinite is not None or lockstep is not None:
                capture = journals.numbering.stacks.capture
                journals.alarms = Alarms(framework, self._complaints, capture, nonfinite, lockstep)
            # Each value is looked at as it comes where something is watched for, and then no step follows a plan.
            whole = writer is None and self._sieve.everything and journals.alarms is None
            if whole and keep is not Keep.TENSOR and level is not Level.OP:
                journals.planner = planner_for(self, framework, observer, journals.lock)
            if resume and isinstance(journals.writer, TraceWriter):
                journals.step = journals.writer.next_step()
        self._running = self._armed = self._forked = self._failed = False
        self._activity.steps = [journals.step, journals.step]
        self._undo_saved: list[Callable[[], None]] = []
        warm_up()
        adopt(self)

    # --- the user's side ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Record from here on.

        Raises:
            SessionError: it is recording already, or closed.
        """
        if not self._is_open("start"):
            return
        if self._running:
            raise SessionError("the recorder is already started. Call stop() first, or leave out this start().")
        self._running = self._activity.begun = True
        self._arm()
        self._activity.started = self._activity.started or self._armed

    def stop(self, *, keep_gradients: bool = False) -> None:
        """Stop recording; every hook is removed. `start` goes on in the same step.

        Args:
            keep_gradients: hooks on the graphs of recorded calls stay until the step ends: gradients that flow back through
                them are recorded.

        Raises:
            SessionError: it is not recording.
        """
        if self._forked:
            return
        if not self._running:
            raise SessionError("stop() without start(): the recorder is not running. Call start() before it.")
        self._running = False
        self._disarm(keep_gradients)

    def step(self, number: int | None = None) -> None:
        """End the step.

        A step in which nothing was recorded is not in the trace if its successor has a number of its own: `rec.step(500)`
        before the first call makes that the first step.

        Args:
            number: number of the next step; None for one more.

        Raises:
            SessionError: the next step is in the trace already, or the recorder is closed.
            NonfiniteError: with `stop_on_nonfinite="raise"`, if the step made NaN or infinities that have an effect.
            DifferenceError: with `against` and `on_difference="raise"`, if the step differs.
        """
        if not self._is_open("step"):
            return
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
            raise SessionError(f"step({number!r}): expected a step number, 0 or more, or nothing.")
        journals, steps = self._journals, self._activity.steps
        with journals.lock:
            following = journals.step + 1 if number is None else number
            if journals.writer and (following == journals.step or journals.writer.has_step(following)):
                raise SessionError(
                    f"step {following} is already recorded in {self.path}, and a trace holds each step once. "
                    f"Give the next step a number of its own."
                )
            unused = number is not None and journals.withdraw()
            self._end_step()
            ending = self._judge_step()
            journals.step = following
            self._activity.steps = [following if unused and not journals.total else steps[0], following]
        if self._running:
            wanted = self._selection.wants_step(following)
            if wanted and not self._armed:
                self._arm()
            elif not wanted and self._armed:
                self._disarm()
        if self._uploader is not None and self._uploader.trouble:
            self._complaints.tell(
                f"upload: {self._uploader.url} takes nothing at present ({self._uploader.trouble}). It is tried again as long as "
                f"the run goes on; everything is in {self.path}",
                key="upload",
            )
        self._halt(ending)

    def rename(self, module: Any, path: str) -> Callable[[], None]:
        """Record one module under another path, whether or not it belongs to a model.

        Modules are recorded at levels module and mix; at others this has no effect.

        Args:
            module: the module.
            path: its path in the trace.

        Returns:
            A function that ends it; it ends as well when recording stops.
        """
        return self._watch.rename(module, path)

    def save(self, name: str, value: Any, *, gradients: bool = True) -> None:
        """Record one value, and its gradient when it comes; inside or outside a recorded region.

        Args:
            name: its name in the trace.
            value: a tensor, or tensors nested in lists and dicts.
            gradients: record the gradient too.
        """
        if not self._is_open("save"):
            return
        journals = self._journals
        if not self._wanted_rank or journals.halted or HERE.busy or not self._selection.wants_step(journals.step):
            return

        def tell_gradient(slot: str) -> Callable[[Any], None]:
            count = itertools.count()
            return lambda gradient: self.gradient(call, Role.SAVED, slot, gradient, next(count))

        with journals.recording(f"save({name!r})"):
            journals.leave_plan("save")
            journals.open()
            tensors: list[tuple[str, Any]] = []
            text = self._flattener.flatten(value, "", tensors)
            identity = journals.write_saved(str(name), *self._thread.place(), journals.numbering.stacks.capture(), text)
            state = CallState(journals.epoch, None, len(self._thread.modules))
            call = Open(identity, Kind.SAVE, str(name), Phase.FORWARD, [], tensors, state=state)
            for slot, tensor in tensors if gradients and not self._selection.forward_only else ():
                self._undo_saved.append(self._framework.on_gradient(tensor, tell_gradient(slot)))
            if not self._armed:  # nobody watches who writes to it
                journals.observer.before_unseen()

    def close(self) -> None:
        """Write everything and end the recording; the trace can be opened anywhere.

        Where it goes to another file system, waits for what is on its way, and tells what could not be sent.
        """
        journals = self._journals
        if journals.closed:
            return
        self._disarm()
        self._running = False
        if self._tells and not journals.lost and not self._failed:
            if self._wanted_rank:
                self._activity.tell_silence(self._complaints, self._sieve, self.total_calls)
            else:
                self._activity.tell_absent_ranks(self._complaints, journals.rank, journals.world)
        journals.closed = True
        ending: TwintraceError | None = None
        try:
            with journals.lock:
                self._end_step()
                ending = self._judge_step()
                if journals.writer:
                    if journals.planner is not None:
                        journals.planner.drop()
                    journals.observer.forget_all()
                    journals.writer.close()
        except TraceWriteError as error:
            journals.lose(error)
        finally:
            release(self)
            uploader, self._uploader = self._uploader, None
            left = None if uploader is None else uploader.finish()
            if left is not None:
                self._complaints.tell(f"upload: {left}", key="left")
        self._halt(ending)

    def __enter__(self) -> Session:
        try:
            self.start()
            return self  # within, so that a signal that comes now is not one that nobody cleans up after
        except Exception:
            raise
        except BaseException:  # no `__exit__` will be called
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._failed = self._failed or exc[:1] not in ((), (None,))
            self.close()
        finally:
            self._disarm()  # a signal may have come before `close` had begun with it

    @property
    def awaits_gradients(self) -> bool:
        """True if gradients of recorded calls may still come: their graph is there, and hooked."""
        return not self._journals.closed and self._watch.awaits_gradients()

    @property
    def number(self) -> int:
        """The present step."""
        return self._journals.step

    @property
    def total_calls(self) -> int:
        """Number of calls recorded so far, over all steps."""
        return self._journals.calls

    def abandon(self) -> None:
        """In a forked child (a data loader's worker): record nothing, touch nothing of the parent's."""
        journals = self._journals
        journals.closed = journals.lost = self._forked = True
        self._armed = self._running = False
        release(self)
        journals.lock = threading.RLock()
        self._watch.stop()
        if journals.writer:
            journals.writer.abandon()
        if self._uploader is not None:
            self._uploader.abandon()

    def _arm(self) -> None:
        journals = self._journals
        if journals.lost or journals.halted or not self._wanted_rank or not self._selection.wants_step(journals.step):
            return
        try:
            if journals.present is None:
                journals.open()
            else:  # calls may have gone unseen since stop()
                if journals.is_followed:
                    journals.leave_plan("stopped in between")
                journals.observer.look_again()
        except TraceWriteError as error:
            journals.lose(error)
            return
        try:
            with uninterrupted():
                self._armed = True
                with unseen():
                    self._watch.start()
        except BaseException:
            self._failed = True
            self._disarm()
            raise

    def _disarm(self, keep_gradients: bool = False) -> None:
        if self._armed:
            with uninterrupted():
                self._armed = False
                with unseen():
                    self._watch.stop(keep_gradients=keep_gradients)
                    self.before_unseen()  # nobody watches from here on
                self._thread.modules.clear()

    def _end_step(self) -> None:
        self._watch.end_step()
        while self._undo_saved:
            self._undo_saved.pop()()
        self._journals.end_step()
        self._sieve.reset()

    def _judge_step(self) -> TwintraceError | None:
        """The reason why recording ends with the step that has just ended, where what was watched for is in it."""
        journals = self._journals
        if journals.alarms is None or journals.lost or journals.halted:
            return None
        with journals.recording("what was watched for"):
            return journals.alarms.judge(self.path, journals.step, journals.rank)
        return None

    def _halt(self, ending: TwintraceError | None) -> None:
        """Recording ends here: what comes after a NaN is NaN, and after a difference all is different."""
        journals = self._journals
        if ending is None or journals.halted:
            return
        journals.halted = True
        self._disarm()
        if journals.alarms is not None and journals.alarms.raises(ending) and not self._failed:
            raise ending
        self._complaints.tell(f"recording has ended: {ending}", key="ended")

    def _is_open(self, verb: str) -> bool:
        """False in a forked child, where a recorder does nothing; a closed one raises."""
        if self._journals.closed and not self._forked:
            raise SessionError(
                f"{verb}() on a recorder that is closed. Make a new one with tt.record and another path."
            )
        return not self._forked
