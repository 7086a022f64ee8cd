"""`import troubleshooter as ts` without TroubleShooter, for scripts that are to run unchanged, and its names that are not here.

    with provide():
        runpy.run_path("sample.py")          # `troubleshooter`, `troubleshooter.migrator`, … are this embassy

    ts.tracking                              LeftOutError: ts.tracking is left out: …
    from troubleshooter import tracking      LeftOutImportError: the same

Where the real one is installed it is hidden meanwhile: on today's frameworks it does not import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NoReturn

from ..run_as import LeftOutImportError, is_below, refuse_name, substituted

_REAL = "troubleshooter"
_OURS = __name__.rpartition(".")[0]
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


def refuse(package: str, name: str) -> NoReturn:
    """LeftOutError for a name that is left out, AttributeError for one that nobody has."""
    full = f"{package}.{name}" if package else name
    if full not in LEFT_OUT:
        raise AttributeError(f"TroubleShooter has no ts.{full}, and neither has this embassy")
    refuse_name(_sentence(full))


@contextmanager
def provide() -> Iterator[None]:
    """The embassy under the real tool's name; as it was before, afterwards, and the dump closed."""
    from .migrator import api_dump

    # The same objects, so that there is one dump and not two.
    ours = {_REAL + name.removeprefix(_OURS): module for name, module in sys.modules.items() if is_below(name, _OURS)}
    with substituted(ours, _REAL, _refuse_import):
        try:
            yield
        finally:
            api_dump.close()


def _refuse_import(name: str) -> None:
    full = name.removeprefix(f"{_REAL}.")
    if full in LEFT_OUT:
        raise LeftOutImportError(_sentence(full))


def _sentence(full: str) -> str:
    return f"ts.{full} is left out: {LEFT_OUT[full]}"
