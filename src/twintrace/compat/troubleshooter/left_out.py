"""Names of the real tool that are not here, and what to use instead.

    ts.tracking                              LeftOutError: ts.tracking is left out: …
    from troubleshooter import tracking      LeftOutImportError: the same

A sentence for each, at the first look at the name; `hasattr` and `except ImportError` work as with any name that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from ...model.errors import UsageError

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "proposal": "its proposals for error messages serve neither dumps nor comparisons. Take the decorator away.",
        "proposer": "its proposals for error messages serve neither dumps nor comparisons.",
        "tracking": "its line tracer serves neither dumps nor comparisons. Use PySnooper, which it is made of.",
        "tracker": "its line tracer serves neither dumps nor comparisons. Use PySnooper, which it is made of.",
        "common": "it holds the real tool's own parts.",
        "widget.save_convert": "ts.save writes .npy files, also in a compiled graph; there is no print file to convert.",
        "widget.precision_tracker": "it reads MindSpore's compiled graphs. `twintrace compare` tells results of another precision.",
    }
)


class LeftOutError(UsageError, AttributeError):
    """A name that is left out: `hasattr` is False."""


class LeftOutImportError(UsageError, ImportError):
    """The same in an import."""


def refuse(package: str, name: str) -> NoReturn:
    """LeftOutError for a name that is left out, AttributeError for one that nobody has."""
    full = f"{package}.{name}" if package else name
    if full not in LEFT_OUT:
        raise AttributeError(f"TroubleShooter has no ts.{full}, and neither has this embassy")
    # An AttributeError would lose the sentence.
    if sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap":
        refuse_import(full)
    raise LeftOutError(_sentence(full))


def refuse_import(full: str) -> None:
    """LeftOutImportError for a name that is left out; nothing for others."""
    if full in LEFT_OUT:
        raise LeftOutImportError(_sentence(full))


def _sentence(full: str) -> str:
    return f"ts.{full} is left out: {LEFT_OUT[full]}"
