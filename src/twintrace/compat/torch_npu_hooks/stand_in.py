"""`torch_npu.hooks` where there is no torch_npu: for scripts that are to run unchanged.

    with provide():
        runpy.run_path("sample.py")       # `from torch_npu.hooks import set_dump_path` finds this embassy; `x.npu()` works

What a real torch_npu has stays: only its `hooks`, which it lost in 2023, are put in place.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from ... import api
from ...model.errors import UsageError
from ..run_as import substituted
from . import recording

DEVICE = "TWINTRACE_NPU"
"""The environment variable that names the device which `.npu()` means."""


@contextmanager
def provide() -> Iterator[None]:
    """Everything that the old tool's scripts import; as it was before, afterwards, and the dump closed."""
    from twintrace.compat import torch_npu_hooks
    from twintrace.compat.torch_npu_hooks import tools

    modules = {"torch_npu.hooks": torch_npu_hooks, "torch_npu.hooks.tools": tools}
    if "torch_npu" not in sys.modules and importlib.util.find_spec("torch_npu") is None:
        modules["torch_npu"] = _package(torch_npu_hooks)
    with ExitStack() as undo:
        undo.callback(_npu())
        undo.enter_context(substituted(modules))
        undo.callback(recording.close)
        yield


def _npu() -> Callable[[], None]:
    wanted = os.environ.get(DEVICE)
    try:
        return api.stand_in("npu", wanted, framework="torch", remedy=f"{DEVICE} names another device.")
    except UsageError as error:
        raise UsageError(f"{DEVICE}={wanted}: {error}") from None


def _package(hooks: ModuleType) -> ModuleType:
    package = ModuleType(
        "torch_npu", "Provided by twintrace: torch_npu is not installed here. It has `hooks` and nothing else."
    )
    package.__path__ = []
    package.hooks = hooks  # type: ignore[attr-defined]  # what `import torch_npu.hooks` would have set
    return package
