"""Layouts that can be opened and written: two small tables of dotted names.

    open_trace("runs/a")                      ours, or any registered layout that recognises the directory
    write_trace(trace, path, "msprobe")       a copy in another layout
    register("mylayout", "pkg.module")        the module offers `recognises(path)` and `read(path, tolerant)`
    register("mylayout", "pkg.module", writes="pkg.writing")     and that one `write(trace, path, tell)`

A layout's module is imported when a path is asked about, not before.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Protocol, cast

from ..model.errors import TraceError, TraceNotFoundError, UsageError
from ..model.words import Progress
from .remote import is_remote, remote_path
from .trace import Trace


class Layout(Protocol):
    """Functions that a layout's module must offer."""

    def recognises(self, path: Path) -> bool: ...
    def read(self, path: Path, *, tolerant: bool) -> Trace: ...


Tell = Progress


class Exporter(Protocol):
    """Functions that the module of a layout that can be written must offer. There is nothing at `path` yet."""

    def write(self, trace: Trace, path: Path, *, tell: Tell | None = None) -> None: ...


_LAYOUTS: dict[str, str] = {
    "twintrace": "twintrace.store.native",
    "troubleshooter": "twintrace.compat.troubleshooter.layout",
    "msprobe": "twintrace.compat.msprobe.layout",
    "mindspore-kernels": "twintrace.compat.mindspore_kernels.layout",
    "torch_npu": "twintrace.compat.torch_npu_hooks.layout",
}

_EXPORTERS: dict[str, str] = {
    "twintrace": "twintrace.store.native",
    "troubleshooter": "twintrace.compat.troubleshooter.layout",
    "torch_npu": "twintrace.compat.torch_npu_hooks.layout",
    "msprobe": "twintrace.compat.msprobe.layout",
}


def register(name: str, module: str, *, writes: str | None = None) -> None:
    """Make a layout known under `name`. A name can be taken once."""
    if _LAYOUTS.get(name, module) != module:
        raise UsageError(f"layout {name!r} is already registered as {_LAYOUTS[name]}. Choose another name.")
    _LAYOUTS[name] = module
    if writes is not None:
        _EXPORTERS[name] = writes


def unregister(name: str) -> None:
    """Forget a layout (for tests and plug-ins that go away)."""
    _LAYOUTS.pop(name, None)
    _EXPORTERS.pop(name, None)


def layouts() -> tuple[str, ...]:
    """The names of all layouts."""
    return tuple(_LAYOUTS)


def exporters() -> tuple[str, ...]:
    """The names of the layouts that a trace can be written in."""
    return tuple(_EXPORTERS)


def write_trace(trace: Trace, path: Path, layout: str, *, tell: Tell | None = None) -> None:
    """Write a copy of a trace in another layout, at a path where nothing is yet. What was begun is left behind if it fails."""
    if layout not in _EXPORTERS:
        raise UsageError(f"layout {layout!r}: expected one that can be written, {', '.join(_EXPORTERS)}.")
    cast(Exporter, importlib.import_module(_EXPORTERS[layout])).write(trace, path, tell=tell)


def layout_of(name: str) -> Layout:
    """The layout called `name`."""
    if name not in _LAYOUTS:
        raise UsageError(f"unknown layout {name!r}: expected one of {', '.join(_LAYOUTS)}.")
    return cast(Layout, importlib.import_module(_LAYOUTS[name]))


def open_trace(path: str | os.PathLike[str] | Trace, *, tolerant: bool = False) -> Trace:
    """Open a trace of any known layout; of another file system (`s3://bucket/runs/a`), one of our own. An open one stays open."""
    if isinstance(path, Trace):
        return path
    if is_remote(path):
        return _open_remote(str(path), tolerant=tolerant)
    try:
        root = Path(path)
    except TypeError:
        raise UsageError(f"expected the directory of a trace, got {path!r}.") from None
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
    advice = "Give the directory that was given to tt.record: it holds a manifest.json."
    if root.is_dir() and any(root.glob("*.npy")):
        advice = "It is a folder of .npy files: compare two such with `twintrace npy compare`, or tt.compare_arrays."
    raise TraceNotFoundError(f"{root} is not a trace of any known layout ({', '.join(_LAYOUTS)}). {advice}")


def _open_remote(url: str, *, tolerant: bool) -> Trace:
    from .reader import is_native, open_native

    root = remote_path(url)
    try:
        if is_native(root):
            return open_native(root, tolerant=tolerant)
    except OSError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceNotFoundError(f"{url} cannot be read ({error}).") from error
    raise TraceNotFoundError(
        f"{url} is not a trace of ours: it has no manifest.json. Dumps of other tools are read from a local path: copy it here."
    )
