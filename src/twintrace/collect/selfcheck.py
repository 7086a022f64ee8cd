"""Does recording change the run? Run it twice without and once with, and compare bit by bit.

    def step(record):
        net = Net(); …
        with record(net):
            loss = criterion(net(x), y); loss.backward(); optimizer.step()
        return loss, net

    selfcheck(step)
    same bits: 14 values, recorded at mix/tensor; the run without recording repeats itself

The two runs without recording must agree with each other first: if they do not, the step is not deterministic in itself, and
that is what the answer says.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..frameworks import registry
from ..frameworks.protocol import Framework, Unreadable
from ..model.errors import UsageError
from ..model.records import Keep, Level
from ..model.words import KeepName, LevelName
from ..store.digest import fingerprint
from ..store.stage import DEFAULT_BYTES
from .models import framework_for, named_models
from .seeding import seed_all
from .selection import Selection
from .session import Session

OVERRIDE: contextvars.ContextVar[Callable[..., Any] | None] = contextvars.ContextVar("twintrace_override", default=None)
"""While a self-check runs, what `tt.record` calls instead of making a recorder."""

_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Result of a self-check: true if recording changes no bit. Printed, it says what was compared and what differs."""

    compared: int
    """Number of values that were compared."""
    recorded: int
    """Number of calls that were recorded."""
    differences: tuple[str, ...]
    """Values that differ with recording."""
    unstable: tuple[str, ...]
    """Values that differ between two runs without recording."""
    level: str
    keep: str
    raised: str = ""
    """The error that the step raised without recording; then there is nothing to tell."""

    @property
    def same(self) -> bool:
        """True only if something was recorded, something was compared, the bare run repeats itself, and all bits are equal."""
        return bool(self.compared and self.recorded) and not (self.differences or self.unstable or self.raised)

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        if self.raised:
            return f"cannot tell: without recording, it raises already: {self.raised}"
        if self.unstable:
            return (
                f"cannot tell: without recording, two runs differ already in {len(self.unstable)} of {self.compared} values "
                f"(first: {self.unstable[0]}). Make the step deterministic: seed its inputs, see tt.seed_all."
            )
        if not self.compared:
            return (
                "cannot tell: nothing to compare. A function returns the loss and the model; a script leaves them in global "
                "variables, or gives its model to tt.record."
            )
        if not self.recorded:
            return "cannot tell: nothing was recorded. Use the step's record argument, or tt.record, around the computation."
        if self.differences:
            return (
                f"DIFFERENT: recording at {self.level}/{self.keep} changed {len(self.differences)} of {self.compared} values "
                f"(first: {self.differences[0]}). This is a defect of twintrace: please report it."
            )
        how = f"{self.recorded} calls recorded at {self.level}/{self.keep}"
        return f"same bits: {self.compared} values, {how}; the run repeats itself"


