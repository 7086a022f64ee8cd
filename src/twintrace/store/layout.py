"""Names of files and directories in a trace.

    runs/a/
      manifest.json              what this is: format, version, framework, settings
      step0/rank0/journal.jsonl  records of one step of one rank, appended line by line
      step0/rank0/payload.bin    tensor bytes, each content once per rank of a trace (only with keep="tensor")
      step1/rank0/numbers.bin    numbers of a step whose journal is that of an earlier one but for them
      rank0.stage                payload bytes on their way; gone after a clean end
      rank0.uploads              files that have arrived elsewhere, where the trace is uploaded (uploading.py)

Names are made here and nowhere else, from numbers only: nothing that a model or a user named becomes a file name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar, cast

from .remote import RemotePath

Place = Path | RemotePath
"""Folder of a trace that is read, here or elsewhere."""
_P = TypeVar("_P", bound=Path | RemotePath)

FORMAT = "twintrace"
VERSION = 2
PLAIN_VERSION = 1
"""Version of a trace in which every journal is whole."""
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
PAYLOAD = "payload.bin"
NUMBERS = "numbers.bin"
FOLDED = "journal.new"
"""A folded journal before it takes the place of the whole one; left by a killed process, and ignored."""
DRAFT = ".manifest-"
UPLOADS = ".uploads"

_STEP = re.compile(r"step(0|[1-9][0-9]{0,17})")
_RANK = re.compile(r"rank(0|[1-9][0-9]{0,8})")


def journal_dir(root: _P, step: int, rank: int) -> _P:
    """`root/step3/rank0`."""
    return cast("_P", root / f"step{step}" / f"rank{rank}")


def stage_path(root: _P, rank: int) -> _P:
    """`root/rank0.stage`."""
    return cast("_P", root / f"rank{rank}.stage")


def uploads_path(root: Path, rank: int) -> Path:
    """`root/rank0.uploads`."""
    return root / f"rank{rank}{UPLOADS}"


def step_of(name: str) -> int | None:
    """The step of a journal, by its name from the trace's directory on; None of anything else."""
    place = _journal(name)
    return None if place is None else place[0]


def _journal(name: str) -> tuple[int, int] | None:
    """`(step, rank)` of `step3/rank0/journal.jsonl`."""
    match name.split("/"):
        case [step, rank, file] if file == JOURNAL:
            matches = _STEP.fullmatch(step), _RANK.fullmatch(rank)
            return (int(matches[0][1]), int(matches[1][1])) if matches[0] and matches[1] else None
    return None


def is_ours(parts: tuple[str, ...], *, is_folder: bool) -> bool:
    """True for what a writer puts there. `parts` are the names on the way to it, from the trace's directory on."""
    match parts:
        case (name,) if not is_folder:
            rank, _, suffix = name.partition(".")
            return (
                name == MANIFEST
                or name.startswith(DRAFT)
                or (suffix in ("stage", UPLOADS[1:]) and bool(_RANK.fullmatch(rank)))
            )
        case (name,):
            return bool(_STEP.fullmatch(name))
        case (_, name) if is_folder:
            return bool(_RANK.fullmatch(name))
        case (_, _, name) if not is_folder:
            return name in (JOURNAL, PAYLOAD, NUMBERS, FOLDED)
    return False


def journals(root: Place) -> list[tuple[int, int]]:
    """`(step, rank)` of every journal there is, sorted. Anything else in the directory is not ours and is left alone."""
    places = []
    if isinstance(root, RemotePath):
        return sorted(place for name in root.files() if (place := _journal(name)) is not None)
    for step_dir in root.iterdir():
        step = _STEP.fullmatch(step_dir.name)
        if not step or not step_dir.is_dir():
            continue
        for rank_dir in step_dir.iterdir():
            rank = _RANK.fullmatch(rank_dir.name)
            if rank and (rank_dir / JOURNAL).is_file():
                places.append((int(step[1]), int(rank[1])))
    return sorted(places)
