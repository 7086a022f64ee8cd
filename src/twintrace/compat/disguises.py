"""Which tools a script may be run as: one table.

run_as("torch_npu", "sample.py", ["--fast"])     the script, with `torch_npu.hooks` in place and `.npu()` on a device that is here
run_as("msprobe", "train.py")                    the script, with `msprobe.pytorch` and `msprobe.mindspore` in place
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

from ..model.errors import UsageError


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


def run_as(tool: str, script: str, arguments: Sequence[str] = ()) -> None:
    """Run a script that was written for another tool, as it is."""
    if tool not in DISGUISES:
        raise UsageError(f"unknown tool {tool!r}: expected one of {', '.join(DISGUISES)}.")
    if not Path(script).is_file():
        raise UsageError(f"{script} is not a file. Give the script that is to be run.")
    script = os.path.abspath(script)  # noqa: PTH100 - a script's __file__ is absolute, and links in it are kept
    argv, path = sys.argv, list(sys.path)
    with DISGUISES[tool]():
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).resolve().parent))
        try:
            runpy.run_path(script, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = argv, path
