"""Read our own layout (FORMAT.md): a directory as a Trace.

open_native(path)                 Trace; a damaged line raises TraceFormatError when it is reached
open_native(path, tolerant=True)  Trace; damaged lines are skipped and listed in journal.damage

journal.py     one journal: its lines, indexed and parsed as they are asked for
parsing.py     a line as a record of the model
payloads.py    the bytes of tensors
folded.py      journals that refer to an earlier step
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.errors import TraceFormatError, TraceNotFoundError
from . import layout
from .folded import FoldedJournal, Journals
from .journal import NativeJournal
from .lines import MAX_MANIFEST, decode, optional_of
from .parsing import check_version
from .trace import Trace


def is_native(path: layout.Place) -> bool:
    """True for a directory of our own layout."""
    return (path / layout.MANIFEST).is_file()


def open_native(path: layout.Place, *, tolerant: bool = False) -> Trace:
    """Open a trace directory. Reads the manifest and the names of the journals, nothing else."""
    manifest = _read_manifest(path / layout.MANIFEST)
    try:
        places = layout.journals(path)
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error

    journals = Journals(path, tolerant)

    def load(step: int, rank: int) -> NativeJournal | FoldedJournal:
        return journals.open(step, rank)

    return Trace(str(path), manifest, places, load)


def body_of(root: layout.Place, step: int, rank: int) -> bytes:
    """The lines of a journal, head and all, as they were before it was folded."""
    journal = Journals(root, False).open(step, rank)
    return journal.whole()


def _read_manifest(file: layout.Place) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_MANIFEST + 1)
    except FileNotFoundError:
        raise TraceNotFoundError(
            f"{file.parent} is not a trace: it has no {layout.MANIFEST}. Give the directory that was given to tt.record."
        ) from None
    except OSError as error:
        raise TraceFormatError(f"{file}: cannot be read ({error.strerror}).") from error
    if len(raw) > MAX_MANIFEST:
        raise TraceFormatError(f"{file}: expected at most {MAX_MANIFEST} bytes, found more. The manifest is damaged.")
    try:
        manifest = decode(raw)
    except ValueError as error:
        raise TraceFormatError(
            f"{file}: expected JSON, got something else ({error}). The manifest is damaged."
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != layout.FORMAT:
        raise TraceFormatError(f"{file}: field 'format': expected '{layout.FORMAT}'. This is not a trace.")
    check_version(manifest.get("version"), str(file), "version")
    for name, kind in (("framework", str), ("settings", dict), ("world", int)):
        optional_of(manifest, name, kind, None, str(file))
    return manifest
