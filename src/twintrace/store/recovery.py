"""Bring a trace that a killed process left behind into the state in which a clean end leaves it.

    recover(root, rank)     payload bytes that were still in the ring are in payload.bin, and the ring is gone

Readers need none of this: they look into the ring. Whoever goes on recording in the trace needs the ring's place.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..model.errors import TraceFormatError, TraceWriteError
from . import layout
from .journal import NativeJournal


def recover(root: Path, rank: int) -> None:
    """Empty the ring of one rank. What is damaged is left out: it is as damaged afterwards."""
    ring = layout.stage_path(root, rank)
    if not ring.is_file():
        return
    try:
        for step, own in layout.journals(root):
            if own == rank:
                _complete(root, step, rank)
        ring.unlink()
    except OSError as error:
        raise TraceWriteError(
            f"{ring}: what a killed process left there could not be brought to its place ({error.strerror})."
        ) from error


def _complete(root: Path, step: int, rank: int) -> None:
    """Write what is missing of one step's payload. The ring is not read beyond what the journal addresses."""
    file = layout.journal_dir(root, step, rank) / layout.PAYLOAD
    if not file.is_file():
        return
    journal = NativeJournal(root, step, rank, tolerant=True)
    size = file.stat().st_size
    missing = [
        tensor
        for tensor in journal.tensors()
        if tensor.payload is not None
        and tensor.payload.step is None
        and tensor.payload.offset + tensor.payload.nbytes > size
    ]
    pieces: list[tuple[int, bytes]] = []
    for tensor in missing:
        try:
            assert tensor.payload is not None
            pieces.append((tensor.payload.offset, journal.array(tensor).tobytes()))
        except TraceFormatError:
            continue
    if pieces:
        descriptor = os.open(file, os.O_WRONLY)
        try:
            for offset, data in pieces:
                os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)
