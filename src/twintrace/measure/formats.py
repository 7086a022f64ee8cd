"""Element types of arrays, as far as measuring is concerned.

    form("bf16")    Form(code=BF16, parts=1, bits=8, least=-126, …)
    form("c64")     Form(code=F32, parts=2, …): two f32 to an element
    form("i64")     Form(code=I64, …, bits=None): no last place to count in

A code says how a number is decoded; both kernels know the same codes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..model.dtypes import DTYPES, LETTERS, PRECISIONS, code_values
from ..model.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Ways to decode a number. TABLE and PAIRS are single bytes that are looked up, one number or two in each.
F64, F32, F16, BF16, I16, U16, I32, U32, I64, U64, TABLE, PAIRS = range(12)

_CODES = {
    "f64": F64, "f32": F32, "f16": F16, "bf16": BF16, "i16": I16, "u16": U16, "i32": I32, "u32": U32,
    "i64": I64, "u64": U64, "c32": F16, "c64": F32, "c128": F64, "f4e2m1fn_x2": PAIRS,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One element type. `kind` and `size` are what numpy says of an array that holds it; `table` is (rows, 256)."""

    dtype: str
    kind: str
    size: int
    code: int
    parts: int
    table: NDArray[np.float64]
    precision: tuple[int, int] | None

    @property
    def packed(self) -> bool:
        """Two elements in a byte, and a shape that counts bytes?"""
        return self.code == PAIRS

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that counts elements."""
        if not self.packed:
            return shape
        return (*shape[:-1], 2 * shape[-1]) if shape else (2,)


@functools.cache
def form(dtype: str) -> Form:
    """The form of an element type of `model.tensors.DTYPES`."""
    if dtype not in DTYPES:
        raise UsageError(f"measure: unknown element type {dtype!r}; known are {', '.join(DTYPES)}.")
    code, size = _CODES.get(dtype, TABLE), DTYPES[dtype]
    table = np.array(code_values(dtype) if size == 1 else (), np.float64).reshape(-1, 256)
    table.flags.writeable = False
    return Form(
        dtype,
        LETTERS[dtype][1],
        size,
        code,
        2 if dtype[0] == "c" else 1,
        table,
        PRECISIONS.get(dtype),
    )


def coarser(left: Form, right: Form) -> tuple[int, int] | None:
    """The precision of the coarser of two types of real floats; None if one is not of that kind."""
    if left.precision is None or right.precision is None:
        return None
    return min(left.precision, right.precision, key=lambda each: (each[0], -each[1]))
