"""Which layouts can be opened and written: a small table of dotted names.

    open_trace("runs/a")                  ours, or any registered layout that recognises the directory
    register("mylayout", "pkg.module")    the module offers `recognises(path)`, `read(path, tolerant)`, `write(trace, path)`

A layout's module is imported when a path is asked about, not before.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Protocol, cast

from ..model.errors import TraceError, TraceNotFoundError, UsageError
from .trace import Trace


class Layout(Protocol):
    """What a layout's module must offer. `write` may be absent: then traces cannot be exported to it."""

    def recognises(self, path: Path) -> bool: ...
    def read(self, path: Path, *, tolerant: bool) -> Trace: ...
    def write(self, trace: Trace, path: Path) -> None: ...


_LAYOUTS: dict[str, str] = {
    "twintrace": "twintrace.store.native",
    "troubleshooter": "twintrace.compat.troubleshooter.layout",
    "mindspore-kernels": "twintrace.store.kernels",
    "torch_npu": "twintrace.compat.torch_npu_hooks.layout",
    "msprobe": "twintrace.compat.msprobe.layout",
}


def register(name: str, module: str) -> None:
    """Make a layout known under `name`. A name can be taken once."""
    if _LAYOUTS.get(name, module) != module:
        raise UsageError(f"layout {name!r} is already registered as {_LAYOUTS[name]}. Choose another name.")
    _LAYOUTS[name] = module


def unregister(name: str) -> None:
    """Forget a layout (for tests and plug-ins that go away)."""
    _LAYOUTS.pop(name, None)


def layouts() -> tuple[str, ...]:
    """The names of all layouts."""
    return tuple(_LAYOUTS)


def layout_of(name: str) -> Layout:
    """The layout called `name`."""
    if name not in _LAYOUTS:
        raise UsageError(f"unknown layout {name!r}: expected one of {', '.join(_LAYOUTS)}.")
    return cast(Layout, importlib.import_module(_LAYOUTS[name]))


def open_trace(path: str | os.PathLike[str], *, tolerant: bool = False) -> Trace:
    """Open a trace of any known layout."""
    root = Path(path)
    try:
        if not root.exists():
            raise TraceNotFoundError(f"{root} does not exist. Give the directory that was given to tt.record.")
        for name in tuple(_LAYOUTS):
            layout = layout_of(name)
            if layout.recognises(root):
                return layout.read(root, tolerant=tolerant)
    except OSError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceNotFoundError(f"{root} cannot be read ({error.strerror}).") from error
    raise TraceNotFoundError(
        f"{root} is not a trace of any known layout ({', '.join(_LAYOUTS)}). "
        f"Give the directory that was given to tt.record: it holds a manifest.json."
    )
