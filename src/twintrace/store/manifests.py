"""The manifest of a trace: claims a directory for one run, tells whose a directory is, and what in it may be removed.

claim(root, document, rank=0, world=1)      the manifest is put in place in one step; other ranks of the run join
resume(root, document, rank=0)              goes on in the trace that is there, if it was recorded alike
remove_trace(root)                          an old trace, and only a trace
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..model.errors import TraceExistsError
from . import layout
from .lines import MAX_MANIFEST, decode
from .recovery import recover

_SAME_RUN = ("format", "version", "framework", "settings", "world")


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Settings that two recordings in one trace must have in common, and that these manifests have not."""
    return [key for key in _SAME_RUN if one.get(key) != other.get(key)]


def taken(place: object, world: int) -> TraceExistsError:
    """The error where another trace is in the way."""
    remedy = "record with overwrite=True to replace it" if world == 1 else "remove it before the ranks are started"
    return TraceExistsError(f"{place} already holds another trace. Choose another place, or {remedy}.")


def shared(place: object, strangers: Iterable[str]) -> TraceExistsError:
    """The error where files that are no part of a trace lie in its directory."""
    return TraceExistsError(
        f"{place} holds a trace and something else ({', '.join(sorted(strangers)[:3])} …), "
        f"so nothing was removed. Choose another place, or move that away."
    )


def claim(root: Path, document: Mapping[str, Any], *, rank: int, world: int) -> None:
    """Put the manifest in place in one step, so that no reader and no other rank ever sees half of it.

    Where another rank was here first that is fine if it belongs to the same run and this rank has written nothing yet.
    """
    manifest = root / layout.MANIFEST
    # Not the pid: ranks in containers of their own may all be process 7.
    draft = root / f"{layout.DRAFT}{os.urandom(8).hex()}"
    draft.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    try:
        os.link(draft, manifest)
        strangers = [
            p.name for p in root.iterdir() if p.name != layout.MANIFEST and not p.name.startswith(layout.DRAFT)
        ]
        if strangers and world == 1:
            manifest.unlink()
            raise TraceExistsError(
                f"{root} is not empty ({', '.join(sorted(strangers)[:3])} …) and holds no trace. Choose an empty directory."
            )
    except FileExistsError as error:
        if isinstance(error, TraceExistsError):
            raise
        joins = world > 1 and not unlike(read_manifest(manifest), document)
        if not joins or any(other == rank for _, other in layout.journals(root)):
            raise taken(root, world) from None
    finally:
        draft.unlink(missing_ok=True)


def resume(root: Path, document: Mapping[str, Any], *, rank: int) -> None:
    """Go on in a trace that is there. What a killed process has left in the ring is brought to its place first."""
    other = read_manifest(root / layout.MANIFEST)
    if keys := unlike(other, document):
        told = "; ".join(f"{key}: {other.get(key)!r} there, {document.get(key)!r} now" for key in keys)
        raise TraceExistsError(
            f"{root} holds a trace that was recorded otherwise ({told}), so recording cannot go on there. "
            f"Record in the same way, or choose another path."
        )
    recover(root, rank)


def read_manifest(file: Path) -> Mapping[str, Any]:
    """The manifest, or an empty mapping: somebody else may have put anything under this name."""
    try:
        if not file.is_file():  # a pipe would not answer
            return {}
        with file.open("rb") as opened:
            return document_of(opened.read(MAX_MANIFEST))
    except OSError:
        return {}


def document_of(manifest: bytes) -> Mapping[str, Any]:
    """The text of a manifest as a mapping, which is empty where it is none."""
    try:
        document = decode(manifest)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def identity(file: Path) -> tuple[int, int, int] | None:
    """Identity of a file, whatever has been put under its name; None where there is none."""
    try:
        facts = file.stat()
    except OSError:
        return None
    # With the time: the number of a file that was removed is soon given to another.
    return (facts.st_dev, facts.st_ino, facts.st_mtime_ns) if stat.S_ISREG(facts.st_mode) else None


def trace_entries(root: Path) -> list[Path]:
    """All files and folders of a trace, in an order in which they can be removed; none where there is no trace.

    Raises:
        TraceExistsError: something that is no part of a trace lies among them.
    """
    manifest = root / layout.MANIFEST
    if read_manifest(manifest).get("format") != layout.FORMAT:
        return []
    files: list[Path] = []
    folders: list[Path] = []
    strangers: list[str] = []
    pending = [entry for entry in root.iterdir() if entry != manifest]
    while pending:
        entry = pending.pop()
        is_folder = entry.is_dir() and not entry.is_symlink()
        parts = entry.relative_to(root).parts
        # A link, which is not followed, may stand for either.
        if not any(layout.is_ours(parts, is_folder=kind) for kind in {is_folder, is_folder or entry.is_symlink()}):
            strangers.append("/".join(parts))
        elif is_folder:
            folders.append(entry)
            pending.extend(entry.iterdir())
        else:
            files.append(entry)
    if strangers:
        raise shared(root, strangers)
    # A folder was met before those in it. The manifest is last: what is left by a kill in between is still a trace.
    return [*files, *reversed(folders), manifest]


def remove_trace(root: Path) -> None:
    """Remove an old trace, and only a trace: what does not look like one stays, and `create` will say so.

    What was looked at goes, one by one: a file that somebody puts there meanwhile stops it.
    """
    for entry in trace_entries(root):
        if entry.is_dir() and not entry.is_symlink():
            entry.rmdir()
        else:
            entry.unlink()
