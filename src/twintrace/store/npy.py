"""One .npy file, trusting nothing: its header first, its values when they are asked for.

file = Npy.of(path)            reads 64 kB at most; refuses objects, what is cut off, what is no array
file.spec, file.nbytes         f32[2, 3], 24
file.values()                  mapped where that can be; bf16 as uint16, like everywhere in a trace

Npy.of(path, "bf16")           it holds bf16, whatever its header says: most writers widen it to float32
"""

from __future__ import annotations

import ast
import functools
import math
import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import TraceFormatError
from ..model.tensors import DTYPES, Spec
from .arrays import STORAGE

SMALL = 1 << 18
MAX_HEADER = 1 << 16  # MindSpore's have 128 bytes
_STORED = {storage.str[1:]: name for name, storage in STORAGE.items() if storage.kind in "fciub"} | {
    # Several types lie in memory as these integers; the npy file itself means the integer. bf16 is E2 to MindSpore, V2 to
    # ml_dtypes.
    "u1": "u8", "u2": "u16", "u4": "u32", "E2": "bf16", "V2": "bf16"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Npy:
    """The values of one npy file, not yet read."""

    path: Path
    spec: Spec
    descr: str
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.spec.shape) * DTYPES[self.spec.dtype]

    @classmethod
    def of(cls, path: Path, meant: str | None = None) -> Npy:
        """Read the header of a file; `meant` is what others say of its elements. TraceFormatError if it is no array of numbers."""
        try:
            with path.open("rb") as file:
                descr, fortran, shape, offset = _header(path, file.read(MAX_HEADER))
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error
        stored = _STORED.get(descr[1:])
        if stored is None or descr[0] not in "<>|=":
            objects = " Python objects are never loaded: they can run code." if descr[1:].startswith("O") else ""
            raise TraceFormatError(f"{path}: elements of type {descr!r}, expected numbers.{objects}")
        expected = offset + math.prod(shape) * int(re.sub("[^0-9]", "", descr) or 1)
        if size < expected:
            raise TraceFormatError(f"{path}: cut off: expected {expected} bytes, found {size}.")
        # bf16 is written as float32 by most. Any other contradiction is decided by the file.
        return cls(path, Spec("bf16" if (stored, meant) == ("f32", "bf16") else stored, shape), descr, fortran, offset)

    def values(self) -> np.ndarray[Any, Any]:
        """The values, C-contiguous, in the storage type of their spec; mapped where they lie like that in the file."""
        dtype = np.dtype(re.sub("[EV]2", "u2", self.descr))
        try:
            raw = self._raw(dtype).reshape(self.spec.shape, order="F" if self.fortran else "C")
        except (OSError, ValueError, OverflowError) as error:
            raise TraceFormatError(f"{self.path}: cannot be mapped ({error}).") from error
        array = np.ascontiguousarray(raw, dtype.newbyteorder("<")).reshape(self.spec.shape)
        if self.spec.dtype == "bf16" and dtype.kind == "f":
            bits = array.view(np.uint32)
            if (bits & 0xFFFF).any():
                raise TraceFormatError(
                    f"{self.path}: the name says bfloat16, but there are values that bfloat16 does not have."
                )
            array = (bits >> 16).astype(np.uint16)
        return array

    def _raw(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The elements in a row. A small file is read: mapping it would take longer."""
        count = math.prod(self.spec.shape)
        if not count:
            return np.zeros(0, dtype)
        with self.path.open("rb") as file:
            if count * dtype.itemsize > SMALL:
                return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype, count, self.offset)
            file.seek(self.offset)
            return np.frombuffer(file.read(count * dtype.itemsize), dtype, count)


def _header(path: Path, raw: bytes) -> tuple[str, bool, tuple[int, ...], int]:
    """Element type, order, shape and where the data begins. numpy's own reader refuses MindSpore's bf16 (`<E2`)."""
    if raw[:6] != b"\x93NUMPY" or len(raw) < 12 or raw[6] not in (1, 2, 3):
        beginning = f"it begins with {raw[:8]!r}" if raw else "it is empty"
        raise TraceFormatError(f"{path}: no npy file: {beginning}.")
    wide = 2 if raw[6] == 1 else 4
    end = 8 + wide + int.from_bytes(raw[8 : 8 + wide], "little")
    try:
        descr, fortran, shape = _fields(raw[8 + wide : end])
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise TraceFormatError(f"{path}: damaged: its header is not that of an npy file.") from None
    if end > len(raw) or not isinstance(descr, str | list) or not isinstance(shape, tuple) or len(shape) > 32:
        raise TraceFormatError(f"{path}: damaged: its header is not that of an npy file.")
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise TraceFormatError(f"{path}: damaged: {str(shape)[:60]} is no shape.")
    return descr if isinstance(descr, str) and len(descr) > 1 else "|V", bool(fortran), shape, end


@functools.lru_cache(maxsize=1024)
def _fields(raw: bytes) -> tuple[Any, Any, Any]:
    """A directory of tensors has few headers, and parsing one takes longer than reading a small file."""
    head = ast.literal_eval(raw.decode("latin-1").strip())
    return head["descr"], head["fortran_order"], head["shape"]
