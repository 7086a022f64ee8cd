"""MindSpore's checkpoint files, read and written without MindSpore and without protobuf.

    file      = Value*  [ "crc_num" + 10 bytes, big-endian: the CRC-32 of what is before ]
    Value     = 0a length ( 0a length tag   12 length Tensor )
    Tensor    = 08 dim …   12 length type   1a length content

The file is one protobuf message `Checkpoint { repeated Value value = 1 }`, written as many that follow each other. A tensor of
more than half a gigabyte comes in several Values of the same tag, each with the shape of the whole. Only lengths are read
to find the tensors; contents are skipped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ..model.dtypes import MINDSPORE_NAMES
from ..model.errors import CheckpointError
from ..model.tensors import Spec
from ..store.arrays import nbytes
from .extents import BLOCK, Checkpoint, Extent, Stored, check

_HELD = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "b8")
NAMES = {MINDSPORE_NAMES[dtype]: dtype for dtype in _HELD}
CODES = {ours: theirs for theirs, ours in NAMES.items()}
SLICE = 512 << 20  # MindSpore's own; one message must stay below two gigabytes
_TRAILER = b"crc_num"


def read(path: Path) -> Checkpoint:
    """The index of a file. A checksum, where the file has one, is checked first."""
    size = path.stat().st_size
    notes: list[str] = []
    parts: dict[str, list[Extent]] = {}
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    with path.open("rb") as file:
        end = _check_crc(path, file, size)
        scanner = _Scanner(path, file, end)
        while scanner.at < end:
            tag, kind, dims, content = scanner.value()
            if kind == "str":
                notes.append(f"{tag} is a text, not a tensor: left out")
                continue
            if kind not in NAMES:
                raise CheckpointError(f"{path}: {tag} has element type {kind!r}; known are {', '.join(NAMES)}.")
            if shapes.setdefault(tag, (kind, dims)) != (kind, dims):
                raise CheckpointError(
                    f"{path}: {tag} is there twice, as {shapes[tag]} and as {(kind, dims)}. It is damaged."
                )
            parts.setdefault(tag, []).append(Extent(path, content[0], content[1]))
    stored: dict[str, Stored] = {}
    sizes = {path: size}
    for tag, extents in parts.items():
        kind, dims = shapes[tag]
        if dims == (0,) and any(extent.nbytes > 0 for extent in extents):
            dims = ()  # how older versions write a tensor without dimensions
        stored[tag] = Stored(Spec(NAMES[kind], dims), tuple(extents))
        check(path, tag, stored[tag], sizes)
    return Checkpoint(str(path), "ckpt", stored, notes=tuple(notes), metadata={"format": "ms"})


def _check_crc(path: Path, file: BinaryIO, size: int) -> int:
    """End of the messages."""
    file.seek(max(0, size - 17))
    tail = file.read(17)
    file.seek(0)
    if len(tail) < 17 or tail[:7] != _TRAILER:
        return size
    left, crc = size - 17, 0
    while left:
        block = file.read(min(left, BLOCK))
        crc = zlib.crc32(block, crc)
        left -= len(block)
    file.seek(0)
    if crc != int.from_bytes(tail[7:], "big"):
        raise CheckpointError(
            f"{path}: the bytes are not those that were written (CRC-32). The file is damaged; get it again."
        )
    return size - 17


class _Scanner:
    """Walks over the messages of a file."""

    def __init__(self, path: Path, file: BinaryIO, end: int) -> None:
        self._path, self._file, self._end = path, file, end
        self.at = 0

    def value(self) -> tuple[str, str, tuple[int, ...], tuple[int, int]]:
        """(tag, element type, dims, (offset, length) of the content) of the next Value."""
        start = self.at
        key, stop = self._field(self._end)
        if key != 0x0A:
            raise self._fault(start, f"field {key:#x} where a Value (0x0a) was expected")
        tag = kind = ""
        dims: list[int] = []
        content = (0, 0)
        while self.at < stop:
            where = self.at
            key, inner = self._field(stop)
            if key == 0x0A:
                tag = self._text(inner)
            elif key == 0x12:
                kind, content = self._tensor(inner, dims)
            elif key == 0x1A:
                raise CheckpointError(
                    f"{self._path}: {tag} is a MapParameter (a hash table), which PyTorch does not have."
                )
            else:
                raise self._fault(where, f"field {key:#x} inside a Value")
        if not tag or not kind:
            raise self._fault(start, "a Value without a tag, or without a tensor")
        return tag, kind, tuple(dims), content

    def _tensor(self, stop: int, dims: list[int]) -> tuple[str, tuple[int, int]]:
        kind, content = "", (0, 0)
        while self.at < stop:
            where = self.at
            key = self._varint(stop)
            if key == 0x08:
                dims.append(self._varint(stop))
                continue
            inner = self._length(stop)
            if key == 0x0A:  # the same, packed
                while self.at < inner:
                    dims.append(self._varint(inner))
            elif key == 0x12:
                kind = self._text(inner)
            elif key == 0x1A:
                content = (self.at, inner - self.at)
                self._file.seek(inner)
                self.at = inner
            else:
                raise self._fault(where, f"field {key:#x} inside a tensor")
        return kind, content

    def _field(self, stop: int) -> tuple[int, int]:
        key = self._varint(stop)
        return key, self._length(stop) if key & 7 == 2 else stop

    def _length(self, stop: int) -> int:
        start = self.at
        length = self._varint(stop)
        if self.at + length > stop:
            raise self._fault(start, f"{length} bytes are announced and {stop - self.at} are there")
        return self.at + length

    def _varint(self, stop: int) -> int:
        number = shift = 0
        start = self.at
        while True:
            byte = self._file.read(1)
            if not byte or self.at >= stop or shift > 63:
                raise self._fault(start, "a number that does not end")
            self.at += 1
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return number
            shift += 7

    def _text(self, stop: int) -> str:
        start = self.at
        if stop - start > 1 << 16:
            raise self._fault(start, "a name of more than 64 KB")
        raw = self._file.read(stop - start)
        self.at = stop
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._fault(start, "a name that is not UTF-8") from None

    def _fault(self, at: int, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path}: at byte {at}: {what}. The file is no MindSpore checkpoint, is damaged, or is encrypted "
            f"(decrypt it first: ms.load_checkpoint(…, dec_key=…) and save it again)."
        )


def write(file: BinaryIO, specs: Mapping[str, Spec], path: Path) -> Iterator[int]:
    """Write the header of each stretch of bytes; yields how many are due."""
    for name, spec in specs.items():
        if spec.dtype not in CODES:
            raise CheckpointError(
                f"{path}: a MindSpore checkpoint cannot hold {spec.dtype} ({name}: {spec}). Write a .safetensors file instead."
            )
    for name, spec in specs.items():
        tag = name.encode()
        total = nbytes(spec)
        dims = b"".join(b"\x08" + varint(size) for size in spec.shape)
        head = dims + _lengthy(0x12, CODES[spec.dtype].encode())
        for start in range(0, max(total, 1), SLICE):
            count = min(SLICE, total - start)
            tensor = head + b"\x1a" + varint(count)
            value = _lengthy(0x0A, tag) + b"\x12" + varint(len(tensor) + count) + tensor
            file.write(b"\x0a" + varint(len(value) + count) + value)
            yield count


def _lengthy(key: int, raw: bytes) -> bytes:
    return bytes([key]) + varint(len(raw)) + raw


def varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits at a time, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
