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

__version__ = "0.2.0.dev0"  # of the release that this leads to; 0.1.0 is the last that there is

__all__ = [
    "Certificate", "Comparison", "Conversion", "Recorder", "SelfCheck", "Trace", "WeightComparison", "WeightMap", "__version__",
    "certify_weights", "compare", "compare_arrays", "compare_weights", "convert_trace", "convert_weights", "doctor", "errors",
    "first_nonfinite", "map_weights", "open", "record", "seed_all", "selfcheck", "zoom",
]  # fmt: skip
# Names that were listed once and have moved: they are still there, and not promised (docs/reference/public.md).
_MOVED = ("verdict", "TwintraceError", "UsageError", "SessionError", "TraceError", "TraceFormatError")

# Loaded when they are first used. Classes come from their own modules: `api` gathers several of one name, and type checkers and
# the reference would take the wrong one.
if TYPE_CHECKING:
    from . import errors
    from .api import (
        certify_weights,
        compare,
        compare_arrays,
        compare_weights,
        convert_trace,
        convert_weights,
        doctor,
        first_nonfinite,
        map_weights,
        open,
        record,
        seed_all,
        selfcheck,
        zoom,
    )  # fmt: skip
    from .api import verdict as verdict
    from .api.results import Certificate, Comparison, Conversion, WeightComparison, WeightMap
    from .api.traces import Trace
    from .collect.selfcheck import SelfCheck
    from .collect.session import Session as Recorder
    from .errors import SessionError as SessionError
    from .errors import TraceError as TraceError
    from .errors import TraceFormatError as TraceFormatError
    from .errors import TwintraceError as TwintraceError
    from .errors import UsageError as UsageError


def __getattr__(name: str) -> object:
    if name not in __all__ and name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = importlib.import_module(".errors" if name.endswith(("errors", "Error")) else ".api", __name__)
    value = globals()[name] = module if name == "errors" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
