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
from ..reading import stored


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
    count, numbers = math.prod(spec.shape), values
    if not isinstance(numbers, np.ndarray):
        exact = spec.dtype == "u64" and all(type(value) is int and 0 <= value < 1 << 64 for value in values)
        # numpy's own choice for 2**63 beside 0 is a float.
        numbers = np.array(values, dtype=np.uint64 if exact else None)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iufb"):
            raise ValueError(f"expected a flat list of numbers, got {str(values)[:40]}")
        if spec.dtype.startswith("c") and numbers.size == 2 * count:
            numbers = numbers.astype(np.float64).view(np.complex128)
    if numbers.size != count:
        raise ValueError(f"{numbers.size} values for a tensor of {spec}")
    return stored(numbers.reshape(spec.shape), spec.dtype)
