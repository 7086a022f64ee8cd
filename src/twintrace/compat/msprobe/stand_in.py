"""`msprobe` where there is no msprobe, for scripts that are to run unchanged, and the names of msprobe that are not here.

    with provide():
        runpy.run_path("train.py")                 # `from msprobe.mindspore import PrecisionDebugger` finds this embassy

    from msprobe.pytorch import TrainerMon         LeftOutImportError: msprobe.pytorch.TrainerMon is not provided here: …
    import msprobe.pytorch.online_dispatch         the same, of a module

Also where the real one is installed: who runs a script as msprobe here wants it recorded here. `hasattr` and
`except ImportError` work as with any name that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import NoReturn

from ..run_as import LeftOutImportError, refuse_name, substituted
from . import debugger

_MONITOR = (
    "it writes the statistics of weights, gradients and optimizer states over a whole training. "
    "Record the steps of interest with PrecisionDebugger, or with tt.record, and `twintrace show` lists their statistics."
)
_ASCEND = "it drives Ascend's own compiler or runtime. Record the run with PrecisionDebugger."
LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "pytorch.TrainerMon": _MONITOR,
        "mindspore.TrainerMon": _MONITOR,
        "pytorch.random_save": "it keeps random numbers for a later run. seed_all makes them the same in both runs.",
        "pytorch.set_fx_dump_config": _ASCEND,
        "pytorch.set_ge_dump_config": _ASCEND,
        "pytorch.acl_save": _ASCEND,
        "pytorch.AclGraphDumper": _ASCEND,
    }
)
_MODULES = (
    "only msprobe.pytorch and msprobe.mindspore are provided, with PrecisionDebugger, seed_all, compare and what belongs to them. "
    "The command line is `twintrace msprobe compare`."
)
_LENT = ("common", "common.utils", "debugger", "debugger.precision_debugger")
"""Modules inside the two doors that documents import from. All of them lend the names of their door."""


def refuse(package: str, name: str) -> NoReturn:
    """LeftOutError for a name that is left out, AttributeError for one that nobody has."""
    full = f"{package}.{name}"
    if full not in LEFT_OUT:
        raise AttributeError(f"msprobe has no {full}, and neither has this embassy")
    refuse_name(f"msprobe.{full} is not provided here: {LEFT_OUT[full]}")


@contextmanager
def provide() -> Iterator[None]:
    """Everything that scripts import of msprobe; as it was before, afterwards, and the dump closed, what was seeded unseeded."""
    from twintrace.compat.msprobe import mindspore, pytorch

    package = ModuleType("msprobe", "Provided by twintrace. It has `pytorch` and `mindspore`, and nothing else.")
    package.__path__ = []
    package.pytorch, package.mindspore = pytorch, mindspore  # type: ignore[attr-defined]  # as `import msprobe.pytorch` would
    modules = {"msprobe": package}
    for door in (pytorch, mindspore):
        full = f"msprobe.{door.__name__.rpartition('.')[2]}"
        modules |= {full: door, **{f"{full}.{name}": _lending(f"{full}.{name}", door) for name in _LENT}}
    with substituted(modules, "msprobe", _refuse_module):
        try:
            yield
        finally:
            debugger.close()
            debugger.unseed()


def _lending(name: str, door: ModuleType) -> ModuleType:
    """A module that has the names of its door, and no others."""
    module = ModuleType(name, f"Provided by twintrace: the names of {door.__name__}.")
    module.__path__ = []
    module.__getattr__ = lambda wanted: getattr(door, wanted)  # type: ignore[method-assign]
    return module


def _refuse_module(name: str) -> None:
    if name != "msprobe":
        raise LeftOutImportError(f"{name} is not provided here: {_MODULES}")
