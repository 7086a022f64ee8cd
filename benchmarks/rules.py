"""Rules by which other tools tell right from wrong, applied to pairs of tensors that twintrace has found.

    msprobe          cosine below 0.9, or an element off by more than 1, or cosine below 0.99 and an element off by more than 0.001
    troubleshooter   an element beyond 1e-4 + 1e-4·|left|
    allclose         torch.allclose as it comes: 1e-8 + 1e-5·|left|
    assert_close     torch.testing.assert_close as it comes: tolerances by dtype

    verdict = apply(rule, comparison, left, right)      agrees, and the first pair of calls that it accuses

The rules get our pairs, layouts included, which their own tools would often not have found. A call is accused first if its results
fail and nothing that it was given does: what a person looks for in such a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twintrace.model.pairs import Layout, Match
from twintrace.model.results import CallResult, Comparison, TensorResult
from twintrace.store.registry import open_trace
from twintrace.store.trace import Trace

Array = np.ndarray[Any, Any]
Rule = Callable[[Array, Array, str], bool]
"""(left, right, dtype of the left) in float64: are they the same?"""


def msprobe(left: Array, right: Array, dtype: str) -> bool:
    largest = float(np.abs(left - right).max())
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    cosine = float(left @ right) / norms if norms else float(not (left.any() or right.any()))
    return not (largest > 1 or cosine < 0.9 or (cosine < 0.99 and largest > 0.001))


def within(rtol: float, atol: float) -> Rule:
    return lambda left, right, dtype: bool((np.abs(left - right) <= atol + rtol * np.abs(left)).all())


_BY_DTYPE = {"f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7)}


def assert_close(left: Array, right: Array, dtype: str) -> bool:
    return within(*_BY_DTYPE.get(dtype, (0.0, 0.0)))(left, right, dtype)


RULES: dict[str, Rule] = {
    "msprobe": msprobe,
    "troubleshooter": within(1e-4, 1e-4),
    "allclose": within(1e-5, 1e-8),
    "assert_close": assert_close,
}


@dataclass(frozen=True)
class Accusation:
    """What a rule says: the first pair of calls that it accuses; None where it accuses none."""

    match: Match | None
    parameters: tuple[str, str] = ("", "")

    @property
    def agrees(self) -> bool:
        return self.match is None


def apply_all(found: Comparison, left: Path, right: Path) -> dict[str, Accusation]:
    """What each rule says of the same pairs; every value is read once."""
    sides = open_trace(left), open_trace(right)
    accused: dict[str, dict[bool, tuple[CallResult, TensorResult]]] = {name: {} for name in RULES}
    for result in found.results:
        failing: dict[str, list[TensorResult]] = {name: [] for name in RULES}
        for item, arrays in _values(result, sides):
            for name, rule in RULES.items():
                if arrays is None or not _same(rule, *arrays, item.left.spec.dtype):
                    failing[name].append(item)
        for name, items in failing.items():
            given = any(item.pair.part.incoming for item in items)
            for item in items:
                if not item.pair.part.incoming or not given:
                    accused[name].setdefault(not given, (result, item))
    return {name: _first(by_kind) for name, by_kind in accused.items()}


def _first(by_kind: dict[bool, tuple[CallResult, TensorResult]]) -> Accusation:
    """One that was given nothing wrong, before one that merely comes first."""
    for introduced in (True, False):
        if introduced in by_kind:
            result, item = by_kind[introduced]
            return Accusation(result.match, (item.pair.left_slot, item.pair.right_slot))
    return Accusation(None)


def _values(
    result: CallResult, sides: tuple[Trace, Trace]
) -> Iterator[tuple[TensorResult, tuple[Array, Array] | None]]:
    """Pairs of floating-point tensors with their values, flat; None where the shapes do not fit."""
    journals = [side.journal(result.step, result.rank) for side in sides]
    for item in result.tensors:
        if item.left.spec.dtype not in _BY_DTYPE or item.right.spec.dtype not in _BY_DTYPE:
            continue
        if item.left.payload is None or item.right.payload is None:
            continue
        one, two = (
            _plain(journal.array(tensor), tensor.spec.dtype)
            for journal, tensor in zip(journals, (item.left, item.right), strict=True)
        )
        two = laid(two, item.pair.layout)
        yield item, (one.ravel(), two.ravel()) if one.size == two.size else None


def laid(array: Array, layout: Layout) -> Array:
    """The right array with its axes in the left one's order."""
    return array.transpose(layout.axes) if layout.axes is not None and len(layout.axes) == array.ndim else array


def _plain(array: Array, dtype: str) -> Array:
    """Float64; bf16 is kept as the upper half of a float32's bits."""
    if dtype == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _same(rule: Rule, left: Array, right: Array, dtype: str) -> bool:
    """The rule on what is finite on both sides; what is not has to be the same."""
    finite = np.isfinite(left) & np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return False
    return not finite.any() or rule(left[finite], right[finite], dtype)
