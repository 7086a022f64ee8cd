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

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..frameworks.protocol import Framework, ModuleView, Open, Unreadable, Watch
from ..model.errors import DifferenceError, NonfiniteError, SessionError, TraceWriteError, TwintraceError
from ..model.records import APART, NONFINITE, Keep, Level, Role
from ..model.sites import Kind, Phase, Site
from ..store.digest import warm_up
from ..store.lines import Wire, encode, seal, seal_text, text_token
from ..store.uploading import Uploader
from ..store.writer import Journal, Lines, TraceWriter, Writer
from .complaints import Complaints, text_of
from .configurations import Configurations
from .flatten import Flattener, Unobserved
from .kernels import Kernel, kernels_in
from .late import HeldLines
from .lockstep import Lockstep
from .observer import Observer
from .plans import Mark, Planner, planner_for
from .processes import adopt, release, uninterrupted
from .selection import Selection, Sieve
from .stacks import Stacks
from .watching import NonfiniteWatch


class _Busy(threading.local):
    """True while this thread is inside a recorder. One for all sessions: what one recorder does is not another's business."""

    def __init__(self) -> None:
        self.busy = False


class _Thread(threading.local):
    """State of one thread of one session: the modules around it."""

    def __init__(self) -> None:
        self.modules: list[tuple[str, int | None]] = []  # (path, id of the nearest recorded module)


