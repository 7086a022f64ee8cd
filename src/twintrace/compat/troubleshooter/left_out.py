"""Names of the real tool that are not here, and what to use instead.

    ts.tracking      UsageError: ts.tracking is left out: …

A sentence for each, at the first look at the name: `from troubleshooter import tracking` says it as well.
"""

from __future__ import annotations

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


def refuse(package: str, name: str) -> NoReturn:
    """UsageError for a name that is left out, AttributeError for one that nobody has."""
    full = f"{package}.{name}" if package else name
    if full in LEFT_OUT:
        raise UsageError(f"ts.{full} is left out: {LEFT_OUT[full]}")
    raise AttributeError(f"TroubleShooter has no ts.{full}, and neither has this embassy")
