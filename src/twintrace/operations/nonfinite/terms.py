"""Operands of a call as the causes see them: a tensor's range, or a number that was written in the call.

torch.div(x, 0)      input, f32[8]: lo -1.2, hi 3.4, no zeros; other, a number: lo 0, hi 0, one zero
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...model.nonfinite import Counts, Source, ValueRange
from ...model.tensors import LARGEST, Spec, Statistics
from ..meanings import Meaning, Operand


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason why a value is not finite, and the remedy."""

    source: Source
    why: str
    advice: str = ""


def number(name: str, value: float) -> ValueRange:
    """A number that was written in the call."""
    bad = Counts(int(math.isnan(value)), int(value == math.inf), int(value == -math.inf))
    end, size = (None, None) if bad else (float(value), abs(float(value)))
    known = Statistics(end, end, end, size, bad.nan, bad.posinf, bad.neginf, int(value == 0))
    return ValueRange(name, Spec("", ()), known)


def terms_of(meaning: Meaning, ranges: Mapping[int, ValueRange]) -> dict[str, ValueRange]:
    """Operands by the names of the operation's arguments; in containers `tensors.0`, `tensors.1`."""
    terms = {
        path: ValueRange(path, ranges[operand.tensor].spec, ranges[operand.tensor].statistics)
        for path, operand in meaning.operands()
        if operand.tensor in ranges
    }
    for name, value in meaning.arguments.items():
        if isinstance(value, int | float) and not isinstance(value, bool | Operand):
            terms.setdefault(name, number(name, float(value)))
    return terms


def by_position(ranges: Iterable[ValueRange]) -> dict[str, ValueRange]:
    """Operands of a call whose meaning is not told."""
    names = itertools.chain(("input", "other"), (f"operand {place}" for place in itertools.count(2)))
    return {name: ValueRange(name, item.spec, item.statistics) for name, item in zip(names, ranges, strict=False)}


def settings_of(meaning: Meaning) -> dict[str, object]:
    """Arguments of an operation that are no tensors."""
    return {name: value for name, value in meaning.arguments.items() if not isinstance(value, Operand)}


def largest(dtype: str) -> float:
    """The largest finite number of a type; infinite for one that has no end of its own."""
    return LARGEST.get(dtype, math.inf)


_SMALLEST: Mapping[str, float] = {"f64": 5e-324, "f32": 1.4e-45, "bf16": 9.2e-41, "f16": 5.96e-08}
"""The smallest number above zero; half of it and less rounds to zero."""


def vanishes(value: float, dtype: str) -> bool:
    """Is this number zero, or is it once it has this element type?"""
    return value <= _SMALLEST.get(dtype, 0.0) / 2
