"""The values of tensors as files: each content once on its way, and under every name that it has.

    dump_tensor_data/Functional.linear.0.forward.input.0.npy      ┐ one content, two names: the second is a link
    dump_tensor_data/Module.fc.Linear.forward.0.input.0.npy       ┘
    dump_tensor_data/.contents/17                                 a content until the step ends, then gone

A content is written when it is seen, from the memory of the tensor: nothing is copied, and nothing is held in memory until the
call that it belongs to has returned. Its names come later and are hard links (copies, where a file system has no links).

PyTorch's values are `.pt` files, MindSpore's and MSAdapter's `.npy`: msprobe's own readers take nothing else. numpy has no bf16 and
no fp8: they are widened to float32, exactly, as in msprobe.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from ... import api
from ...model.errors import CheckpointError, TraceFormatError, TraceNotFoundError
from ...model.tensors import Spec
from ...store.appending import write_errors
from ...store.arrays import STORAGE, as_float
from ...store.npy import Npy
from ..translating import give_name

_CONTENTS = ".contents"
_LONGEST = 255  # bytes of a file's name

Bytes = np.ndarray[Any, Any]
Content = tuple[int, str, tuple[int, ...]]
"""Bytes and their meaning: (place, element type, shape)."""


def file_name(item: str, suffix: str) -> str:
    """An item's name as a file's: without separators, and not longer than a file system takes."""
    name = item.replace("/", "_").replace("\0", "_")
    raw = name.encode("utf-8", "replace")
    if name == item and len(raw) + len(suffix) <= _LONGEST:
        return name + suffix
    mark = f"~{crc32(item.encode('utf-8', 'surrogatepass')):08x}"
    return raw[: _LONGEST - len(suffix) - len(mark)].decode("utf-8", "ignore") + mark + suffix


class Values:
    """The files of one step."""

    def __init__(self, directory: Path, suffix: str) -> None:
        self.directory, self.suffix = directory, suffix
        self._contents = directory / _CONTENTS
        self._files: dict[Content, Path] = {}
        self._raw: dict[int, Path] = {}  # place -> a file that gives its bytes back
        self._names: set[str] = set()
        self.resume()

    def resume(self) -> None:
        """Begin, or go on after `close`."""
        with write_errors(self._contents):
            self._contents.mkdir(parents=True, exist_ok=True)

    def knows(self, content: Content) -> bool:
        """True if this content is written already."""
        return content in self._files

    def write(self, content: Content, data: Bytes | None) -> None:
        """Write a content. `data` are its bytes, if they are at hand: those of a place that was seen before are read again."""
        place, dtype, shape = content
        raw: Any = data if data is not None else self._read(place)
        file = self._contents / str(len(self._files))
        with write_errors(file), file.open("wb") as opened:
            widened = self._save(opened, raw, dtype, shape)
        self._files[content] = file
        if not widened:
            self._raw.setdefault(place, file)

    def _save(self, file: BinaryIO, raw: Any, dtype: str, shape: tuple[int, ...]) -> bool:
        """Write the bytes; True if they were widened."""
        if self.suffix == ".pt":
            api.write_tensor(file, Spec(dtype, shape), raw)
            return False
        array = np.frombuffer(raw, dtype=STORAGE[dtype])
        wide = array if dtype.startswith("f4") else as_float(array, dtype)
        np.save(file, wide.reshape(shape), allow_pickle=False)
        return wide is not array

    def name(self, content: Content, item: str) -> str:
        """Give a content a name; the name of the file. A name that is given again stands for the later content."""
        name = file_name(item, self.suffix)
        give_name(self._files[content], self.directory / name, again=name in self._names)
        self._names.add(name)
        return name

    def close(self) -> None:
        """The step is over: what has no name goes. `resume` goes on."""
        shutil.rmtree(self._contents, ignore_errors=True)
        self._files.clear()
        self._raw.clear()

    def _read(self, place: int) -> Bytes:
        file = self._raw[place]
        array = api.read_tensor(file)[0] if self.suffix == ".pt" else np.load(file, allow_pickle=False)
        return array.reshape(-1).view(np.uint8)


def clear(directory: Path) -> None:
    """Remove the values of an earlier run; whatever else is there stays."""
    shutil.rmtree(directory / _CONTENTS, ignore_errors=True)
    for file in (*directory.glob("*.npy"), *directory.glob("*.pt")):
        with contextlib.suppress(OSError):
            file.unlink()


_STRETCH = 1 << 14


def read_values(folder: Path, name: str, meant: str | None = None) -> tuple[np.ndarray[Any, Any], str]:
    """The array in its storage type, and the name of its element type. TraceError says what is wrong with the file.

    `meant` is what the dump says of the elements: bf16 lies as float32 in a .npy file.
    """
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise TraceFormatError(f"{folder}: {name!r} is not the name of a file in it.")
    path = folder / name
    if not path.is_file():
        raise TraceNotFoundError(f"{path}: the dump names this file, but it is not there.")
    if path.suffix == ".npy":
        file = Npy.of(path, meant)
        return file.values(), file.spec.dtype
    try:
        return api.read_tensor(path)
    except CheckpointError as error:
        raise TraceFormatError(str(error)) from None


def sample(folder: Path, name: str) -> bytes | None:
    """A few bytes that tell two files of one type and shape apart; None for a file that cannot be read.

    Of a .pt file it is the checksums that its archive has, of a .npy file the checksum of up to 17 stretches of it.
    """
    try:
        with (folder / name).open("rb") as file:
            return _checksums(file) if name.endswith(".pt") else _stretches(file)
    except OSError:
        return None


def _checksums(file: BinaryIO) -> bytes | None:
    """Checksums of shape and strides, and of the values."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return None
    told = [members[name] for name in ("data.pkl", "data/0") if name in members]
    return repr([(info.CRC, info.file_size) for info in told]).encode() if len(told) == 2 else None


def _stretches(file: BinaryIO) -> bytes:
    size = file.seek(0, os.SEEK_END)
    crc = zlib.crc32(str(size).encode())
    for start in range(0, size, max(size // 16, _STRETCH)):
        file.seek(start)
        crc = zlib.crc32(file.read(_STRETCH), crc)
    return crc.to_bytes(4, "little")
