"""`msprobe` where there is no msprobe: for scripts that are to run unchanged.

    with provide():
        runpy.run_path("train.py")       # `from msprobe.mindspore import PrecisionDebugger` finds this embassy

Also where the real one is installed: who runs a script as msprobe here wants it recorded here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from . import debugger, seeds
from .left_out import refuse_module

_LENT = {
    "pytorch": ("common", "common.utils", "debugger", "debugger.precision_debugger"),
    "mindspore": ("common", "common.utils", "debugger", "debugger.precision_debugger"),
}
"""Modules inside the two doors that documents import from. All of them lend the names of their door."""


@contextmanager
def provide() -> Iterator[None]:
    """Everything that scripts import of msprobe; as it was before, afterwards, and the dump closed, what was seeded unseeded."""
    from twintrace.compat.msprobe import mindspore, pytorch

    package = ModuleType("msprobe", "Provided by twintrace. It has `pytorch` and `mindspore`, and nothing else.")
    package.__path__ = []
    package.pytorch, package.mindspore = pytorch, mindspore  # type: ignore[attr-defined]  # as `import msprobe.pytorch` would
    modules = {"msprobe": package, "msprobe.pytorch": pytorch, "msprobe.mindspore": mindspore}
    for door, names in _LENT.items():
        for name in names:
            modules[f"msprobe.{door}.{name}"] = _lending(f"msprobe.{door}.{name}", modules[f"msprobe.{door}"])
    finder = _LeftOut()
    with ExitStack() as undo:
        for name in [name for name in sys.modules if name == "msprobe" or name.startswith("msprobe.")]:
            undo.callback(sys.modules.__setitem__, name, sys.modules.pop(name))
        for name, module in modules.items():
            sys.modules[name] = module
            undo.callback(sys.modules.pop, name, None)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)
        undo.callback(seeds.restore)
        undo.callback(debugger.close)
        yield


def _lending(name: str, door: ModuleType) -> ModuleType:
    """A module that has the names of its door, and no others."""
    module = ModuleType(name, f"Provided by twintrace: the names of {door.__name__}.")
    module.__path__ = []
    module.__getattr__ = lambda wanted: getattr(door, wanted)  # type: ignore[method-assign]
    return module


class _LeftOut:
    """Finds no module; of those that msprobe has and we have not it says so."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """An ImportError with our sentence, or nothing."""
        if name.startswith("msprobe."):
            refuse_module(name)
