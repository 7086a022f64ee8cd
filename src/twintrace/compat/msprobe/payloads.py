"""The values of one tensor: a .npy file, or a .pt file without torch and without running what is in it.

read_values(folder, "Functional.linear.0.forward.input.0.npy")     (array, "f32")
read_values(folder, "Functional.linear.0.forward.input.0.pt")      (array, "bf16"): held as uint16
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ... import api
from ...model.errors import CheckpointError, TraceFormatError, TraceNotFoundError
from ...store.npy import Npy

# Bytes at the end of an archive that hold its directory: torch writes seven entries for one tensor.
_DIRECTORY = 1 << 12
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
            return _checksum(file) if name.endswith(".pt") else _stretches(file)
    except OSError:
        return None


def _checksum(file: BinaryIO) -> bytes | None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _DIRECTORY))
    tail = file.read()
    found = b""
    # Shape and strides, then the values; the directory's next entry begins behind the name.
    for member in (
        b"/data.pklPK",
        b"/data/0PK",
    ):
        name = tail.rfind(member)
        start = tail.rfind(b"PK\x01\x02", 0, max(name, 0))
        if start < 0:
            return None
        found += tail[start + 16 : start + 28]
    return found


def _stretches(file: BinaryIO) -> bytes:
    size = file.seek(0, os.SEEK_END)
    crc = zlib.crc32(str(size).encode())
    for start in range(0, size, max(size // 16, _STRETCH)):
        file.seek(start)
        crc = zlib.crc32(file.read(_STRETCH), crc)
    return crc.to_bytes(4, "little")
