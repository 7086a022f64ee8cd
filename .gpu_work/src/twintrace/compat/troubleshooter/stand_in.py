"""`import troubleshooter as ts` without TroubleShooter: for scripts that are to run unchanged.

    with provide():
        runpy.run_path("sample.py")       # `troubleshooter`, `troubleshooter.migrator`, … are this embassy

Where the real one is installed it is hidden meanwhile: on today's frameworks it does not import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from .left_out import refuse_import

_REAL = "troubleshooter"
_OURS = __name__.rpartition(".")[0]


@contextmanager
def provide() -> Iterator[None]:
    """The embassy under the real tool's name; as it was before, afterwards, and the dump closed."""
    from .migrator import api_dump

    finder = _LeftOut()
    before = {name: module for name, module in sys.modules.items() if _is_below(name, _REAL)}
    try:
        _put()
        sys.meta_path.insert(0, finder)
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        api_dump.close()
        for name in [name for name in sys.modules if _is_below(name, _REAL)]:
            del sys.modules[name]
        sys.modules.update(before)


class _LeftOut:
    """Finds no module; of those that the real tool has and we have not it says why."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """An ImportError with our sentence, or nothing."""
        if _is_below(name, _REAL):
            refuse_import(name.removeprefix(f"{_REAL}."))


def _put() -> None:
    """All modules of the embassy that are imported by now: the same objects, so that there is one dump and not two."""
    for name in [name for name in sys.modules if _is_below(name, _REAL)]:
        del sys.modules[name]
    ours: dict[str, ModuleType] = {name: module for name, module in sys.modules.items() if _is_below(name, _OURS)}
    for name, module in ours.items():
        sys.modules[_REAL + name.removeprefix(_OURS)] = module


def _is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
