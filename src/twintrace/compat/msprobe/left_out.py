"""Names of msprobe that are not here, and what to use instead.

    from msprobe.pytorch import TrainerMon         LeftOutImportError: msprobe.pytorch.TrainerMon is not provided here: …
    import msprobe.pytorch.online_dispatch         the same, of a module

A sentence for each at the first look at the name; `hasattr` and `except ImportError` work as with any name that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from ...model.errors import UsageError

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


class LeftOutError(UsageError, AttributeError):
    """A name that is left out: `hasattr` is False."""


class LeftOutImportError(UsageError, ImportError):
    """The same in an import."""


def refuse(package: str, name: str) -> NoReturn:
    """LeftOutError for a name that is left out, AttributeError for one that nobody has."""
    full = f"{package}.{name}"
    if full not in LEFT_OUT:
        raise AttributeError(f"msprobe has no {full}, and neither has this embassy")
    sentence = f"msprobe.{full} is not provided here: {LEFT_OUT[full]}"
    # An AttributeError would lose the sentence.
    if sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap":
        raise LeftOutImportError(sentence)
    raise LeftOutError(sentence)


def refuse_module(name: str) -> NoReturn:
    """LeftOutImportError for a module of msprobe's own that is not here."""
    raise LeftOutImportError(f"{name} is not provided here: {_MODULES}")
