"""Bytes to arrays and back: how each element type lies in memory.

    spec f32[2, 3]  + 24 bytes   ->  numpy float32 (2, 3)
    spec bf16[4]    +  8 bytes   ->  numpy uint16 (4,): numpy has no bf16; `as_float` widens it exactly

Bytes are little-endian, row-major, one element after the other, whatever the tensor's strides were.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..model.dtypes import DTYPES, LETTERS
from ..model.errors import TraceFormatError
from ..model.tensors import Spec

STORAGE: dict[str, np.dtype[np.generic]] = {name: np.dtype(letters) for name, letters in LETTERS.items()}
"""Storage type of each element type; those that numpy does not have are held in the unsigned integer of their width."""

_MEANT = {storage.str[1:]: name for name, storage in reversed(STORAGE.items()) if storage.kind in "fciub"} | {
    "u1": "u8", "u2": "u16", "u4": "u32"  # what numpy has no type for lies in these, too: an array by itself means the integers
}  # fmt: skip


def element_type(dtype: np.dtype[Any]) -> str | None:
    """Element type of an array of this dtype, of whatever byte order; None for what is no number."""
    return _MEANT.get(dtype.str[1:])


def nbytes(spec: Spec) -> int:
    """Number of bytes of a tensor of this spec."""
    return DTYPES[spec.dtype] * math.prod(spec.shape)


def to_array(raw: memoryview | bytes | np.ndarray[Any, Any], spec: Spec, where: str) -> np.ndarray[Any, Any]:
    """The stored bytes as an array in its storage type, without a copy."""
    size = len(raw)
    if size != nbytes(spec):
        raise TraceFormatError(
            f"{where}: {spec} needs {nbytes(spec)} bytes, the payload has {size}. The record is damaged."
        )
    try:
        return np.frombuffer(raw, dtype=STORAGE[spec.dtype]).reshape(spec.shape)
    except ValueError as error:  # 40 dimensions, or (0, 2**61, 2**61): a tensor may have such a shape, an array may not
        raise TraceFormatError(f"{where}: numpy has no array of this shape ({error}).") from None


def filled(value: float | int, spec: Spec) -> np.ndarray[Any, Any]:
    """An array of one value that takes the room of one element, in the type that `as_float` gives."""
    storage = STORAGE[spec.dtype]
    dtype = storage if element_type(storage) == spec.dtype else np.dtype(np.float32)
    return np.broadcast_to(np.array(value, dtype), spec.shape)


def as_float(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Values for arithmetic: bf16 and fp8 widened exactly to float32, everything else as it is."""
    if dtype == "bf16":
        return (array.reshape(-1).astype(np.uint32) << 16).view(np.float32).reshape(array.shape)
    if dtype.startswith(("f8", "f4")):
        from .digest import decode_table

        return np.asarray(decode_table(dtype)[array])  # of one without dimensions numpy would give a scalar
    if dtype == "c32":
        parts = array.reshape(-1).view(np.float16).astype(np.float32)
        return parts.view(np.complex64).reshape(array.shape)
    return array
