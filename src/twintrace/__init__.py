"""twintrace: record what a network computed, lay two records side by side, see where they first part and why.

    import twintrace as tt

    with tt.record("runs/a", net) as rec:        # every module and call, forward and backward
        loss = criterion(net(x), y); loss.backward(); optimizer.step()
        rec.step()

    tt.compare("runs/a", "runs/b")               # the first place where the two runs differ

Importing this does nothing else: no framework is imported, nothing is patched, no thread is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

# name -> the module that has it; loaded when the name is first used
_HOMES = {
    "record": "api",
    "open": "api",
    "compare": "api",
    "selfcheck": "api",
    "seed_all": "api",
    "doctor": "api",
    "Recorder": "api",
    "Trace": "api",
    "TwintraceError": "model.errors",
    "UsageError": "model.errors",
    "SessionError": "model.errors",
    "TraceError": "model.errors",
    "TraceFormatError": "model.errors",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from .api import Recorder, Trace, compare, doctor, open, record, seed_all, selfcheck
    from .model.errors import SessionError, TraceError, TraceFormatError, TwintraceError, UsageError


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
