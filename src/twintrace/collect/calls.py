"""Calls as a framework reports them, written down as lines of the present step's journal.

    call = recorder.enter(Kind.FUNCTION, "torch.add", (x, y), {})     the line's beginning: name, place, arguments, stack
    recorder.leave(call, z)                                           its end: results; the line is in the journal
    recorder.gradient(call, Role.INPUT, "0", g)                       a line of its own

Whatever goes wrong in here is told to the user once and noted in the journal; the training goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..frameworks.protocol import Framework, ModuleView, Open
from ..model.records import Level, Role
from ..model.sites import Kind, Phase, Site
from ..model.words import dotted, error_text
from ..store.lines import encode, seal_text, text_token
from .activity import Activity
from .flatten import Flattener
from .journals import Journals
from .kernels import Kernel, kernels_in
from .numbering import CallState
from .plans import Mark, Planner
from .processes import HERE, unseen
from .selection import Selection, Sieve

_ONLY_INPUTS = text_token("unrecorded", "only inputs were asked for")


class _Thread(threading.local):
    """State of one thread of one session: the modules around it."""

    def __init__(self) -> None:
        self.modules: list[tuple[str, int | None]] = []  # (path, id of the nearest recorded module)

    def place(self) -> tuple[str, int | None]:
        """Path of the innermost module, and the nearest recorded one."""
        return self.modules[-1] if self.modules else ("", None)


class CallRecorder:
    """A framework's `Sink`: hears of calls, decides which are wanted, writes them down."""

    _flattener: Flattener

    def __init__(
        self, framework: Framework, models: Sequence[str], level: Level, selection: Selection, journals: Journals
    ) -> None:
        self._framework, self._level, self._journals = framework, level, journals
        self._selection, self._sieve = selection, Sieve(selection)
        self._activity = Activity(selection, models)
        self._thread = _Thread()

    # --- the framework's side (Sink) ----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return HERE.busy

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
        here = HERE
        if here.busy:
            return None
        journals = self._journals
        if journals.planner is not None and journals.planner.follower is not None:
            journals.leave_plan()
        around = self._thread.modules
        depth = len(around)
        try:
            here.busy = True
            with journals.lock:
                return self._enter(kind, name, args, kwargs, phase, module, mutates, settings)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            journals.trouble(name, error)
            del around[depth:]
            return None if module is None else self._scope(name, self._thread.place()[1], phase)
        finally:
            here.busy = False

    def leave(self, call: Open, output: Any, *, missing: Sequence[str] = ()) -> None:
        here = HERE
        try:
            here.busy = True
            with self._journals.lock:
                self._leave(call, output, missing)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            self._journals.trouble(call.name, error)
        finally:
            here.busy = False

    def fail(self, call: Open, error: BaseException) -> None:
        with self._journals.recording(call.name):
            state: CallState = call.state
            self._journals.leave_plan(f"{call.name} raised")
            if call.kind is Kind.MODULE:
                self._leave_module(call)
            if state.text is not None and state.epoch == self._journals.epoch:
                self._journals.write(f'{state.text},"out":null,"raised":{encode(error_text(error))}')

    def gradient(self, call: Open, role: Role, slot: str, tensor: Any, count: int = 0) -> None:
        state: CallState = call.state
        if state.epoch == self._journals.epoch and (role is not Role.INPUT or not self._selection.flow_only):
            self.write_gradient((call.id, role, slot), tensor, count)

    def parameter_gradient(self, name: str, tensor: Any) -> None:
        if self._sieve.everything or self._wants_parameter(name):
            count = self._journals.numbering.count_pass(name)
            self.write_gradient((-1, Role.PARAMETER, name), tensor, count)

    def forget(self, tensors: Sequence[Any]) -> None:
        journals = self._journals
        if journals.writer:
            with journals.lock:
                if journals.planner is not None:
                    if journals.planner.follower is not None and journals.planner.follower.forget(tensors):
                        return
                    if journals.planner.draft is not None:
                        journals.planner.draft.forgot(tensors)
                journals.observer.forget(tensors)

    def remember(self, tensors: Sequence[Any], witness: Any) -> None:
        if self._journals.writer:
            with self._journals.lock:
                self._journals.observer.remember(tensors, witness)

    @property
    def waits(self) -> bool:
        return self._journals.writer is not None and self._journals.observer.waiting

    def before_write(self, tensors: Iterable[Any]) -> None:
        if self.waits:
            written = list(tensors)
            if self._journals.observer.holds(written):
                with self._journals.recording("device"):
                    self._journals.observer.before_write(written)

    def before_unseen(self) -> None:
        if self.waits:
            with self._journals.recording("device"):
                self._journals.observer.before_unseen()

    def unseen(self) -> AbstractContextManager[None]:
        return unseen()

    def forget_everything(self) -> None:
        if self._journals.writer:
            with self._journals.lock:
                self._journals.leave_plan("a graph's replay")
                self._journals.observer.forget_everything()

    def take_kernels(self, folder: Path) -> None:
        if HERE.busy or self._journals.lost or self._journals.closed:
            return
        with self._journals.recording("kernels"):
            self._journals.leave_plan("kernels of a compiled graph")
            for kernel in kernels_in(folder, self._journals.observer.take):
                self._take_kernel(kernel)

    def stranger(self, kind: str) -> None:
        self._activity.stranger(kind)

    def note(self, topic: str, text: str, *, quiet: bool = False) -> None:
        if quiet:
            self._journals.note(topic, text)
        else:
            self._journals.tell(topic, text)

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
        journals, numbering = self._journals, self._journals.numbering
        around = self._thread.modules
        path, up = around[-1] if around else ("", None)
        if module is not None:
            self._activity.model_called = True
            self._sieve.enter_module(name)
            if journals.lost or self._level in (Level.API, Level.OP):
                return self._scope(name, up, phase)
        number = numbering.count(kind, name, phase)
        if journals.lost or not (
            self._sieve.everything
            or self._sieve.wants(Site(kind, name, number, phase, path, module.type if module else ""))
        ):
            return self._scope(name, up, phase) if module is not None else None
        journal = journals.present or journals.open()
        identity, text = numbering.begin(kind, name, number, phase, path, up)
        inputs: list[tuple[str, Any]] = []
        wants_gradients = not (self._selection.forward_only or self._selection.inputs_only)
        state = CallState(journals.epoch, None, len(around), mutates)
        call = Open(identity, kind, name, phase, inputs, [], wants_gradients, state)
        precision = self._framework.precision()
        if precision is not numbering.precision:
            text += numbering.precision_text(precision)
        if module is not None:
            around.append((name, identity))
            config = numbering.configurations.number_of(module, journal)
            text += f',"type":{encode(module.type)},"config":{config}'
            if not self._selection.flow_only:
                observe = journals.observer.observe
                for field, tensors in (("params", module.own_parameters()), ("buffers", module.own_buffers())):
                    if tensors:
                        text += f',"{field}":{encode({key: observe(tensor) for key, tensor in tensors.items()})}'
        elif settings:
            text += f',"config":{numbering.configurations.number_of_settings(name, settings, journal)}'
        flatten = self._flattener.flatten
        positional = ",".join([flatten(value, str(i), inputs) for i, value in enumerate(args)])
        named = ""
        if kwargs:
            named = ",".join([f"{encode(key)}:{flatten(value, f'kw.{key}', inputs)}" for key, value in kwargs.items()])
        text += f',"in":[{positional}],"kw":{{{named}}},"stack":{numbering.stacks.capture(3)}'
        state.text = f'{text},"mutates":{encode(list(mutates))}' if mutates else text
        if mutates and journals.alarms is not None:
            journals.alarms.call_begins(phase, state, inputs)
        return call

    def _scope(self, path: str, up: int | None, phase: Phase) -> Open:
        """A module that is not recorded itself: its calls still learn where they are."""
        around = self._thread.modules
        call = Open(-1, Kind.MODULE, path, phase, [], wants_gradients=False)
        call.state = CallState(self._journals.epoch, None, len(around))
        around.append((path, up))
        return call

    def _leave(self, call: Open, output: Any, missing: Sequence[str]) -> None:
        state: CallState = call.state
        journals, observer = self._journals, self._journals.observer
        if call.kind is Kind.MODULE:
            self._leave_module(call)
        if state.text is None or state.epoch != journals.epoch:
            return
        written = state.mutated(call.inputs) if state.mutates else []
        if state.mutates:
            observer.forget([tensor for _, tensor in written], call.id)
        before = observer.count
        if self._selection.inputs_only:
            text = f'{state.text},"out":{_ONLY_INPUTS}'
        else:
            observer.producer = call.id
            try:
                text = f'{state.text},"out":{self._flattener.flatten(output, "", call.outputs)}'
                # What was written to and is not returned (`out=`, collectives) has new values, which are results too.
                returned = {id(tensor) for _, tensor in call.outputs} if written else ()
                after = {slot: observer.observe(tensor) for slot, tensor in written if id(tensor) not in returned}
                if after:
                    text += f',"after":{encode(after)}'
            finally:
                observer.producer = None
        if missing:
            text += f',"missing":{encode(list(missing))}'
        state.written = text
        journals.write(text)
        if journals.alarms is not None:
            journals.alarms.call_ended(call, text, before)

    def _leave_module(self, call: Open) -> None:
        # All above too: a module inside that was left past its end may still be there.
        del self._thread.modules[call.state.depth :]
        self._sieve.leave_module(call.name)

    def _take_kernel(self, kernel: Kernel) -> None:
        """A kernel that ran inside a compiled graph: below the module that the graph was run in, as deep as its scope says."""
        journals, numbering = self._journals, self._journals.numbering
        path, up = self._thread.place()
        site = kernel.site
        inside = dotted(path, site.path)
        number = numbering.count(site.kind, site.name, site.phase)
        if not self._sieve.everything and not self._sieve.wants(
            Site(site.kind, site.name, number, site.phase, inside, site.type)
        ):
            return
        journal = journals.open()
        identity, text = numbering.begin(site.kind, site.name, number, site.phase, inside, up)
        config = numbering.configurations.add(inside, site.type, kernel.settings, journal)
        text += f',"type":{encode(site.type)},"config":{config},"in":{kernel.inputs()},"kw":{{}}'
        text += f',"stack":{numbering.stacks.capture(3)}'
        journals.observer.producer = identity
        try:
            text += f',"out":{_ONLY_INPUTS if self._selection.inputs_only else kernel.output()}'
        finally:
            journals.observer.producer = None
        journals.write(text)

    def _wants_parameter(self, name: str) -> bool:
        if self._selection.forward_only or self._selection.inputs_only or self._selection.flow_only:
            return False
        owner = name.rpartition(".")[0]
        try:
            return self._sieve.wants_parameter(Site(Kind.MODULE, owner, 0, Phase.BACKWARD, owner))
        except Exception as error:  # noqa: BLE001 - the user's predicate may raise anything
            self._journals.trouble(f"parameter {name}", error)
            return False

    def write_gradient(self, key: tuple[int, Role, str], tensor: Any, count: int) -> None:
        """A gradient, of a call or (-1) of a parameter, and how many came before it."""
        here, journals = HERE, self._journals
        if here.busy or journals.lost or journals.closed:
            return
        of, role, slot = key
        owner = f'"of":{of},' if of >= 0 else ""
        text = f'{{"k":"grad",{owner}"role":"{role}","slot":{journals.numbering.texts[slot]}'
        try:
            here.busy = True
            with journals.lock:
                planner = journals.planner
                if planner is not None and planner.follower is not None:
                    planner.depart()
                journal = journals.present or journals.open()
                before = journals.observer.count
                number = journals.observer.observe(tensor)
                line = f'{text},"t":{number},"n":{count}'
                journal.add(seal_text(line))
                journals.commit(journal)
                if planner is not None and planner.draft is not None:
                    planner.draft.gradient(key, tensor)
                if journals.alarms is not None:
                    journals.alarms.gradient_came(tensor, line, number, before)
        except Exception as error:  # noqa: BLE001 - a recorder must never end the training
            journals.trouble("gradient", error)
        finally:
            here.busy = False

    # --- steps that follow a plan (plans.py: Recording) ---------------------------------------------------------------

    @property
    def planner(self) -> Planner | None:
        """Holds steps that repeat against a plan."""
        return self._journals.planner

    def mark(self) -> Mark:
        journal: Any = self._journals.present
        return self._journals.numbering.mark(0 if journal is None else journal.count, self._journals.observer.count)

    def modules_around(self) -> list[tuple[str, int | None]]:
        return self._thread.modules

    def open_followed(self) -> bool:
        if self._journals.lost or self._journals.closed or self._journals.halted:
            return False
        self._journals.open()
        self._activity.model_called = True
        return self.mark().lines == 1

    def precision(self) -> Any:
        return self._journals.numbering.precision

    def snapshot(self) -> Any:
        return self._journals.numbering.snapshot()

    def go_on_from(
        self,
        mark: Mark,
        calls: Iterable[tuple[Phase, Kind, str]],
        passes: Mapping[str, int],
        snapshot: Any,
        lines: Iterable[str],
    ) -> None:
        journal = self._journals.present
        assert journal is not None
        for line in lines:
            journal.add(seal_text(line))
        journal.commit()
        self._journals.numbering.go_on_from(mark, calls, passes, snapshot)

    def reopen(self, event: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Open:
        """A call that was planned when it was entered, and ends otherwise."""
        inputs: list[tuple[str, Any]] = []
        state = CallState(self._journals.epoch, None, event.depth, event.mutates)
        if event.id >= 0 and self.planner is not None:
            state.text = self.planner.text_of(event)
            flatten = Flattener(self._framework, lambda tensor: 0).flatten
            for i, value in enumerate(args):
                flatten(value, str(i), inputs)
            for key, value in kwargs.items():
                flatten(value, f"kw.{key}", inputs)
        return Open(event.id, event.sort, event.name, event.phase, inputs, [], event.id >= 0, state)

    def trouble(self, where: str, error: Exception) -> None:
        self._journals.trouble(where, error)