_HERE = _Busy()
_MOST_KEPT_BYTES = 64 << 20
"""Of a value that is kept because something arose beside it: copying it must not be felt."""
_STRANGERS = 4
"""Classes of modules that are named when none of the model's was called: enough to recognise another model by."""


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Keeps the work of this thread out of every recording."""
    before = _HERE.busy
    try:
        _HERE.busy = True
        yield
    finally:
        _HERE.busy = before


class _Texts(dict[str, str]):
    """Names as JSON, each made once."""

    def __missing__(self, name: str) -> str:
        text = self[name] = encode(name)
        return text


class _State:
    """State of an open call: the line as far as it is written, and where the call stands."""

    __slots__ = ("before", "depth", "epoch", "mutates", "text", "written")

    def __init__(self, epoch: int, text: str | None, depth: int, mutates: Sequence[str] = ()) -> None:
        self.epoch, self.text, self.depth, self.mutates = epoch, text, depth, mutates
        self.written = ""  # the whole line
        # By slot, while values that are not finite are watched for: look and copy.
        self.before: dict[str, tuple[Any, Any]] = {}


class Session:
    """One recording of one run, as `tt.record` begins it. Two may exist; they know nothing of each other."""

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
        self._framework = framework
        # First: what the framework cannot do is said before anything is on disk.
        self._watch: Watch = framework.watch(models, level, self, eager=eager, kernels=kernels)
        self._level, self._keep = level, keep
        self._selection, self._sieve = selection, Sieve(selection)
        self._strict = strict
        self._settings: dict[str, Wire] = {"level": level.value, "keep": keep.value}
        if zoom:  # what an earlier run showed, and this one looks at closely
            self._settings["zoom"] = zoom
        self._rank, self._world = framework.rank()
        self._wanted_rank = selection.wants_rank(self._rank)
        self._writer: Writer | None = None
        self._translated = writer is not None  # into another tool's file
        self._uploader = uploader if self._wanted_rank else None
        if self._wanted_rank:
            manifest = {"framework": framework.name, "settings": self._settings, "world": self._world}
            self._writer = writer or TraceWriter.create(
                path,
                manifest,
                rank=self._rank,
                world=self._world,
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
            self._observer = Observer(
                framework, keep, self._writer, autograd=level is not Level.OP, room=room, tell=self.note
            )
            self._observer.watch, self._observer.lockstep = nonfinite, lockstep
            self._observe = self._observer.observe
            self._gaps = self._observer.gaps
            self._flattener = Flattener(framework, self._observe, self._gaps)
            self._configurations = Configurations(Flattener(framework, self._observe))
        self._stacks = Stacks(framework.internal_paths(), self._write_stack)
        self._thread = _Thread()
        self._lock = threading.RLock()
        self._journal: Lines | None = None
        self._precision: Mapping[str, Any] = {}  # as the present journal's head says it
        # By object: other settings, as a field of a call.
        self._precisions: dict[int, tuple[Mapping[str, Any], str]] = {}
        self._number = self._writer.next_step() if resume and isinstance(self._writer, TraceWriter) else 0
        self._epoch = 0
        self._nonfinite, self._lockstep = nonfinite, lockstep
        self._halted = False  # what was watched for was found, and recording has ended
        self._kept: list[tuple[str, Any, Any, int]] = []  # values to save with the step: name, look, array, stack
        self._running = self._armed = self._closed = self._lost = self._started = self._forked = False
        self._begun = self._failed = self._model_called = False
        self._given = tuple(models)
        self._strangers: dict[str, None] = {}  # classes of modules that were called and are not the model's
        self._steps_begun: list[int] = [self._number]  # the first and the last
        self._next_call = 0
        self._total = 0
        self._passes: dict[str, int] = {}  # backward passes of this step, by parameter
        self._counts: dict[tuple[Phase, Kind], dict[str, int]] = {(p, k): {} for p in Phase for k in Kind}
        self._undo_saved: list[Callable[[], None]] = []
        self._texts = _Texts()
        self._complaints = Complaints(strict=strict)
        self._noted: set[tuple[str, str]] = set()
        self._carried: list[tuple[str, str]] = []  # notes of a step that was taken back
        self.planner: Planner | None = None
        """Holds steps that repeat against a plan: where the framework can do that, and all is recorded into a trace of ours."""
        watched = nonfinite is not None or lockstep is not None  # each value as it comes
        whole = self._writer is not None and not self._translated and self._sieve.everything and not watched
        if whole and keep is not Keep.TENSOR and level is not Level.OP:
            self.planner = planner_for(self, framework, self._observer, self._lock)
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
        self._running = self._begun = True
        self._arm()
        self._started = self._started or self._armed

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
        with self._lock:
            following = self._number + 1 if number is None else number
            if self._writer and (following == self._number or self._writer.has_step(following)):
                raise SessionError(
                    f"step {following} is already recorded in {self.path}, and a trace holds each step once. "
                    f"Give the next step a number of its own."
                )
            unused = number is not None and not self._next_call and not self._is_followed and self._withdraw_step()
            self._end_step()
            ending = self._judge_step()
            self._number = following
            self._steps_begun = [following if unused and not self._total else self._steps_begun[0], following]
        if self._running:
            wanted = self._selection.wants_step(self._number)
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
        if not self._wanted_rank or self._halted or not self._selection.wants_step(self._number):
            return
        if _HERE.busy:
            return
        try:
            _HERE.busy = True
            with self._lock:
                self._go_on_without_plan("save")
                call = self._save(str(name), value)
                for slot, tensor in call.outputs if gradients and not self._selection.forward_only else ():
                    undo = self._framework.on_gradient(tensor, self._saved_gradient(call, slot))
                    self._undo_saved.append(undo)
                if not self._armed:  # nobody watches who writes to it
                    self._observer.before_unseen()
        except Exception as error:  # noqa: BLE001 - whatever a user passes must not end the training
            self._trouble(f"save({name!r})", error)
        finally:
            _HERE.busy = False

    def close(self) -> None:
        """Write everything and end the recording; the trace can be opened anywhere.

        Where it goes to another file system, waits for what is on its way, and tells what could not be sent.
        """
        if self._closed:
            return
        self._disarm()
        self._running = False
        if not self._lost and not self._failed:
            self._tell_silence()
        self._closed = True
        ending: TwintraceError | None = None
        try:
            with self._lock:
                self._end_step()
                ending = self._judge_step()
                if self._writer:
                    if self.planner is not None:
                        self.planner.drop()
                    self._observer.forget_all()
                    self._writer.close()
        except TraceWriteError as error:
            self._lose(error)
        finally:
            release(self)
            self._finish_upload()
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
        return not self._closed and self._watch.awaits_gradients()

    @property
    def number(self) -> int:
        """The present step."""
        return self._number

    @property
    def total_calls(self) -> int:
        """Number of calls recorded so far, over all steps."""
        return self._total + (self._next_call or int(self._is_followed))

    def abandon(self) -> None:
        """In a forked child (a data loader's worker): record nothing, touch nothing of the parent's."""
        self._closed = self._lost = self._forked = True
        self._armed = self._running = False
        release(self)
        self._lock = threading.RLock()
        self._watch.stop()
        if self._writer:
            self._writer.abandon()
        if self._uploader is not None:
            self._uploader.abandon()

    # --- the framework's side (Sink) ----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return _HERE.busy

    def enter(
        self,
        kind: Kind,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        phase: Phase = Phase.FORWARD,
        module: ModuleView | None = None,
        mutates: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Open | None:
        here = _HERE
        if here.busy:
            return None
        if self.planner is not None and self.planner.follower is not None:
            self._go_on_without_plan()
        around = self._thread.modules
        depth = len(around)
        try:
            here.busy = True
            with self._lock:
                return self._enter(kind, name, args, kwargs, phase, module, mutates, settings)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble(name, error)
            del around[depth:]
            return None if module is None else self._scope(name, around[-1][1] if around else None, phase)
        finally:
            here.busy = False

    def leave(self, call: Open, output: Any, *, missing: Sequence[str] = ()) -> None:
        here = _HERE
        try:
            here.busy = True
            with self._lock:
                self._leave(call, output, missing)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble(call.name, error)
        finally:
            here.busy = False

    def fail(self, call: Open, error: BaseException) -> None:
        here = _HERE
        try:
            here.busy = True
            with self._lock:
                state: _State = call.state
                self._go_on_without_plan(f"{call.name} raised")
                if call.kind is Kind.MODULE:
                    self._leave_module(call)
                if state.text is not None and state.epoch == self._epoch:
                    raised = encode(text_of(error))
                    self._write(f'{state.text},"out":null,"raised":{raised}')
        except Exception as trouble:  # noqa: BLE001 - a recorder must never end the training
            self._trouble(call.name, trouble)
        finally:
            here.busy = False

    def gradient(self, call: Open, role: Role, slot: str, tensor: Any, count: int = 0) -> None:
        state: _State = call.state
        if state.epoch == self._epoch and (role is not Role.INPUT or not self._selection.flow_only):
            self.write_gradient((call.id, role, slot), tensor, count)

    def parameter_gradient(self, name: str, tensor: Any) -> None:
        if self._sieve.everything or self._wants_parameter(name):
            key = (-1, Role.PARAMETER, name)
            count = self._passes.get(name, 0)
            self._passes[name] = count + 1
            self.write_gradient(key, tensor, count)

    def forget(self, tensors: Sequence[Any]) -> None:
        if self._writer:
            with self._lock:
                if self.planner is not None:
                    if self.planner.follower is not None and self.planner.follower.forget(tensors):
                        return
                    if self.planner.draft is not None:
                        self.planner.draft.forgot(tensors)
                self._observer.forget(tensors)

    def remember(self, tensors: Sequence[Any], witness: Any) -> None:
        if self._writer:
            with self._lock:
                self._observer.remember(tensors, witness)

    @property
    def waits(self) -> bool:
        return self._writer is not None and self._observer.waiting

    def before_write(self, tensors: Iterable[Any]) -> None:
        if self.waits:
            found = list(tensors)
            if self._observer.holds(found):
                self._quietly(lambda: self._observer.before_write(found))

    def before_unseen(self) -> None:
        if self.waits:
            self._quietly(self._observer.before_unseen)

    def unseen(self) -> contextlib.AbstractContextManager[None]:
        return unseen()

    def forget_everything(self) -> None:
        if self._writer:
            with self._lock:
                self._go_on_without_plan("a graph's replay")
                self._observer.forget_everything()

    def _quietly(self, work: Callable[[], None]) -> None:
        """Work on a device at the recorder's own wish is not reported, and raises only where the user wants that."""
        here = _HERE
        before = here.busy
        here.busy = True
        try:
            with self._lock:
                work()
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("device", error)
        finally:
            here.busy = before

    def take_kernels(self, folder: Path) -> None:
        here = _HERE
        if here.busy or self._lost or self._closed:
            return
        try:
            here.busy = True
            with self._lock:
                self._go_on_without_plan("kernels of a compiled graph")
                for kernel in kernels_in(folder, self._observer.take):
                    self._take_kernel(kernel)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("kernels", error)
        finally:
            here.busy = False

    def stranger(self, kind: str) -> None:
        if len(self._strangers) < _STRANGERS:
            self._strangers[kind] = None

    def note(self, topic: str, text: str, *, quiet: bool = False) -> None:
        if not quiet:
            self._complaints.tell(f"{topic}: {text}", key=topic)
        with self._lock:
            self._note_in_journal(topic, text)

    # --- one call -----------------------------------------------------------------------------------------------

    def _enter(
        self,
        kind: Kind,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        phase: Phase,
        module: ModuleView | None,
        mutates: Sequence[str],
        settings: Mapping[str, Any] | None,
    ) -> Open | None:
        around = self._thread.modules
        path, up = around[-1] if around else ("", None)
        if module is not None:
            self._model_called = True
            self._sieve.enter_module(name)
            if self._lost or self._level in (Level.API, Level.OP):
                return self._scope(name, up, phase)
        counts = self._counts[phase, kind]
        number = counts.get(name, 0)
        counts[name] = number + 1
        if self._lost or not (
            self._sieve.everything
            or self._sieve.wants(Site(kind, name, number, phase, path, module.type if module else ""))
        ):
            return self._scope(name, up, phase) if module is not None else None
        if self._journal is None:
            self._open_journal()
        identity = self._next_call
        self._next_call = identity + 1
        found: list[tuple[str, Any]] = []
        wants_gradients = not (self._selection.forward_only or self._selection.inputs_only)
        text = self._start_call(identity, kind, name, number, phase, path, up)
        state = _State(self._epoch, None, len(around), mutates)
        call = Open(identity, kind, name, phase, found, [], wants_gradients, state)
        precision = self._framework.precision()
        if precision is not self._precision:
            text += self._precision_text(precision)
        if module is not None:
            around.append((name, identity))
            text += self._module_text(module)
        elif settings:
            text += f',"config":{self._configurations.number_of_settings(name, settings, self._open_journal())}'
        flatten = self._flattener.flatten
        inputs = ",".join([flatten(value, str(i), found) for i, value in enumerate(args)])
        named = ""
        if kwargs:
            named = ",".join([f"{encode(key)}:{flatten(value, f'kw.{key}', found)}" for key, value in kwargs.items()])
        text += f',"in":[{inputs}],"kw":{{{named}}},"stack":{self._stacks.capture(3)}'
        state.text = f'{text},"mutates":{encode(list(mutates))}' if mutates else text
        if self._nonfinite is not None and mutates and phase is not Phase.UPDATE:
            self._copy_before(state, found)
        return call

    def _start_call(
        self, identity: int, kind: Kind, name: str, number: int, phase: Phase, path: str, up: int | None
    ) -> str:
        texts = self._texts
        return (
            f'{{"k":"call","id":{identity},"kind":"{kind}","name":{texts[name]},"n":{number},"phase":"{phase}",'
            f'"path":{texts[path]},"up":{"null" if up is None else up}'
        )

    def _precision_text(self, settings: Mapping[str, Any]) -> str:
        """The settings of a call that are not those of the journal."""
        known = self._precisions.get(id(settings))
        if known is None or known[0] is not settings:
            nothing = object()
            other = {name: value for name, value in settings.items() if self._precision.get(name, nothing) != value}
            text = f',"precision":{encode(other)}' if other else ""
            known = self._precisions[id(settings)] = settings, text
        return known[1]

    def _scope(self, path: str, up: int | None, phase: Phase) -> Open:
        """A module that is not recorded itself: its calls still learn where they are."""
        around = self._thread.modules
        call = Open(-1, Kind.MODULE, path, phase, [], wants_gradients=False)
        call.state = _State(self._epoch, None, len(around))
        around.append((path, up))
        return call

    def _leave(self, call: Open, output: Any, missing: Sequence[str]) -> None:
        state: _State = call.state
        if call.kind is Kind.MODULE:
            self._leave_module(call)
        if state.text is None or state.epoch != self._epoch:
            return
        if state.mutates:
            is_written = _within(state.mutates)
            self._observer.forget([tensor for slot, tensor in call.inputs if is_written(slot)], call.id)
        before = self._observer.count
        if self._selection.inputs_only:
            text = f'{state.text},"out":{text_token("unrecorded", "only inputs were asked for")}'
        else:
            self._observer.producer = call.id
            try:
                text = f'{state.text},"out":{self._flattener.flatten(output, "", call.outputs)}'
                if state.mutates:
                    text += self._mutated_text(call, state.mutates)
            finally:
                self._observer.producer = None
        if missing:
            text += f',"missing":{encode(list(missing))}'
        state.written = text
        self._write(text)
        if self._nonfinite is not None and self._nonfinite.counts:
            self._look_at_results(call, state, before)
        if self._lockstep is not None:
            if self._lockstep.call(call.id, state.text, text):
                self._keep_around(APART, call, state)
            self._tell_apart(self._lockstep)

    def _leave_module(self, call: Open) -> None:
        # All above too: a module inside that was left past its end may still be there.
        del self._thread.modules[call.state.depth :]
        self._sieve.leave_module(call.name)

    def _mutated_text(self, call: Open, mutates: Sequence[str]) -> str:
        """Arguments that were written to and are not returned (`out=`, collectives): their new values are results too."""
        returned = {id(tensor) for _, tensor in call.outputs}
        is_written = _within(mutates)
        after = {
            slot: self._observe(tensor)
            for slot, tensor in call.inputs
            if id(tensor) not in returned and is_written(slot)
        }
        return f',"after":{encode(after)}' if after else ""

    def _take_kernel(self, kernel: Kernel) -> None:
        """A kernel that ran inside a compiled graph: below the module that the graph was run in, as deep as its scope says."""
        around = self._thread.modules
        path, up = around[-1] if around else ("", None)
        site = kernel.site
        inside = ".".join(filter(None, (path, site.path)))
        counts = self._counts[site.phase, site.kind]
        number = counts.get(site.name, 0)
        counts[site.name] = number + 1
        if not self._sieve.everything and not self._sieve.wants(
            Site(site.kind, site.name, number, site.phase, inside, site.type)
        ):
            return
        journal = self._open_journal()
        identity = self._next_call
        self._next_call = identity + 1
        text = self._start_call(identity, site.kind, site.name, number, site.phase, inside, up)
        config = self._configurations.add(inside, site.type, kernel.settings, journal)
        text += f',"type":{encode(site.type)},"config":{config},"in":{kernel.inputs()},"kw":{{}}'
        text += f',"stack":{self._stacks.capture(3)}'
        self._observer.producer = identity
        try:
            unrecorded = text_token("unrecorded", "only inputs were asked for")
            text += f',"out":{unrecorded if self._selection.inputs_only else kernel.output()}'
        finally:
            self._observer.producer = None
        self._write(text)

    def _save(self, name: str, value: Any) -> Open:
        self._open_journal()
        counts = self._counts[Phase.FORWARD, Kind.SAVE]
        number = counts.get(name, 0)
        counts[name] = number + 1
        around = self._thread.modules
        path, up = around[-1] if around else ("", None)
        call = Open(self._next_call, Kind.SAVE, name, Phase.FORWARD, [])
        self._next_call += 1
        call.state = _State(self._epoch, None, len(around))
        text = self._start_call(call.id, Kind.SAVE, name, number, Phase.FORWARD, path, up)
        value_text = self._flattener.flatten(value, "", call.outputs)
        self._write(f'{text},"in":[],"kw":{{}},"stack":{self._stacks.capture(3)},"out":{value_text}')
        return call

    def _saved_gradient(self, call: Open, slot: str) -> Callable[[Any], None]:
        count = itertools.count()
        return lambda tensor: self.gradient(call, Role.SAVED, slot, tensor, next(count))

    # --- values to keep -----------------------------------------------------------------------------------------

    def _copy_before(self, state: _State, inputs: Sequence[tuple[str, Any]]) -> None:
        """Arguments that are about to be written to: their values are gone afterwards."""
        is_written = _within(state.mutates)
        for slot, tensor in inputs:
            if is_written(slot):
                value = self._small_value(tensor)
                if value is not None:
                    state.before[slot] = value[0], value[1].copy()

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

    def _look_at_results(self, call: Open, state: _State, before: int) -> None:
        assert self._nonfinite is not None
        assert state.text is not None
        fresh = self._nonfinite.fresh(before)
        if not fresh or not self._nonfinite.is_origin(state.text, fresh) or not self._nonfinite.may_keep():
            return
        self._keep_around(NONFINITE, call, state)
        if self._nonfinite.tells_now(fresh):
            self._tell_nonfinite(f"{call.name or 'the model'} made NaN out of values without NaN")

    def _keep_around(self, kept: str, call: Open, state: _State) -> None:
        """The values that a call took and gave."""
        values: list[tuple[str, tuple[Any, Any] | None]] = [(f"input {slot}", v) for slot, v in state.before.items()]
        values += [(f"input {slot}", self._small_value(t)) for slot, t in call.inputs if slot not in state.before]
        values += [(f"output {slot or '0'}", self._small_value(tensor)) for slot, tensor in call.outputs]
        for name, value in values:
            if value is not None:
                self._keep_value(f"{kept}{call.name} {name}", *value)

    def _look_at_gradient(self, tensor: Any, before: int) -> None:
        assert self._nonfinite is not None
        fresh = self._nonfinite.fresh(before)
        if fresh and len(fresh) == len(self._nonfinite.counts) and self._nonfinite.may_keep():
            value = self._small_value(tensor)
            if value is not None:
                self._keep_value(f"{NONFINITE}gradient", *value)
            if self._nonfinite.tells_now(fresh):
                self._tell_nonfinite("a gradient is NaN")

    def _keep_value(self, name: str, look: Any, array: Any) -> None:
        """A value as if the user had saved it, with its bytes; at the end of the step, so that the numbers of calls and tensors are
        those of a run in which nothing was kept.
        """
        self._kept.append((name, look, array.copy(), self._stacks.capture(3)))

    def _write_kept(self) -> None:
        kept, self._kept = self._kept, []
        counts = self._counts[Phase.FORWARD, Kind.SAVE]
        for name, look, array, stack in kept:
            number = self._observer.keep_value(look, array)
            count = counts.get(name, 0)
            counts[name] = count + 1
            identity = self._next_call
            self._next_call += 1
            text = self._start_call(identity, Kind.SAVE, name, count, Phase.FORWARD, "", None)
            self._write(f'{text},"in":[],"kw":{{}},"stack":{stack},"out":{{"$t":{number}}}')

    def _tell_nonfinite(self, text: str) -> None:
        self._complaints.tell(
            f"step {self._number}: {text}; whether it has an effect is seen at the end of the step", key="nan"
        )

    def _tell_apart(self, lockstep: Lockstep) -> None:
        if lockstep.first:
            self._complaints.tell(
                f"step {self._number} differs from {lockstep.other.path}, first seen at: {lockstep.first}; "
                f"whether it has an effect is seen at the end of the step",
                key="apart",
            )

    def _judge_step(self) -> TwintraceError | None:
        """The reason why recording ends with the step that has just ended, where what was watched for is in it."""
        if self._writer is None or self._lost or self._halted:
            return None
        try:
            with unseen():
                if self._nonfinite is not None:
                    found = self._nonfinite.judge(self.path, self._number, self._rank)
                    if found:
                        return NonfiniteError(f"{found}. More: twintrace why-nan {self.path}")
                if self._lockstep is not None:
                    found = self._lockstep.judge(self.path, self._number, self._rank)
                    if found:
                        runs = f"{self._lockstep.other.path} {self.path}"
                        return DifferenceError(f"{found}. More: twintrace compare {runs}; twintrace zoom {runs}")
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("what was watched for", error)
        return None

    def _halt(self, ending: TwintraceError | None) -> None:
        """Recording ends here: what comes after a NaN is NaN, and after a difference all is different."""
        if ending is None or self._halted:
            return
        self._halted = True
        self._disarm()
        watch = self._nonfinite if isinstance(ending, NonfiniteError) else self._lockstep
        if watch is not None and watch.raises and not self._failed:
            raise ending
        self._complaints.tell(f"recording has ended: {ending}", key="ended")

    # --- lines --------------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        journal = self._journal or self._open_journal()
        journal.add(seal_text(text))
        self._commit(journal)

    def write_gradient(self, key: tuple[int, Role, str], tensor: Any, count: int) -> None:
        """A gradient, of a call or (-1) of a parameter, and how many came before it."""
        here = _HERE
        if here.busy or self._lost or self._closed:
            return
        of, role, slot = key
        owner = f'"of":{of},' if of >= 0 else ""
        text = f'{{"k":"grad",{owner}"role":"{role}","slot":{self._texts[slot]}'
        try:
            here.busy = True
            with self._lock:
                if self.planner is not None and self.planner.follower is not None:
                    self.planner.depart()
                journal = self._journal or self._open_journal()
                before = self._observer.count
                number = self._observe(tensor)
                line = f'{text},"t":{number},"n":{count}'
                journal.add(seal_text(line))
                self._commit(journal)
                if self.planner is not None and self.planner.draft is not None:
                    self.planner.draft.gradient(key, tensor)
                if self._nonfinite is not None and self._nonfinite.counts:
                    self._look_at_gradient(tensor, before)
                if self._lockstep is not None:
                    value = self._small_value(tensor) if self._lockstep.gradient(line, number) else None
                    if value is not None:
                        self._keep_value(f"{APART}gradient", *value)
                    self._tell_apart(self._lockstep)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("gradient", error)
        finally:
            here.busy = False

    def _commit(self, journal: Lines) -> None:
        try:
            journal.commit()
        except TraceWriteError as error:
            self._lose(error)
            return
        if self._gaps:
            self._tell_gaps()
        trouble = self._observer.payload_trouble
        if trouble is not None and "payload" not in self._complaints:
            self.note("payload", str(trouble))
            if self._strict:
                raise trouble

    def _tell_gaps(self) -> None:
        """Tells the user of the first value that could not be kept; each is in its record, and a strict session raises."""
        gaps = [(topic, text) for topic, text in self._gaps.items() if topic not in self._complaints]
        self._gaps.clear()
        for topic, text in gaps:
            if self._strict:
                self._note_in_journal(topic, text)
                raise TraceWriteError(f"{text}. Record without strict=True to go on without it.")
            self.note(topic, text)

    def _write_stack(self, number: int, frames: str) -> None:
        self._open_journal().add(seal_text(f'{{"k":"stack","id":{number},"frames":{frames}'))

    def _module_text(self, module: ModuleView) -> str:
        text = f',"type":{encode(module.type)},"config":{self._configurations.number_of(module, self._open_journal())}'
        if self._selection.flow_only:
            return text
        for field, tensors in (("params", module.own_parameters()), ("buffers", module.own_buffers())):
            if tensors:
                text += f',"{field}":{encode({name: self._observe(tensor) for name, tensor in tensors.items()})}'
        return text

    def _note_in_journal(self, topic: str, text: str) -> None:
        if (topic, text) in self._noted or self._lost or self._closed or self._journal is None:
            return
        self._go_on_without_plan("a note")
        self._noted.add((topic, text))
        self._journal.add(seal({"k": "note", "topic": topic, "text": text}))
        self._commit(self._journal)

    # --- steps --------------------------------------------------------------------------------------------------

    def _open_journal(self) -> Lines:
        """The present step's journal; made when the step's first record comes."""
        if self._journal is None:
            assert self._writer is not None
            header = {
                "rank": self._rank,
                "world": self._world,
                "framework": self._framework.name,
                "settings": self._settings,
                **self._surroundings(),
            }
            self._precision = self._framework.precision()
            self._precisions.clear()
            if self._precision:
                header["precision"] = dict(self._precision)
            journal = self._writer.begin_step(self._number, header)
            self._journal = journal if isinstance(journal, Journal) else HeldLines(journal)
            self._observer.begin(self._journal)
            if self._nonfinite is not None:
                self._nonfinite.begin()
            if self._lockstep is not None:
                why = self._lockstep.begin(self._number, self._rank)
                if why:
                    self._complaints.tell(why, key="lockstep")
            carried, self._carried = self._carried, []
            for topic, text in carried:
                self._note_in_journal(topic, text)
            if self.planner is not None:
                self.planner.journal_opened()
        return self._journal

    def _surroundings(self) -> dict[str, Wire]:
        try:
            groups = [list(group) for group in self._framework.groups()]
            return {"environment": dict(self._framework.environment()), "groups": groups}
        except Exception as error:  # noqa: BLE001 - what a framework says of itself is not worth a training
            self._trouble("environment", error)
            return {"environment": {}, "groups": []}

    def _withdraw_step(self) -> bool:
        """Take the journal of a step back in which there is nothing but its head and notes, which go into the next."""
        if self._journal is None or self._observer.count or not isinstance(self._writer, TraceWriter):
            return False
        self._carried = [note for note in self._noted if note not in self._carried] + self._carried
        self._writer.withdraw_step()
        self._observer.end()
        self._journal = None
        return True

    def _end_step(self) -> None:
        self._watch.end_step()
        while self._undo_saved:
            self._undo_saved.pop()()
        self._epoch += 1
        if self._journal is not None and self._writer is not None:
            try:
                if not self._end_followed():
                    with unseen():
                        self._settle()
                    if self._lockstep is not None:
                        self._lockstep.end()
                    self._write_kept()
                    if not self._lost:  # a journal with a gap does not call itself complete
                        self._journal.add(seal({"k": "end", "calls": self._next_call, "tensors": self._observer.count}))
                    self._writer.end_step()
            except TraceWriteError as error:
                self._lose(error)
            self._observer.end()
            self._journal = None
            if self.planner is not None and isinstance(self._writer, TraceWriter):
                self.planner.step_ended(self._writer.pattern)
        self._total += self._next_call
        self._next_call = 0
        for counts in self._counts.values():
            counts.clear()
        if self._writer is not None:
            self._configurations.reset()
        self._noted.clear()
        self._passes.clear()
        self._stacks.reset()
        self._sieve.reset()
        if self.planner is not None and not self._closed:
            self.planner.expect_step()

    # --- steps that follow a plan (plans.py) --------------------------------------------------------------------------

    @property
    def _is_followed(self) -> bool:
        return self.planner is not None and self.planner.is_followed

    def _end_followed(self) -> bool:
        """Ends the journal of a step that was as planned; False: it is to be ended like any other."""
        if self.planner is None or not self._is_followed or self._lost:
            return False
        try:
            with unseen():
                ended = self.planner.finish()
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("plan", error)
            return False
        if ended is None:
            return False
        assert isinstance(self._writer, TraceWriter)
        self._next_call = ended[0].calls
        self._writer.end_step_as(*ended)
        return True

    def _go_on_without_plan(self, why: str = "") -> None:
        """Something comes that no plan has: what was followed is written, and no plan is made of this step."""
        if self.planner is None:
            return
        if self.planner.follower is not None:
            here = _HERE
            before = here.busy
            here.busy = True
            try:
                with self._lock:
                    self.planner.depart()
            except Exception as error:  # noqa: BLE001 - a recorder must never end the training
                self._trouble("plan", error)
            finally:
                here.busy = before
        if why:
            self.planner.spoil(why)

    def mark(self) -> Mark:
        journal: Any = self._journal
        return Mark(
            0 if journal is None else journal.count,
            self._next_call,
            self._observer.count,
            self._stacks.count,
            self._configurations.count,
        )

    def modules_around(self) -> list[tuple[str, int | None]]:
        return self._thread.modules

    def open_followed(self) -> bool:
        if self._lost or self._closed or self._halted:
            return False
        self._open_journal()
        self._model_called = True
        return self.mark().lines == 1

    def precision(self) -> Any:
        return self._precision

    def snapshot(self) -> Any:
        return self._stacks.numbers(), self._configurations.numbers()

    def go_on_from(
        self,
        mark: Mark,
        calls: Iterable[tuple[Phase, Kind, str]],
        passes: Mapping[str, int],
        snapshot: Any,
        lines: Iterable[str],
    ) -> None:
        assert self._journal is not None
        for line in lines:
            self._journal.add(seal_text(line))
        self._journal.commit()
        self._next_call = mark.calls
        for phase, kind, name in calls:
            counts = self._counts[phase, kind]
            counts[name] = counts.get(name, 0) + 1
        self._passes = dict(passes)
        self._stacks.go_on_from(snapshot[0], mark.stacks)
        self._configurations.go_on_from(snapshot[1], mark.configurations)

    def reopen(self, event: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Open:
        """A call that was planned when it was entered, and ends otherwise."""
        found: list[tuple[str, Any]] = []
        state = _State(self._epoch, None, event.depth, event.mutates)
        if event.id >= 0 and self.planner is not None:
            state.text = self.planner.text_of(event)
            flatten = Flattener(self._framework, lambda tensor: 0).flatten
            for i, value in enumerate(args):
                flatten(value, str(i), found)
            for key, value in kwargs.items():
                flatten(value, f"kw.{key}", found)
        return Open(event.id, event.sort, event.name, event.phase, found, [], event.id >= 0, state)

    def trouble(self, where: str, error: Exception) -> None:
        self._trouble(where, error)

    def _settle(self) -> None:
        """The lines of tensors on a device, once the device has told of them."""
        try:
            self._observer.settle()
            if self._journal is not None and not self._lost:
                self._commit(self._journal)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._trouble("device", error)

    def _arm(self) -> None:
        if not (self._wanted_rank and not self._lost and not self._halted and self._selection.wants_step(self._number)):
            return
        try:
            if self._journal is None:
                self._open_journal()
            else:  # calls may have gone unseen since stop()
                if self._is_followed:
                    self._go_on_without_plan("stopped in between")
                self._observer.look_again()
        except TraceWriteError as error:
            self._lose(error)
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

    def _wants_parameter(self, name: str) -> bool:
        if self._selection.forward_only or self._selection.inputs_only or self._selection.flow_only:
            return False
        owner = name.rpartition(".")[0]
        try:
            return self._sieve.wants_parameter(Site(Kind.MODULE, owner, 0, Phase.BACKWARD, owner))
        except Exception as error:  # noqa: BLE001 - the user's predicate may raise anything
            self._trouble(f"parameter {name}", error)
            return False

    def _tell_silence(self) -> None:
        """A record with nothing in it, or with less than was asked for, is told: silence would read as agreement."""
        if not self._wanted_rank:
            wanted = self._selection.ranks or ()
            if not any(rank < self._world for rank in wanted) and self._rank == 0:
                there = "rank 0 alone" if self._world == 1 else f"the ranks 0 to {self._world - 1}"
                self._complaints.tell(
                    f"nothing was recorded: ranks={sorted(wanted)}, and the run has {there}", key="nothing"
                )
            return
        if self._selection.steps is not None and not self._selection.steps:
            return  # nothing was asked for
        idle = self._sieve.without_effect() if self._started else []
        others = ", ".join(self._strangers)
        if self.total_calls:
            if self._given and self._strangers and not self._model_called:
                idle.append(
                    f"no module of the model was called, but others were ({others}): was it given the model that runs?"
                )
            for text in idle:
                self._complaints.tell(text, key=text)
            return
        if self._complaints.beside("compiled"):
            return  # what went wrong was told
        if not self._begun:
            why = "the recorder was never started. Use it with `with`, or call start()"
        elif not self._started:
            first, last = self._steps_begun[0], self._steps_begun[-1]
            ran = f"step {first} ran" if first == last else f"the steps {first} to {last} ran"
            why = f"{ran}, and none of them is among steps={sorted(self._selection.steps or ())[:8]}"
        elif not self._model_called and self._strangers:
            why = f"no module of the model was called, but others were ({others}). Give tt.record the model that runs"
        elif not self._sieve.everything:
            why = f"no call fits the selection ({'; '.join(idle) or 'names, between, first, predicate'})"
        elif "compiled" in self._complaints:
            why = "what ran was compiled, and cannot be seen from inside"
        elif self._given and not self._model_called:
            why = "the model was not called between start() and stop()"
        else:
            why = "nothing was called between start() and stop()"
        self._complaints.tell(f"nothing was recorded: {why}", key="nothing")

    def _finish_upload(self) -> None:
        uploader, self._uploader = self._uploader, None
        if uploader is None:
            return
        left = uploader.finish()
        if left is not None:
            self._complaints.tell(f"upload: {left}", key="left")

    # --- trouble ------------------------------------------------------------------------------------------------

    def _is_open(self, verb: str) -> bool:
        """False in a forked child, where a recorder does nothing; a closed one raises."""
        if self._closed and not self._forked:
            raise SessionError(
                f"{verb}() on a recorder that is closed. Make a new one with tt.record and another path."
            )
        return not self._forked

    def _lose(self, error: TraceWriteError) -> None:
        """The journal itself cannot be written: nothing more can be said on disk, so it is said once, here."""
        if self._strict:
            raise error
        if not self._lost:
            self._lost = True
            self._complaints.tell(f"recording has ended: {error}", key="lost")

    def _trouble(self, where: str, error: Exception) -> None:
        """Something went wrong in the recorder: raise if the user wants that, otherwise say it once and go on."""
        if isinstance(error, Unobserved) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if self._strict:
            raise error
        if isinstance(error, TraceWriteError) and self._journal is None:  # not even a step can be begun
            self._lose(error)
            return
        text = f"{where or 'the model'}: could not be recorded ({text_of(error)})"
        self._complaints.tell(
            f"{text}. Further failures of this kind are only noted in the trace.", key=type(error).__name__
        )
        with self._lock:
            self._note_in_journal("unrecorded", text)


def _within(places: Sequence[str]) -> Callable[[str], bool]:
    """Says of a slot whether it is one of these places, or inside one."""
    inside = tuple(f"{place}." for place in places)
    return lambda slot: slot in places or slot.startswith(inside)
