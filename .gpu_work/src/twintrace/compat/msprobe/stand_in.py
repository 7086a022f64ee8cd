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


@contextmanager
def provide() -> Iterator[None]:
    """Everything that scripts import of msprobe; as it was before, afterwards, and the dump closed, what was seeded unseeded."""
    from twintrace.compat.msprobe import mindspore, pytorch

    package = ModuleType("msprobe", "Provided by twintrace. It has `pytorch` and `mindspore`, and nothing else.")
    package.__path__ = []
    package.pytorch, package.mindspore = pytorch, mindspore  # type: ignore[attr-defined]  # as `import msprobe.pytorch` would
    with ExitStack() as undo:
        for name in [name for name in sys.modules if name == "msprobe" or name.startswith("msprobe.")]:
            undo.callback(sys.modules.__setitem__, name, sys.modules.pop(name))
        for name, module in (("msprobe", package), ("msprobe.pytorch", pytorch), ("msprobe.mindspore", mindspore)):
            sys.modules[name] = module
            undo.callback(sys.modules.pop, name, None)
        undo.callback(seeds.restore)
        undo.callback(debugger.close)
        yield
