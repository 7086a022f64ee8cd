"""PyTorch's checkpoint files, read and written without torch, and without running anything that is in them (`pickles.py`).

    archive/data.pkl      OrderedDict of _rebuild_tensor_v2(storage "0", offset, shape, strides, …)
    archive/data/0        the bytes of storage "0"
    archive/byteorder     little

The format from before 2020 (five pickles, then the storages) is read too.
"""

from __future__ import annotations

import os
import pickletools
import struct
import zipfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from ..model.errors import CheckpointError
from ..model.tensors import DTYPES, Spec
from ..store.arrays import nbytes
from .extents import Checkpoint, Extent, Stored, check
from .pickles import DTYPE_NAMES, STORAGES, PickledTensor, interpret, state_dict

_LARGEST_PROGRAM = 256 << 20  # a state dict of a million tensors has less
_ALIGNMENT = 64  # torch's own: what is mapped into memory begins on a cache line


_PROGRAMS: dict[bytes, PickledTensor] = {}
_MOST_PROGRAMS = 1024


def is_zip(head: bytes) -> bool:
    """True if a file begins like the format of today."""
    return head[:4] == b"PK\x03\x04"


def is_legacy(head: bytes) -> bool:
    """True if a file begins like the format from before 2020, or like any other pickle."""
    return head[:1] == b"\x80"


def read(path: Path, *, key: str | None = None) -> Checkpoint:
    """The index of a file. `key` is the way to the state dict in a checkpoint that holds several: `model.ema`."""
    with path.open("rb") as file:
        tree, storages = _read_legacy(path, file) if is_legacy(file.read(1)) else _read_zip(path, file)
    state, notes = state_dict(path, tree, key)
    stored: dict[str, Stored] = {}
    aliases: dict[str, str] = {}
    owners: dict[tuple[Any, ...], str] = {}
    sizes: dict[Path, int] = {}
    for name, tensor in state.items():
        stored[name] = _stored(path, name, tensor, storages)
        check(path, name, stored[name], sizes)
        if nbytes(stored[name].spec):
            owner = owners.setdefault((tensor.storage.key, tensor.offset, tensor.shape, tensor.strides), name)
            if owner != name:
                aliases[name] = owner
    return Checkpoint(str(path), "pth", stored, aliases, tuple(notes), {"format": "pt"})


def read_tensor(path: str | os.PathLike[str]) -> tuple[np.ndarray[Any, Any], str]:
    """The one tensor that `torch.save(tensor, path)` wrote: the array in its storage type, and its element type.

    Without torch, and without running anything that is in the file. CheckpointError names the fault.
    """
    where = Path(path)
    try:
        with where.open("rb") as file:
            tree, storages = _read_legacy(where, file) if is_legacy(file.read(1)) else _read_zip(where, file)
        if not isinstance(tree, PickledTensor):
            raise CheckpointError(f"{where}: holds a {type(tree).__name__}, expected one tensor.")
        stored = _stored(where, "tensor", tree, storages)
        check(where, "tensor", stored, {})
        return Checkpoint(str(where), "pth", {"tensor": stored}).read("tensor"), stored.spec.dtype
    except OSError as error:
        raise CheckpointError(f"{where}: cannot be read ({error.strerror}).") from None


def _stored(path: Path, name: str, tensor: PickledTensor, storages: Mapping[str, Extent]) -> Stored:
    extent = storages.get(tensor.storage.key)
    if extent is None:
        raise CheckpointError(
            f"{path}: {name} refers to storage {tensor.storage.key!r}, which is not there. It is damaged."
        )
    spec = Spec(tensor.dtype, tensor.shape)
    width = DTYPES[tensor.dtype]
    if 0 in tensor.shape:
        return Stored(spec, ())
    if len(tensor.shape) != len(tensor.strides) or min((*tensor.shape, *tensor.strides, tensor.offset), default=0) < 0:
        raise CheckpointError(
            f"{path}: {name} has shape {tensor.shape} and strides {tensor.strides}. The file is damaged."
        )
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if (last + 1) * width > extent.nbytes:
        raise CheckpointError(
            f"{path}: {name} reaches to byte {(last + 1) * width} of a storage of {extent.nbytes}. The file is damaged."
        )
    if nbytes(spec) > max(1 << 30, 16 * path.stat().st_size):
        raise CheckpointError(
            f"{path}: {name} is {spec}, {nbytes(spec)} bytes, repeated out of {extent.nbytes}: refused."
        )
    count = (last + 1 - tensor.offset) * width
    crc = extent.crc if tensor.offset == 0 and count == extent.nbytes else None
    part = Extent(extent.file, extent.offset + tensor.offset * width, count, crc)
    return Stored(spec, (part,), None if _is_row_major(tensor) else tensor.strides)


