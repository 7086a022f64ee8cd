"""One operand of a call as the causes see it: a tensor's range, or a number that was written in the call.

torch.div(x, 0)      Term("input", lo=-1.2, hi=3.4, zeros=0, …), Term("other", lo=0.0, hi=0.0, zeros=1, …)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..model.nonfinite import Source, ValueRange
from ..model.tensors import LARGEST
from ..operations import Meaning, Operand
from .flow import FINITE, Counts, count_of, elements


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a value is not finite, and what to do about it."""

    source: Source
    why: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """An operand: the ends of its finite values, how many are zero, how many are not finite."""

    name: str
    lo: float | None
    hi: float | None
    zeros: int
    counts: Counts
    elements: int
    norm: float | None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    is_tensor: bool = True

    @property
    def size(self) -> float | None:
        """The largest finite magnitude."""
        return None if self.lo is None or self.hi is None else max(abs(self.lo), abs(self.hi))

    @property
    def below_zero(self) -> bool:
        return self.lo is not None and self.lo < 0

    @property
    def is_constant(self) -> bool:
        return self.lo is not None and self.lo == self.hi and not self.counts

    def told(self) -> str:
        """`input (-1.2 … 3.4)`, `other (0)`."""
        if not self.is_tensor or (self.lo is not None and self.lo == self.hi):
            return f"{self.name} ({'nothing finite' if self.lo is None else format(self.lo, '.4g')})"
        return f"{self.name} ({'nothing finite' if self.lo is None else f'{self.lo:.4g} … {self.hi:.4g}'})"


def term_of(item: ValueRange) -> Term:
    known = item.statistics
    if known is None:
        return Term(item.name, None, None, 0, FINITE, elements(item), None, item.spec.shape, item.spec.dtype)
    lo, hi = (None if end is None else float(end) for end in (known.min, known.max))
    counts = count_of(item)
    return Term(item.name, lo, hi, known.zero, counts, elements(item), known.norm, item.spec.shape, item.spec.dtype)


def number(name: str, value: float) -> Term:
    """A number that was written in the call."""
    counts = FINITE
    if math.isnan(value):
        counts = Counts(nan=1)
    elif math.isinf(value):
        counts = Counts(posinf=int(value > 0), neginf=int(value < 0))
    end = None if counts else float(value)
    return Term(name, end, end, int(value == 0), counts, 1, None if end is None else abs(end), is_tensor=False)


def terms_of(meaning: Meaning, ranges: Mapping[int, ValueRange]) -> dict[str, Term]:
    """Operands by the names of the operation's arguments; in containers `tensors.0`, `tensors.1`."""
    found = {
        path: term_of(ValueRange(path, ranges[operand.tensor].spec, ranges[operand.tensor].statistics))
        for path, operand in meaning.operands()
        if operand.tensor in ranges
    }
    for name, value in meaning.arguments.items():
        if isinstance(value, int | float) and not isinstance(value, bool | Operand):
            found.setdefault(name, number(name, float(value)))
    return found


def largest(dtype: str) -> float:
    """The largest finite number of a type; infinite for one that has no end of its own."""
    return LARGEST.get(dtype, math.inf)


_SMALLEST: Mapping[str, float] = {"f64": 5e-324, "f32": 1.4e-45, "bf16": 9.2e-41, "f16": 5.96e-08}
"""The smallest number above zero; half of it and less rounds to zero."""


def vanishes(value: float, dtype: str) -> bool:
    """Is this number zero, or is it once it has this element type?"""
    return value <= _SMALLEST.get(dtype, 0.0) / 2
