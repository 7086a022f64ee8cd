"""Places of a checkpoint's tensors on disk, and their way into memory: one at a time, or in blocks.

    Checkpoint("net.ckpt", "ckpt", {"fc.weight": Stored(f32[4, 3], one Extent of 48 bytes at 30), …})
    .specs                 fc.weight: f32[4, 3]
    .read("fc.weight")     a numpy array in its storage type, read now
    .blocks("fc.weight")   the same bytes in pieces of a megabyte

A format's own module finds out where things are and returns `Stored`; all reading is here. Files are read, not mapped: pages
of a map count as the process's memory, and "no more than the largest tensor" would not hold. Where a format keeps a checksum
of a stretch of bytes, it is checked while they are read.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..model.errors import CheckpointError, UsageError
from ..model.tensors import DTYPES, Spec
from ..model.words import some
from ..store.arrays import STORAGE, nbytes

BLOCK = 1 << 20
"""Bytes read and written at once: they fit into a processor's own cache. Four times as many take longer."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of a file. `crc` is the CRC-32 of exactly these bytes, where the format has one."""

    file: Path
    offset: int
    nbytes: int
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor on disk: its bytes are those of the extents, one after the other.

    `strides` (in elements) is given where the tensor is not stored in row-major order; the extent then begins with its
    first element and covers its last.
    """

    spec: Spec
    extents: tuple[Extent, ...]
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors in one or more files. `aliases` names those that are another one's memory: tied parameters."""

    path: str
    format: str
    stored: Mapping[str, Stored]
    aliases: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def specs(self) -> dict[str, Spec]:
        """Shape and type of each tensor, in the order of the file."""
        return {name: item.spec for name, item in self.stored.items()}

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """The tensor, C-contiguous, in its storage type."""
        item = self._find(name)
        dtype = STORAGE[item.spec.dtype]
        if item.strides is None:
            whole = np.empty(nbytes(item.spec), np.uint8)
            at = 0
            for block in self.blocks(name):
                whole[at : at + len(block)] = np.frombuffer(block, np.uint8)
                at += len(block)
            return whole.view(dtype).reshape(item.spec.shape)
        raw = np.concatenate([np.frombuffer(b"".join(read_extent(extent, name)), np.uint8) for extent in item.extents])
        elements = raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
        strides = tuple(stride * dtype.itemsize for stride in item.strides)
        view = np.lib.stride_tricks.as_strided(elements, item.spec.shape, strides, writeable=False)
        return np.array(view, order="C")

    def blocks(self, name: str) -> Iterator[memoryview]:
        """The tensor's bytes in row-major order, in pieces. A piece is valid until the next one is asked for."""
        item = self._find(name)
        if item.strides is not None:
            yield from pieces(self.read(name))
            return
        for extent in item.extents:
            yield from read_extent(extent, name)

    def verify(self, name: str) -> None:
        """Read the tensor, if only to check its checksum. Without one there is nothing to check."""
        if any(extent.crc is not None for extent in self._find(name).extents):
            for _ in self.blocks(name):
                pass

    def _find(self, name: str) -> Stored:
        try:
            return self.stored[name]
        except KeyError:
            raise UsageError(f"{self.path} has no tensor {name!r}; it has {some(self.stored) or 'none'}.") from None


def copy_extent(extent: Extent, file: BinaryIO) -> bool:
    """Append an extent to an open file without bringing it into memory. False, and nothing done, where the system cannot."""
    if not hasattr(os, "copy_file_range"):
        return False
    file.flush()
    done = 0
    with extent.file.open("rb", buffering=0) as source:
        while done < extent.nbytes:
            try:
                count = os.copy_file_range(source.fileno(), file.fileno(), extent.nbytes - done, extent.offset + done)
            except OSError:  # another file system, an old kernel
                if not done:
                    return False
                raise
            if not count:
                raise CheckpointError(f"{extent.file}: ends in the middle of a tensor. It is damaged; get it again.")
            done += count
    file.seek(0, os.SEEK_END)  # Python's own idea of the position
    return True


def pieces(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """The bytes of an array in memory, in pieces."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
    for start in range(0, len(data), BLOCK):
        yield data[start : start + BLOCK]


def check(path: Path, name: str, item: Stored, sizes: dict[Path, int]) -> None:
    """Refuse impossible places: bytes outside the file, or not as many as the shape wants."""
    for extent in item.extents:
        if extent.file not in sizes:
            sizes[extent.file] = extent.file.stat().st_size
        if extent.offset < 0 or extent.nbytes < 0 or extent.offset + extent.nbytes > sizes[extent.file]:
            raise CheckpointError(
                f"{extent.file}: {name} should be {extent.nbytes} bytes at {extent.offset}, but the file has "
                f"{sizes[extent.file]} bytes. It is damaged or was not written to its end; get it again."
            )
    if item.spec.dtype not in DTYPES or any(size < 0 for size in item.spec.shape) or len(item.spec.shape) > 32:
        raise CheckpointError(f"{path}: {name} is said to be {item.spec}, which no tensor is. The file is damaged.")
    stored = sum(extent.nbytes for extent in item.extents)
    if item.strides is None and stored != nbytes(item.spec):
        raise CheckpointError(
            f"{path}: {name} is said to be {item.spec}, that is {nbytes(item.spec)} bytes, but {stored} are stored. "
            f"The file is damaged."
        )


def read_extent(extent: Extent, name: str) -> Iterator[memoryview]:
    """The bytes of an extent in pieces; the last one is given only if the checksum is right."""
    buffer = memoryview(bytearray(min(BLOCK, extent.nbytes)))
    left, crc = extent.nbytes, 0
    with extent.file.open("rb", buffering=0) as file:
        file.seek(extent.offset)
        while left:
            got = file.readinto(buffer[: min(left, BLOCK)])
            if not got:
                raise CheckpointError(f"{extent.file}: ends in the middle of {name}. It is damaged; get it again.")
            left -= got
            piece = buffer[:got]
            if extent.crc is not None:
                crc = zlib.crc32(piece, crc)
                if not left and crc != extent.crc:  # before the last piece is handed out: it is not to be used
                    raise CheckpointError(
                        f"{extent.file}: the bytes of {name} are not those that were written (CRC-32 {crc:08x}, expected "
                        f"{extent.crc:08x}). The file is damaged; get it again."
                    )
            yield piece
