"""Which tools a script may be run as: one table.

run_as("torch_npu", "sample.py", ["--fast"])     the script, with `torch_npu.hooks` in place and `.npu()` on a device that is here
run_as("msprobe", "train.py")                    the script, with `msprobe.pytorch` and `msprobe.mindspore` in place
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from types import MappingProxyType

from ..model.errors import UsageError

_VARIABLE = "PYTHONPATH"


def _torch_npu() -> AbstractContextManager[None]:
    from .torch_npu_hooks.stand_in import provide

    return provide()


def _msprobe() -> AbstractContextManager[None]:
    from .msprobe.stand_in import provide

    return provide()


def _troubleshooter() -> AbstractContextManager[None]:
    from .troubleshooter.stand_in import provide

    return provide()


DISGUISES: Mapping[str, Callable[[], AbstractContextManager[None]]] = MappingProxyType(
    {"torch_npu": _torch_npu, "msprobe": _msprobe, "troubleshooter": _troubleshooter}
)
"""tool -> what puts its modules in place. An embassy is imported when a script is run as its tool, not before."""


_SPAWNED: Mapping[str, str] = MappingProxyType(
    {tool: str(Path(__file__).parent / folder / "spawned") for tool, folder in (
        ("torch_npu", "torch_npu_hooks"), ("msprobe", "msprobe"), ("troubleshooter", "troubleshooter")
    )}
)  # fmt: skip
"""tool -> the folder in which the processes that a script starts find it."""


def run_as(tool: str, script: str, arguments: Sequence[str] = ()) -> None:
    """Run a script that was written for another tool, as it is; in the processes that it starts the tool is provided as well."""
    if tool not in DISGUISES:
        raise UsageError(f"unknown tool {tool!r}: expected one of {', '.join(DISGUISES)}.")
    if not Path(script).is_file():
        raise UsageError(f"{script} is not a file. Give the script that is to be run.")
    script = os.path.abspath(script)  # noqa: PTH100 - a script's __file__ is absolute, and links in it are kept
    argv, path = sys.argv, list(sys.path)
    with DISGUISES[tool](), _for_children(tool):
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).resolve().parent))
        try:
            runpy.run_path(script, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = argv, path


@contextmanager
def _for_children(tool: str) -> Iterator[None]:
    """Processes that are spawned get our path (multiprocessing) or PYTHONPATH (subprocess); forked ones have the modules already.

    A real torch_npu is not hidden from them: it is more than its hooks.
    """
    found = sys.modules.get(tool)
    if found is None or (tool == "torch_npu" and getattr(found, "__file__", None) is not None):
        yield
        return
    before = os.environ.get(_VARIABLE)
    sys.path.insert(0, _SPAWNED[tool])
    os.environ[_VARIABLE] = os.pathsep.join([_SPAWNED[tool], *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
        sys.path[:] = [place for place in sys.path if place != _SPAWNED[tool]]


def settle(tool: str) -> None:
    """Put a tool's modules in place until this process ends. Called by the module that stands for the tool on the path."""
    sys.modules.pop(tool, None)
    before = list(sys.path)
    sys.path[:] = [place for place in sys.path if place != _SPAWNED[tool]]  # is the real one there? not this one
    until_the_end = ExitStack()
    try:
        until_the_end.enter_context(DISGUISES[tool]())
    finally:
        sys.path[:] = before
    Finalize(None, until_the_end.close, exitpriority=0)  # atexit is not run in the processes of multiprocessing
