"""Compiled graphs: step aside while one is compiled, say what cannot be seen while one runs, or use one of the two ways out.

    @ms.jit, GRAPH_MODE                gives the same result; the calls inside are one program, and one sentence says so. A function
                                       is one call, mindspore.jit.<its name>; a network that was compiled is the call of its Cell
    tt.record(…, eager=True)           the same functions run in PyNative while recording, and all of them is seen
    tt.record(…, kernels=True)         MindSpore's own dump is on, and what it writes of a graph's kernels is taken into the trace

MindSpore's compiler reads the source of every function that it comes across: replaced functions are put back while it does.
MindSpore's own graphs (its optimizers' steps) are implementation, and nothing is said of them.

Surprising: the dump's settings are read once, with the first graph of a process, and then hold until it ends. So the recorder
must be made before, and the files of what is not recorded are thrown away.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn

from ...model.errors import SessionError
from ..protocol import Sink
from .gradients import running
from .patches import patch, put_aside
from .tensors import wrote

_SWITCH = "MS_JIT"
_CONFIG = "MINDSPORE_DUMP_CONFIG"
_UNSEEN = (
    "a graph that MindSpore has compiled (@jit, GRAPH_MODE) was run: it is recorded from outside, the Cells and calls inside it "
    "cannot be seen. Record with "
)

_TOO_LATE = (
    "MindSpore reads the settings of its dump with the first graph that a process compiles. Make the recorder with kernels=True "
    "before the first @jit function, or network in GRAPH_MODE, runs."
)
_NOTHING_DUMPED = f"a compiled graph has run, and MindSpore has dumped none of its kernels. {_TOO_LATE}"


class _Dump:
    """MindSpore's own dump of kernels, on from the first question until the process ends."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def folder(self) -> Path:
        """Where it writes to."""
        if self._folder is None:
            if os.environ.get(_CONFIG):
                raise SessionError(
                    f"kernels=True, but {_CONFIG} is set already, to {os.environ[_CONFIG]}: expected it unset. Unset it, or leave "
                    f"kernels=True out and open the directory that it names with twintrace.open."
                )
            if running.ms_compile_cache:
                raise SessionError(f"kernels=True, but a graph has been compiled already. {_TOO_LATE}")
            self._folder = self._switch_on()
        return self._folder

    def _switch_on(self) -> Path:
        place = Path(tempfile.mkdtemp(prefix="twintrace-kernels-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        folder, settings = place / "files", place / "settings.json"
        folder.mkdir()
        common = {
            "op_debug_mode": 0, "dump_mode": 0, "path": str(folder), "net_name": "Net", "iteration": "all",
            "saved_data": "tensor", "input_output": 0, "kernels": [], "support_device": list(range(8)),
        }  # fmt: skip
        switched_on = {"enable": True, "trans_flag": True}
        settings.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": switched_on}))
        os.environ[_CONFIG] = str(settings)
        os.environ.setdefault("MS_DIAGNOSTIC_DATA_PATH", str(place))
        return folder


_DUMP = _Dump()


def _clear(folder: Path) -> None:
    """Files only: MindSpore does not make a folder a second time."""
    for file in folder.rglob("*.npy"):
        file.unlink(missing_ok=True)


Report = Callable[[str, Callable[..., Any], Any, Any], Any]
"""Run a function as a call of this name: (name, function, args, kwargs)."""


class CompiledRegions:
    """Watches the doors of MindSpore's compiler and of what it has compiled."""

    ways_out = (
        "eager=True to run it in PyNative while recording, or with kernels=True to have MindSpore dump the graph's kernels into "
        "the trace. Who records through another tool's interface can run the script with MS_JIT=0, MindSpore's own switch."
    )

    def __init__(self, sink: Sink, report: Report, *, eager: bool, kernels: bool = False) -> None:
        self._sink, self._report, self._eager, self._told = sink, report, eager, False
        self._dump = _DUMP.folder() if kernels else None

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        for executor in (running._JitExecutor, running._CellGraphExecutor):
            yield patch(executor, "compile", _aside)
            yield patch(executor, "__call__", self._run_layer)
        if self._dump is not None:
            _clear(self._dump)  # what was run before is not part of this record
        if self._eager:
            # Both switches: one for functions that were compiled by decorator, one for whole networks.
            before = os.environ.get(_SWITCH)
            os.environ[_SWITCH] = "0"
            yield lambda: _restore(before)
            if ms.get_context("mode") == ms.GRAPH_MODE:
                ms.set_context(mode=ms.PYNATIVE_MODE)
                yield lambda: ms.set_context(mode=ms.GRAPH_MODE)

    def _run_layer(self, original: Any) -> Any:
        def __call__(executor: Any, *args: Any, **kwargs: Any) -> Any:
            # Is this graph made of MindSpore's own code alone: an optimizer's step, a helper?
            made_of = getattr(executor, "fn", None) or (args[0] if args else None)
            home = getattr(made_of, "__module__", None) or type(made_of).__module__
            # `ms.grad` in GRAPH_MODE makes a function of MindSpore's own, around the user's.
            theirs = str(home).startswith("mindspore.") and getattr(made_of, "__name__", "") != "after_grad"

            def run(*args: Any, **kwargs: Any) -> Any:
                try:
                    with put_aside():  # a graph that runs may still have its gradient's graph compiled
                        return original(executor, *args, **kwargs)
                finally:
                    wrote()
                    self._graph_has_run(theirs=theirs)

            # Where its kernels are recorded they stand for it.
            name = None if theirs or self._dump is not None else _function_name(executor, args)
            return run(*args, **kwargs) if name is None else self._report(name, run, args, kwargs)

        return __call__

    def _graph_has_run(self, *, theirs: bool) -> None:
        if self._dump is not None:
            running._pynative_executor.sync()
            dumped = any(self._dump.rglob("*.npy"))
            if dumped:
                self._sink.take_kernels(self._dump)
                _clear(self._dump)
            elif not theirs and not self._told:
                self._told = True
                self._sink.note("kernels", _NOTHING_DUMPED)
        elif not theirs and not self._told:
            self._told = True
            self._sink.note("compiled", _UNSEEN + self.ways_out)


def _aside(original: Any) -> Any:
    def compile(*args: Any, **kwargs: Any) -> Any:
        with put_aside():
            return original(*args, **kwargs)

    return compile


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_SWITCH, None)
    else:
        os.environ[_SWITCH] = before


def _function_name(executor: Any, args: Any) -> str | None:
    """Name of a compiled function; None for a Cell's own, whose call is seen as the Cell's."""
    function = getattr(executor, "fn", None)
    name = getattr(function, "__name__", None)
    if name is None or (args and isinstance(args[0], nn.Cell)) or isinstance(getattr(executor, "obj", None), nn.Cell):
        return None
    return f"mindspore.jit.{name}"
