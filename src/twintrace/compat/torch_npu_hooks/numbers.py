"""Tensors as JSON text, and back.

    f32[2]   1.5, nan        ->  [1.5, NaN]                 as Python's json writes them, which is what the old tool did
    i64[1]   2**60           ->  [1152921504606846976]      the old tool went through float32 and lost it
    c64[1]   1+2j            ->  [1.0, 2.0]                 real and imaginary part of each element

The element type stands in a column of its own, by torch's name.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ...model.tensors import Spec
from ...store.arrays import STORAGE, as_float

DTYPES = {
    "f64": "torch.float64", "f32": "torch.float32", "f16": "torch.float16", "bf16": "torch.bfloat16",
    "f8e4m3fn": "torch.float8_e4m3fn", "f8e4m3fnuz": "torch.float8_e4m3fnuz", "f8e5m2": "torch.float8_e5m2",
    "f8e5m2fnuz": "torch.float8_e5m2fnuz", "f8e8m0fnu": "torch.float8_e8m0fnu", "f4e2m1fn_x2": "torch.float4_e2m1fn_x2",
    "c32": "torch.complex32", "c64": "torch.complex64", "c128": "torch.complex128",
    "i8": "torch.int8", "i16": "torch.int16", "i32": "torch.int32", "i64": "torch.int64", "u8": "torch.uint8",
    "u16": "torch.uint16", "u32": "torch.uint32", "u64": "torch.uint64", "b8": "torch.bool",
}  # fmt: skip
_SHORT = {long: short for short, long in DTYPES.items()} | {
    "torch.float": "f32", "torch.double": "f64", "torch.half": "f16", "torch.int": "i32", "torch.long": "i64",
    "torch.short": "i16",
}  # fmt: skip
_OPAQUE = ("f8", "f4")  # read back they would have to be rounded to codes; what was written are their exact values


def short_dtype(text: str) -> str | None:
    """`f32` for `torch.float32`; None for what is not known."""
    return _SHORT.get(text)


def to_text(raw: bytes | memoryview, dtype: str) -> bytes:
    """The values of a tensor's bytes as a JSON list. Packed types, two elements to a byte, have no such list: it is empty."""
    if dtype.startswith("f4"):
        return b"[]"
    values = as_float(np.frombuffer(raw, dtype=STORAGE[dtype]), dtype)
    if dtype == "b8":
        values = values.astype(np.float32)
    if np.iscomplexobj(values):
        values = values.view(np.float64 if dtype == "c128" else np.float32)
    return json.dumps(values.tolist()).encode()


def from_values(values: list[Any] | np.ndarray[Any, Any], spec: Spec) -> np.ndarray[Any, Any]:
    """The array of a JSON list (or of its numbers, already read) in the storage type of its element type; ValueError with one
    clause where that cannot be.
    """
    if isinstance(values, np.ndarray):
        if values.size != math.prod(spec.shape):
            raise ValueError(f"{values.size} values for a tensor of {spec}")
        with np.errstate(over="ignore", invalid="ignore"):
            return stored(values.reshape(spec.shape), spec.dtype)
    exact = spec.dtype == "u64" and all(type(value) is int and 0 <= value < 1 << 64 for value in values)
    numbers = np.array(values, dtype=np.uint64 if exact else None)  # numpy's own choice for 2**63 beside 0 is a float
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iufb"):
        raise ValueError(f"expected a flat list of numbers, got {str(values)[:40]}")
    count = int(np.prod(spec.shape, dtype=np.int64))
    if spec.dtype.startswith("c") and numbers.size == 2 * count:
        numbers = numbers.astype(np.float64).view(np.complex128)
    if numbers.size != count:
        raise ValueError(f"{numbers.size} values for a tensor of {spec}")
    with np.errstate(over="ignore", invalid="ignore"):
        return stored(numbers.reshape(spec.shape), spec.dtype)


def storable(dtype: str) -> str:
    """The element type in which a list of this one is read back: itself, or float32 where that is a type of codes."""
    return "f32" if dtype.startswith(_OPAQUE) else "c64" if dtype == "c32" else dtype


def stored(numbers: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Numbers in the storage type of an element type."""
    if dtype == "bf16":  # what came from bf16 has its lower half empty
        stored = (np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        stored = np.ascontiguousarray(numbers.astype(STORAGE[dtype], copy=False))
    return stored.reshape(numbers.shape)  # of one without dimensions numpy has made one with a dimension
