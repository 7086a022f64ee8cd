"""Scripts that were written for another tool, run as they are: the embassy stands in the tool's place.

run_as("torch_npu", "sample.py", ["--fast"])     the script, with `torch_npu.hooks` in place and `.npu()` on a device that is here
run_as("msprobe", "train.py")                    the script, with `msprobe.pytorch` and `msprobe.mindspore` in place

Each embassy's `stand_in.py` has `provide()`, which puts its modules in place, and its table of names that are left out.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NoReturn

from ..model.errors import UsageError

_VARIABLE = "PYTHONPATH"
TOOLS = ("torch_npu", "msprobe", "troubleshooter")
"""Tools that a script can be run as."""


def _provided(tool: str) -> AbstractContextManager[None]:
    """The tool's modules, in place. An embassy is imported when a script is run as its tool, not before."""
    if tool == "torch_npu":
        from .torch_npu_hooks.stand_in import provide
    elif tool == "msprobe":
        from .msprobe.stand_in import provide
    else:
        from .troubleshooter.stand_in import provide
    return provide()


def run_as(tool: str, script: str, arguments: Sequence[str] = ()) -> None:
    """Run a script that was written for another tool, as it is; in the processes that it starts the tool is provided as well."""
    if tool not in TOOLS:
        raise UsageError(f"unknown tool {tool!r}: expected one of {', '.join(TOOLS)}.")
    if not Path(script).is_file():
        raise UsageError(f"{script} is not a file. Give the script that is to be run.")
    script = os.path.abspath(script)  # noqa: PTH100 - a script's __file__ is absolute, and links in it are kept
    argv, path = sys.argv, list(sys.path)
    with _provided(tool), _for_children(tool):
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).resolve().parent))
        try:
            runpy.run_path(script, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = argv, path


@contextmanager
def _for_children(tool: str) -> Iterator[None]:
    """Processes that are spawned get our path (multiprocessing) or PYTHONPATH (subprocess); forked ones have the modules already.

    On both is a folder with a module of the tool's name, which `settle` replaces. A real torch_npu is not hidden from them: it is
    more than its hooks.
    """
    provided = sys.modules.get(tool)
    if provided is None or (tool == "torch_npu" and getattr(provided, "__file__", None) is not None):
        yield
        return
    before = os.environ.get(_VARIABLE)
    with TemporaryDirectory(prefix="twintrace-") as folder:
        settling = f"from twintrace.compat import run_as\n\nrun_as.settle({tool!r}, {folder!r})\n"
        Path(folder, f"{tool}.py").write_text(settling, encoding="utf-8")
        sys.path.insert(0, folder)
        os.environ[_VARIABLE] = os.pathsep.join([folder, *([before] if before else [])])
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_VARIABLE, None)
            else:
                os.environ[_VARIABLE] = before
            sys.path[:] = [place for place in sys.path if place != folder]


def settle(tool: str, folder: str) -> None:
    """Put a tool's modules in place until this process ends. Called by the module in `folder` that stands for the tool."""
    sys.modules.pop(tool, None)
    before = list(sys.path)
    sys.path[:] = [place for place in sys.path if place != folder]  # is the real one there? not this one
    until_the_end = ExitStack()
    try:
        until_the_end.enter_context(_provided(tool))
    finally:
        sys.path[:] = before
    Finalize(None, until_the_end.close, exitpriority=0)  # atexit is not run in the processes of multiprocessing


# --- modules in place of others, names that are not there -------------------------------------------------------------


@contextmanager
def substituted(
    modules: Mapping[str, ModuleType], package: str = "", refuse: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Modules under other names for as long as the block runs; `package`: nothing else of it is there meanwhile.

    `refuse` is asked of each module of the package that is imported and not there; it may raise an ImportError.
    """

    def covered() -> list[str]:
        return [name for name in sys.modules if name in modules or (package and is_below(name, package))]

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if refuse is not None and is_below(name, package):
                refuse(name)

    before, finder = {name: sys.modules.pop(name) for name in covered()}, Finder()
    try:
        sys.modules.update(modules)
        sys.meta_path.insert(0, finder)
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for name in covered():
            del sys.modules[name]
        sys.modules.update(before)


def is_below(name: str, package: str) -> bool:
    """True for a package and for the modules in it."""
    return name == package or name.startswith(f"{package}.")


class LeftOutError(UsageError, AttributeError):
    """A name that is left out: `hasattr` is False."""


class LeftOutImportError(UsageError, ImportError):
    """The same in an import."""


def refuse_name(sentence: str) -> NoReturn:
    """LeftOutError; in an import LeftOutImportError, since an AttributeError would lose the sentence there.

    To be called by the function that a module's `__getattr__` calls.
    """
    if sys._getframe(3).f_globals.get("__name__") == "importlib._bootstrap":
        raise LeftOutImportError(sentence)
    raise LeftOutError(sentence)
