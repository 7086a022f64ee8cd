"""twintrace: record what a network computed, lay two records side by side, see where they first part and why.

    import twintrace as tt

    with tt.record("runs/a", net) as rec:        # every module and call, forward and backward
        loss = criterion(net(x), y); loss.backward(); optimizer.step()
        rec.step()

    print(tt.compare("runs/a", "runs/b"))        # the first place where the two runs part, and why

What is public is `__all__` here, and `twintrace.errors`: docs/reference/public.md has the list and what it promises.
Importing this does nothing else: no framework is imported, nothing is patched, no thread is started.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 10):  # noqa: UP036 - pip refuses, but a checkout on PYTHONPATH would fail in the middle of some file
    raise ImportError(
        f"twintrace needs Python 3.10 or newer, and this is Python {sys.version.split()[0]} ({sys.executable}). "
        f"Install it into an environment of a newer one."
    )

__version__ = "0.1.0"

# name -> the module that has it; loaded when the name is first used
_HOMES = {
    "record": "api",
    "open": "api",
    "compare": "api",
    "compare_arrays": "api",
    "convert_trace": "api",
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
    "Trace": "api",
    "Comparison": "api",
    "SelfCheck": "api",
    "WeightMap": "api",
    "Conversion": "api",
    "WeightComparison": "api",
    "Certificate": "api",
}
# Names that were listed once and have moved: they are still there, and not promised (docs/reference/public.md).
_MOVED = {
    "verdict": "api",
    "TwintraceError": "errors",
    "UsageError": "errors",
    "SessionError": "errors",
    "TraceError": "errors",
    "TraceFormatError": "errors",
}

__all__ = ["__version__", "errors", *_HOMES]

if TYPE_CHECKING:  # the same names, for type checkers
    from . import errors as errors
    from .api import Certificate as Certificate
    from .api import Comparison as Comparison
    from .api import Conversion as Conversion
    from .api import Recorder as Recorder
    from .api import SelfCheck as SelfCheck
    from .api import Trace as Trace
    from .api import WeightComparison as WeightComparison
    from .api import WeightMap as WeightMap
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
    from .errors import SessionError as SessionError
    from .errors import TraceError as TraceError
    from .errors import TraceFormatError as TraceFormatError
    from .errors import TwintraceError as TwintraceError
    from .errors import UsageError as UsageError


def __getattr__(name: str) -> object:
    home = "errors" if name == "errors" else _HOMES.get(name) or _MOVED.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f".{home}", __name__)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