def _is_row_major(tensor: PickledTensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# Reading ------------------------------------------------------------------------------------------------------------


def _read_zip(path: Path, file: BinaryIO) -> tuple[Any, dict[str, Extent]]:
    try:
        archive = zipfile.ZipFile(file)
        names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}). It was not written to its end; get it again."
        ) from None
    with archive:
        program = next((name for name in names if name.split("/", 1)[-1] == "data.pkl"), None)
        if program is None:
            if any(name.endswith(("constants.pkl", "code/")) or "/code/" in name for name in names):
                raise CheckpointError(
                    f"{path}: is a TorchScript archive. Save the state dict: torch.save(net.state_dict(), …)."
                )
            raise CheckpointError(f"{path}: is a zip archive without data.pkl, so not a PyTorch checkpoint.")
        root = program.removesuffix("data.pkl")
        try:
            if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
                raise CheckpointError(
                    f"{path}: was written on a big-endian machine. Save it again on a little-endian one."
                )
            told = archive.getinfo(program)
            if told.file_size > _LARGEST_PROGRAM or told.compress_type != zipfile.ZIP_STORED:
                raise CheckpointError(
                    f"{path}: its data.pkl is compressed, or of {told.file_size} bytes: refused, torch writes none such."
                )
            raw = archive.read(program)
            storages = {
                info.filename.removeprefix(f"{root}data/"): _extent(path, file, info)
                for info in archive.infolist()
                if info.filename.startswith(f"{root}data/")
            }
        except (zipfile.BadZipFile, OSError, struct.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise CheckpointError(f"{path}: is damaged ({error}); get it again.") from None
    known = _PROGRAMS.get(raw)
    if known is None:
        known = interpret(path, pickletools.genops(raw))
        if isinstance(known, PickledTensor):  # a directory of single tensors has few different programs
            if len(_PROGRAMS) > _MOST_PROGRAMS:
                _PROGRAMS.clear()
            _PROGRAMS[raw] = known
    return known, storages


def _extent(path: Path, file: BinaryIO, info: zipfile.ZipInfo) -> Extent:
    if info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(
            f"{path}: {info.filename} is compressed, which torch does not do. Load it with torch and save again."
        )
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no entry at byte {info.header_offset}")
    name, extra = struct.unpack("<HH", head[26:30])
    # Zero is what torch writes where checksums were switched off; of no bytes it is the right one anyway.
    return Extent(path, info.header_offset + 30 + name + extra, info.file_size, info.CRC or None)


def _read_legacy(path: Path, file: BinaryIO) -> tuple[Any, dict[str, Extent]]:
    file.seek(0)
    first = interpret(path, pickletools.genops(file))
    if first != 0x1950A86A20F9469CFC6C:
        raise CheckpointError(
            f"{path}: is a pickle, but not one that torch.save wrote. Expected a .pth file with a state dict."
        )
    interpret(path, pickletools.genops(file))
    system = interpret(path, pickletools.genops(file))
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise CheckpointError(f"{path}: was written on a big-endian machine. Save it again on a little-endian one.")
    widths: dict[str, int] = {}
    tree = interpret(path, pickletools.genops(file), widths)
    storages: dict[str, Extent] = {}
    for key in interpret(path, pickletools.genops(file)):
        raw = file.read(8)
        if len(raw) < 8 or key not in widths:
            raise CheckpointError(f"{path}: ends before storage {key}. It is damaged; get it again.")
        length = struct.unpack("<q", raw)[0] * widths[key]
        storages[key] = Extent(path, file.tell(), length)
        file.seek(length, 1)
    return tree, storages


# Writing ------------------------------------------------------------------------------------------------------------


def write(file: BinaryIO, specs: Mapping[str, Spec]) -> Generator[tuple[str, IO[bytes]], None, None]:
    """Write an archive; yields (name, where its bytes go) when they are due."""
    with _archive(file, _program(specs)) as archive:
        for number, (name, spec) in enumerate(specs.items()):
            with _storage(file, archive, number, spec) as entry:
                yield name, entry


def write_tensor(file: BinaryIO, spec: Spec, raw: Any) -> None:
    """Write a file that `torch.load` reads as one tensor, as `torch.save(tensor, …)` would."""
    program = b"".join([b"\x80\x02", *_tensor_program(0, spec), b"."])
    with _archive(file, program) as archive, _storage(file, archive, 0, spec) as entry:
        entry.write(raw)


def _archive(file: BinaryIO, program: bytes) -> zipfile.ZipFile:
    """An archive that has all but the storages."""
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
    for name, raw in (("data.pkl", program), ("byteorder", b"little"), ("version", b"3\n")):
        archive.writestr(zipfile.ZipInfo(f"archive/{name}"), raw)
    return archive


def _storage(file: BinaryIO, archive: zipfile.ZipFile, number: int, spec: Spec) -> IO[bytes]:
    """The entry for the bytes of a tensor, open for writing."""
    info = zipfile.ZipInfo(f"archive/data/{number}")
    large = nbytes(spec) >= 1 << 31
    before = file.tell() + 30 + len(info.filename) + (20 if large else 0) + 4
    padding = -before % _ALIGNMENT
    info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding  # an extra field that readers skip
    return archive.open(info, "w", force_zip64=large)


def _program(specs: Mapping[str, Spec]) -> bytes:
    """`OrderedDict` of tensors, as instructions."""
    out = [b"\x80\x02", _ORDERED, b"("]
    for number, (name, spec) in enumerate(specs.items()):
        out += [_text(name), *_tensor_program(number, spec)]
    return b"".join([*out, b"u."])


_ORDERED = b"ccollections\nOrderedDict\n)R"


def _tensor_program(number: int, spec: Spec) -> list[bytes]:
    """`_rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`."""
    kinds = {dtype: name for name, dtype in STORAGES.items()}
    dtypes = {dtype: name for name, dtype in DTYPE_NAMES.items()}
    typed = spec.dtype in kinds
    kind = f"ctorch\n{kinds[spec.dtype]}\n" if typed else "ctorch.storage\nUntypedStorage\n"
    count = nbytes(spec) // DTYPES[spec.dtype] if typed else nbytes(spec)
    return [
        b"ctorch._utils\n_rebuild_tensor_v2\n(" if typed else b"ctorch._utils\n_rebuild_tensor_v3\n(",
        b"(" + _text("storage") + kind.encode() + _text(str(number)) + _text("cpu") + _number(count) + b"tQ",
        _number(0) + _numbers(spec.shape) + _numbers(_strides(spec.shape)) + b"\x89" + _ORDERED,
        b"" if typed else f"ctorch\n{dtypes[spec.dtype]}\n".encode(),
        b"tR",
    ]


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _number(number: int) -> bytes:
    if 0 <= number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    raw = number.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
