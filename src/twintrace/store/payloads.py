"""Bytes of tensors: out of payload.bin, or out of the ring where a killed process left them.

    payloads = Payloads(root, step, rank, stage, stage_of_step)
    payloads.read(tensor.payload, where)          its bytes, all of them, or TraceFormatError

A large tensor is mapped by itself; small ones are read together with those around them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from ..model.errors import TraceFormatError
from ..model.tensors import Location
from . import layout
from .remote import RemotePath
from .stage import read_staged

_MAPPED = 256 << 10  # bytes of a tensor from which on mapping is cheaper than reading
_SMALL, _WINDOW = 4 << 10, 64 << 10
"""Bytes of a tensor up to which those around it are read along with it: opening a file takes as long as reading 64 KB of it."""

Stage = tuple[int, int] | None
"""Where the payload of a step began in the ring, and the size of the ring; None of a step without values."""


class Payloads:
    """Payloads of one step of one rank, and of the earlier steps that it refers to.

    `stage_of_step` tells the stage of another step.
    """

    def __init__(
        self, root: layout.Place, step: int, rank: int, stage: Stage, stage_of_step: Callable[[int], Stage]
    ) -> None:
        self._root, self._step, self._rank = root, step, rank
        self._stages: dict[int, Stage] = {step: stage}
        self._stage_of_step = stage_of_step
        self._window: tuple[int, int, bytes] = (step, 0, b"")

    def read(self, location: Location, where: str) -> memoryview | bytes:
        """The bytes there; TraceFormatError, which begins with `where`, if not all of them can be had."""
        step = self._step if location.step is None else location.step
        end = location.offset + location.nbytes
        held, first, near = self._window  # other threads may read another one meanwhile
        if held == step and first <= location.offset and end <= first + len(near):
            return near[location.offset - first : end - first]
        try:
            path = layout.journal_dir(self._root, step, self._rank) / layout.PAYLOAD
            if location.nbytes > _SMALL or isinstance(path, RemotePath):  # of a remote one no more than is asked for
                raw, size = _payload_piece(path, location)
            else:
                first = location.offset - location.offset % _WINDOW
                around, size = _payload_piece(path, Location(first, _WINDOW + _SMALL))
                self._window = step, first, bytes(around)
                raw = bytes(around[location.offset - first : end - first])
            if len(raw) < location.nbytes:
                raw = self._from_stage(location, step, bytes(raw), size)
        except (OSError, MemoryError) as error:
            raise TraceFormatError(f"{where}: field 'at': {location.nbytes} bytes cannot be read ({error}).") from error
        if len(raw) != location.nbytes:
            raise TraceFormatError(
                f"{where}: field 'at': bytes {location.offset} to {end} of step {step}'s payload, which has {size}. "
                f"The payload is cut off."
            )
        return raw

    def _from_stage(self, location: Location, step: int, written: bytes, size: int) -> bytes:
        """Bytes that had not reached `payload.bin` (of `size` bytes) when the process was killed: they are still in the ring."""
        if step not in self._stages:
            self._stages[step] = self._stage_of_step(step)
        stage = self._stages[step]
        file = layout.stage_path(self._root, self._rank)
        if stage is None or not file.is_file() or file.stat().st_size != stage[1] or location.nbytes > size + stage[1]:
            return b""
        return written + read_staged(file, stage[0] + location.offset + len(written), location.nbytes - len(written))


def _payload_piece(path: layout.Place, location: Location) -> tuple[memoryview | bytes, int]:
    """The bytes of one tensor, as far as the file has them, and the size of the file.

    A large one is mapped on its own, and no longer than somebody holds it: a payload mapped as a whole stays in the memory of
    the process once it has been looked at, and traces are larger than memory.
    """
    if not path.is_file():
        return b"", 0
    if isinstance(path, RemotePath):
        size = path.stat().st_size
        length = min(location.nbytes, size - location.offset)
        return (path.piece(location.offset, length) if length > 0 else b""), size
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = min(location.nbytes, size - location.offset)
        if length <= 0:
            return b"", size
        if length < _MAPPED:
            file.seek(location.offset)
            return file.read(length), size
        before = location.offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(file.fileno(), length + before, access=mmap.ACCESS_READ, offset=location.offset - before)
        return memoryview(mapped)[before:], size