class Run:
    """One run of a step under `OVERRIDE`: bare (recorders do nothing) or recorded (into a temporary directory).

    seed     of all generators, before the step; None: as the step finds them
    folder   where recorders write to, each to a folder of its own (`0`, `1`, …); None: a temporary one
    """

    def __init__(
        self,
        *,
        recording: bool,
        level: Level | None = None,
        keep: Keep | None = None,
        seed: int | None = 0,
        folder: Path | None = None,
    ) -> None:
        self.recording, self.level, self.keep = recording, level, keep
        self.seed, self.folder = seed, folder
        self.calls = 0
        self.values: dict[str, str] = {}
        self.raised = ""
        self.used: set[str] = set()  # level/keep of the recorders

    def __call__(self, step: Callable[[], Any]) -> Mapping[str, str]:
        """Run the step; fingerprints of everything that it returned, and of the models that it recorded."""
        with tempfile.TemporaryDirectory(prefix="twintrace-selfcheck-") as directory:
            self._directory = self.folder or Path(directory)
            token = OVERRIDE.set(self._recorder)
            try:
                with contextlib.nullcontext() if self.seed is None else seed_all(self.seed):
                    self._take("result", step())
            except Exception as error:  # noqa: BLE001 - told in the answer, whatever it is
                self.raised = f"{type(error).__name__}: {error}"
            finally:
                OVERRIDE.reset(token)
        return self.values

    def record(self, model: Any = None) -> Any:
        """The `record` argument of a step: the recorder of this run."""
        models = named_models(model)
        adapter = framework_for(models)
        options = {
            "level": Level.MIX if models else Level.API,
            "keep": Keep.TENSOR,
            "selection": Selection(),
            "buffer": DEFAULT_BYTES,
        }
        return self._recorder(adapter, models, options)

    def _recorder(self, adapter: Framework, models: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        chosen = dict(options) | {"strict": True, "overwrite": False, "resume": False, "nonfinite": None}
        if self.level is not None:
            chosen["level"] = self.level
        if self.keep is not None:
            chosen["keep"] = self.keep
        if not self.recording:
            chosen["selection"] = Selection(steps=())  # the same recorder, but no step that it would record
        self.used.add(f"{chosen['level']}/{chosen['keep']}")
        number = len(list(self._directory.iterdir()))
        session = _Counted(self, self._directory / str(number), adapter, models, **chosen)
        session.on_close = lambda: self._take_models(number, adapter, models)
        return session

    def _take_models(self, number: int, adapter: Framework, models: Mapping[str, Any]) -> None:
        for name, model in models.items():
            self._take(f"recorder {number} {name}".rstrip(), adapter.snapshot(model))

    def _take(self, name: str, value: Any) -> None:
        for slot, text in _fingerprints(value, name):
            self.values[slot] = text


class _Counted(Session):
    """A recorder that says how much it recorded.

    It tells nothing: values that cannot be kept do not change the run, and the answer says how much was recorded.
    """

    _tells = False
    on_close: Callable[[], None]

    def __init__(self, run: Run, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run = run

    def close(self) -> None:
        if not self._journals.closed:
            super().close()
            self._run.calls += self.total_calls
            self.on_close()


def selfcheck(step: Callable[..., Any], *, level: LevelName | None = None, keep: KeepName | None = None) -> SelfCheck:
    """Run `step` without recording, again without, and with; compare what it returns, bit by bit.

        def step(record):
            with record(net):
                return train_one_step(net)

        assert tt.selfcheck(step)

    Args:
        step: builds its model, trains, and returns what is to be compared: losses, models, tensors, nested as it likes. If it
            takes an argument it is given a `record` function (`with record(net): …`); otherwise it may call `tt.record`
            itself.
        level: level to record at; None: as `step` says itself, or mix.
        keep: what to keep of each tensor; None: as `step` says itself, or every value.

    Returns:
        The result: true if all bits are equal, something was recorded and the bare run repeats itself.

    Raises:
        UsageError: an unknown level or keep.
    """
    if not callable(step):
        raise UsageError(f"selfcheck: expected a function, got {step!r}.")
    chosen = (choose(Level, "level", level) if level else None, choose(Keep, "keep", keep) if keep else None)

    takes_argument = any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(step).parameters.values()
    )

    def run(recording: bool) -> Run:
        once = Run(recording=recording, level=chosen[0], keep=chosen[1])
        once((lambda: step(once.record)) if takes_argument else step)
        return once

    return judge(run(False), run(False), run(True))


def judge(bare: Run, again: Run, recorded: Run) -> SelfCheck:
    """Compare three runs."""
    differences = _differences(bare.values, recorded.values)
    if recorded.raised != bare.raised:
        differences = (f"what is raised ({recorded.raised or 'nothing'}, not {bare.raised or 'nothing'})", *differences)
    used = sorted(recorded.used) or ["nothing/nothing"]
    level, keep = (", ".join(dict.fromkeys(item.split("/")[i] for item in used)) for i in (0, 1))
    return SelfCheck(
        compared=len(bare.values),
        recorded=recorded.calls,
        differences=differences,
        unstable=_differences(bare.values, again.values),
        level=level,
        keep=keep,
        raised=bare.raised,
    )


def _differences(left: Mapping[str, str], right: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name)))


def choose(kinds: Any, name: str, value: object) -> Any:
    """The member of an enum with that value; UsageError that lists them if there is none."""
    try:
        return kinds(value)
    except ValueError:
        expected = ", ".join(repr(kind.value) for kind in kinds)
        raise UsageError(f"{name}: expected one of {expected}, got {value!r}.") from None


def _fingerprints(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """`(name, text)` for every number, array, tensor and module below `value`; equal texts mean equal bits."""
    adapter = registry.framework_of(value)
    if adapter is not None and adapter.is_module(value):
        yield from _fingerprints(dict(adapter.snapshot(value)), name, depth + 1)
    elif adapter is not None:
        yield name, _tensor_text(adapter, value)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield name, f"{value.dtype}{value.shape} {fingerprint(np.ascontiguousarray(value))}"
    elif isinstance(value, float | int | bool | complex | np.generic):
        yield name, repr(value)
    elif isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key, item in value.items():
            yield from _fingerprints(item, f"{name}.{key}", depth + 1)
    elif isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        for number, item in enumerate(value):
            yield from _fingerprints(item, f"{name}.{number}", depth + 1)


def _tensor_text(adapter: Framework, tensor: Any) -> str:
    look = adapter.look(tensor)
    try:
        parts = [fingerprint(adapter.host(part)) for part in look.parts.values()] or [fingerprint(adapter.host(tensor))]
    except Unreadable as error:
        parts = [str(error)]
    return f"{look.dtype}{list(look.shape)} {' '.join(parts)}"
