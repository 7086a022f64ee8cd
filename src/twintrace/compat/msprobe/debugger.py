"""The one recording of this embassy: `PrecisionDebugger` is global by nature, so its state is here and nowhere else.

    debugger = PrecisionDebugger(config_path="./config.json")     the settings; nothing is recorded, nothing is patched
    debugger.start(model)                                         recording begins
    debugger.stop()                                               nothing new is recorded; gradients of what was still are
    debugger.step()                                               the step's files are complete, nothing that was installed remains

A second `PrecisionDebugger` with the same settings is the same one; with other settings it is an error. All methods may be called
on the class as well. Each may come at any time: `stop` without `start` and `step` without `stop` do what can be done.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ... import api
from ...model.errors import SessionError, TraceWriteError, UsageError
from ...model.words import LevelName
from .config import Settings, settings_from
from .selection import Selected
from .writer import DumpWriter

_LEVELS: dict[str, LevelName] = {"L0": "module", "L1": "api", "mix": "mix", "debug": "api"}


class Dump:
    """A recording: settings, files, and the recorder of the models that were given last."""

    def __init__(self, settings: Settings, frameworks: tuple[str, ...]) -> None:
        self.settings, self.frameworks = settings, frameworks
        _check_writable(settings)
        self._writer = DumpWriter(settings)
        self._recorder: api.Recorder | None = None
        self._chosen: Selected | None = None
        self._models: tuple[Any, ...] = ()
        self._named = False
        self._running = False
        self._step = 0
        self._saved: list[tuple[str, Any, bool]] = []
        """Values saved in this step before `start`, which begins another recorder: the gradients will be that one's."""
        self._alone: dict[str, Any] = {}
        """The modules of `module_dump`, by the names that they have in the dump."""
        self._undo_names: list[Callable[[], None]] = []

    def start(self, model: Any) -> None:
        models = _models(model) or self._models  # a callback that starts each step does not know the model
        if self.settings.level in ("L0", "mix") and not models:
            raise UsageError(
                f"start(): level {self.settings.level} records modules, but no model was given. Call start(model), or use level L1."
            )
        if not self.settings.enabled or self.settings.level == "debug":
            return
        if self._recorder is None or not _same(models, self._models):
            self._open(models, named=isinstance(model, list | tuple) or (model is None and self._named))
            if self._recorder is not None:
                with self._writer.saving_again():
                    for name, variable, gradients in self._saved:
                        self._recorder.save(name, variable, gradients=gradients)
        self._saved.clear()
        assert self._recorder is not None
        assert self._chosen is not None
        self._chosen.paused = False
        if not self._running:
            self._recorder.start()
            self._running = True
        self._name_modules()

    def begin_module(self, module: Any, name: Any) -> None:
        """Until `end_module` this module alone is recorded, under this name."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"module_dump: expected a name for the module, got {name!r}.")
        try:
            framework = api.modules_of(module)[0]
        except UsageError:
            framework = ""
        if framework not in self.frameworks or isinstance(module, list | tuple | dict):
            raise UsageError(f"module_dump: expected a module of {self.frameworks[-1]}, got {type(module).__name__}.")
        self._alone[name] = module
        self._name_modules()

    def end_module(self) -> None:
        """All is recorded again, and modules have their own names."""
        self._alone.clear()
        while self._undo_names:
            self._undo_names.pop()()
        if self._chosen is not None:
            self._chosen.alone = None

    def _name_modules(self) -> None:
        if not self._alone or self._chosen is None or self._recorder is None or not self._running:
            return
        while self._undo_names:
            self._undo_names.pop()()
        self._undo_names = [self._recorder.rename(module, name) for name, module in self._alone.items()]
        self._chosen.alone = frozenset(self._alone)

    def begin_at(self, step: Any) -> None:
        """The present step, and with it the files that come, has this number."""
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise UsageError(f"set_init_step: expected a step number, 0 or more, got {step!r}.")
        if self._recorder is not None and step != self._step:
            self._recorder.step(step)
        self._step = step

    def stop(self) -> None:
        if self._chosen is not None:
            self._chosen.paused = True

    def step(self) -> None:
        self._step += 1
        self._saved.clear()
        if self._recorder is None or self._chosen is None:
            return
        if self._running and self._chosen.paused:
            self._recorder.stop()
            self._running = False
        self._recorder.step()
        self._chosen.reset()

    def save(self, variable: Any, name: Any, save_backward: bool) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"save: expected a name, got {name!r}.")
        if not self.settings.enabled:
            return
        if self._recorder is None:
            self._open((), named=False)
        assert self._recorder is not None
        self._recorder.save(name, variable, gradients=bool(save_backward))
        if not self._running and not self._models and self.settings.level != "debug":
            self._saved.append((name, variable, bool(save_backward)))

    def close(self) -> None:
        """Everything is in the files."""
        self._running = False
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close()

    def _open(self, models: tuple[Any, ...], *, named: bool) -> None:
        """A recorder for these models; it goes on in the step and the files of the one before."""
        self.close()
        settings = self.settings
        by_name = {str(number) if named else "": model for number, model in enumerate(models)}
        framework = self._framework()
        level = _LEVELS[settings.level] if models else "api"
        if framework == "torch" and level == "api":
            level = "mix"  # for the modules of module_dump; at L1 no other is chosen
        chosen = self._chosen = Selected(settings, framework, roots=by_name)
        self._writer.choose(chosen)
        needs_bytes = settings.task == "tensor" or settings.summary_mode == "md5" or settings.tensor_list
        backward = settings.wants("backward", "input") or settings.wants("backward", "output")
        self._recorder = api.record(
            settings.dump_path,
            by_name,
            level=level,
            keep="tensor" if needs_bytes else "statistics",
            steps=settings.steps,
            ranks=settings.ranks,
            forward_only=not backward,
            predicate=chosen,
            framework=framework,
            writer=self._writer,
        )
        if self._step:
            self._recorder.step(self._step)
        self._models, self._named = models, named

    def _framework(self) -> str:
        imported = api.imported_frameworks()
        return next((name for name in self.frameworks if name in imported), self.frameworks[-1])


_DUMP: Dump | None = None


class PrecisionDebugger:
    """Records what a network computes into msprobe's files. Arguments win over the fields of config.json."""

    _frameworks: ClassVar[tuple[str, ...]] = ()
    _instance: ClassVar[PrecisionDebugger | None] = None

    def __new__(
        cls,
        config_path: str | os.PathLike[str] | None = None,
        task: str | None = None,
        dump_path: str | os.PathLike[str] | None = None,
        level: str | None = None,
        step: Sequence[int | str] | None = None,
    ) -> PrecisionDebugger:
        global _DUMP
        settings = settings_from(config_path, task, dump_path, level, step)
        if _DUMP is None:
            _DUMP = Dump(settings, cls._frameworks)
        elif settings != _DUMP.settings or cls._frameworks != _DUMP.frameworks:
            raise SessionError(
                f"PrecisionDebugger: there is one already, with other settings ({_difference(_DUMP, settings, cls._frameworks)}). "
                f"A process has one: make it once, or give the same settings."
            )
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @classmethod
    def start(cls, model: Any = None) -> None:
        """Record from here on: `model` is a module, or a list or tuple of modules; levels L0 and mix need one."""
        _the_one("start").start(model)

    @classmethod
    def stop(cls) -> None:
        """Record no more, until the next `start`. Gradients of what was recorded are still taken, until `step`."""
        _the_one("stop").stop()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The old name of `stop`."""
        _the_one("forward_backward_dump_end").stop()

    @classmethod
    def step(cls) -> None:
        """The step is over: its files are complete."""
        _the_one("step").step()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record one value, nested as it may be, and its gradient when it comes."""
        _the_one("save").save(variable, name, save_backward)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Steps are counted from this number on. To be called before the first `start`."""
        _the_one("set_init_step").begin_at(step)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Accepted, and said to have no effect: a function of the user's own has no record, what it calls has."""
        _the_one("register_custom_api")
        warnings.warn(
            f"register_custom_api: {getattr(module, '__name__', module)}.{api} gets no record of its own here. The functions and "
            f"modules that it calls are recorded, and debugger.save records any value in it.",
            UserWarning,
            stacklevel=2,
        )

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Nothing was registered, so nothing is restored."""
        _the_one("restore_custom_api")


def close() -> None:
    """End the recording; a `PrecisionDebugger` may be made anew."""
    global _DUMP
    dump, _DUMP = _DUMP, None
    if dump is not None:
        dump.close()


def module_dump(module: Any, module_name: str) -> None:
    """Record this module alone, as `Module.{module_name}.{class}`, without what it calls, until `module_dump_end`."""
    _the_one("module_dump").begin_module(module, module_name)


def module_dump_end() -> None:
    """Record as before `module_dump`."""
    _the_one("module_dump_end").end_module()


def begin_at(step: int) -> None:
    """`set_init_step`, where there is a debugger; nothing otherwise."""
    if _DUMP is not None:
        _DUMP.begin_at(step)


def _the_one(verb: str) -> Dump:
    if _DUMP is None:
        raise SessionError(f"{verb}(): there is no PrecisionDebugger yet. Make one: PrecisionDebugger(config_path=…).")
    return _DUMP


def _models(model: Any) -> tuple[Any, ...]:
    if model is None:
        return ()
    return tuple(model) if isinstance(model, list | tuple) else (model,)


def _same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _check_writable(settings: Settings) -> None:
    path = settings.dump_path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceWriteError(f"dump_path: {path} cannot be made ({error.strerror}). Choose another path.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise TraceWriteError(f"dump_path: {path} is not writable. Choose another path.")


def _difference(dump: Dump, settings: Settings, frameworks: tuple[str, ...]) -> str:
    fields = [
        f"{name}: {getattr(dump.settings, name)!s:.80}, now {getattr(settings, name)!s:.80}"
        for name in Settings.__slots__
        if getattr(dump.settings, name) != getattr(settings, name)
    ]
    if frameworks != dump.frameworks:
        fields.append(f"framework: {dump.frameworks[-1]}, now {frameworks[-1]}")
    return "; ".join(fields)


_SEEDED: api.Seeded | None = None


def seed_all(seed: int, *, mode: bool, rm_dropout: bool, framework: str) -> None:
    """Seed Python, numpy and every imported framework; `framework` is imported if it is not yet."""
    global _SEEDED
    unseed()
    _SEEDED = api.seed_all(seed, deterministic=mode, disable_dropout=rm_dropout, frameworks=(framework,))


def unseed() -> None:
    """Everything as it was before the first `seed_all`."""
    global _SEEDED
    seeded, _SEEDED = _SEEDED, None
    if seeded is not None:
        seeded()
