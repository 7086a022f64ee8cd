"""A trace as a golden file: small, and the same on every machine.

    portable_copy(trace, "golden/test_net/test_step", root)

Without what belongs to a machine or a moment: the time of recording, files outside `root` in stacks, the way to `root`. Everything
else is the trace as it was, so that every command opens it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ..model.errors import UsageError
from ..store import layout
from ..store.lines import seal, unseal
from ..store.reader import body_of


def portable_copy(source: Path, target: Path, root: Path) -> None:
    """Copy a closed trace to `target`, in place of an older one.

    Raises:
        UsageError: `target` is there and is no trace, or holds other files as well.
    """
    _clear(target)
    target.mkdir(parents=True)
    manifest = json.loads((source / layout.MANIFEST).read_text(encoding="utf-8"))
    manifest.pop("created", None)
    (target / layout.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for step, rank in layout.journals(source):
        here, there = layout.journal_dir(source, step, rank), layout.journal_dir(target, step, rank)
        there.mkdir(parents=True)
        lines = body_of(source, step, rank).splitlines(keepends=True)
        (there / layout.JOURNAL).write_bytes(b"".join(_portable(line, root) for line in lines))
        payload = here / layout.PAYLOAD
        if payload.exists() and payload.stat().st_size:
            shutil.copyfile(payload, there / layout.PAYLOAD)


def _portable(raw: bytes, root: Path) -> bytes:
    if not raw.startswith(b'{"k":"stack"'):
        return raw
    line: dict[str, Any] = unseal(raw)
    frames = [(Path(frame[0]), frame) for frame in line["frames"]]
    line["frames"] = [
        [path.relative_to(root).as_posix(), *rest] for path, (_, *rest) in frames if path.is_relative_to(root)
    ]
    return seal(line)


def _clear(target: Path) -> None:
    """Remove an older golden trace, and nothing else."""
    if not target.exists():
        return
    inside = [path for path in target.rglob("*")]
    strange = [path for path in inside if not layout.is_ours(path.relative_to(target).parts, is_folder=path.is_dir())]
    if strange or (inside and not (target / layout.MANIFEST).is_file()):
        raise UsageError(
            f"{target}: expected a golden trace, and there is {(strange or inside)[0].name}. Move it away."
        )
    shutil.rmtree(target)
