"""twintrace: record what a network computed, lay two records side by side, see where they first part and why.

    import twintrace as tt

    with tt.record("runs/a", net) as rec:        # every module and call, forward and backward
        loss = criterion(net(x), y); loss.backward(); optimizer.step()
        rec.step()

    print(tt.verdict(tt.compare("runs/a", "runs/b")))   # the first place where the two runs part

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
    "compare_arrays": "api",
    "convert_trace": "api",
    "verdict": "api",
    "zoom": "api",
    "first_nonfinite": "api",
    "selfcheck": "api",
    "seed_all": "api",
    "doctor": "api",
    "map_weights": "api",
    "convert_weights": "api",
    "compare_weights": "api",
    "certify_weights": "api",
    "Recorder": "api",
    "SelfCheck": "api",
    "Trace": "api",
    "TwintraceError": "model.errors",
    "UsageError": "model.errors",
    "SessionError": "model.errors",
    "TraceError": "model.errors",
    "TraceFormatError": "model.errors",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:  # the same names, for type checkers
    from .api import Recorder as Recorder
    from .api import SelfCheck as SelfCheck
    from .api import Trace as Trace
    from .api import certify_weights as certify_weights
    from .api import compare as compare
    from .api import compare_arrays as compare_arrays
    from .api import compare_weights as compare_weights
    from .api import convert_trace as convert_trace
    from .api import convert_weights as convert_weights
    from .api import doctor as doctor
    from .api import first_nonfinite as first_nonfinite
    from .api import map_weights as map_weights
    from .api import open as open
    from .api import record as record
    from .api import seed_all as seed_all
    from .api import selfcheck as selfcheck
    from .api import verdict as verdict
    from .api import zoom as zoom
    from .model.errors import SessionError as SessionError
    from .model.errors import TraceError as TraceError
    from .model.errors import TraceFormatError as TraceFormatError
    from .model.errors import TwintraceError as TwintraceError
    from .model.errors import UsageError as UsageError


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
