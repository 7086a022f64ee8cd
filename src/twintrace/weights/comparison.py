"""Two checkpoints side by side: shapes, then values.

    compare(left, right)                         of one framework: by name
    compare(left, right, map)                    of two: the left is transformed as the map says, in memory, one at a time

A row for every weight of either side; one that has no partner is a row as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..measure.values import measure
from ..model.errors import WeightsError
from ..model.measurements import Measurement
from ..model.weights import Pair, WeightComparison, WeightMap, WeightRow
from ..model.words import Progress
from ..store.arrays import as_float
from .conversion import fit_names, made, metered, value
from .states import State


def by_name(left: State, right: State) -> WeightMap:
    """The map between two states of one framework: equal names."""
    pairs = tuple(Pair((name,), name, (), 1.0, "same name") for name in left.items if name in right)
    return WeightMap(left.label, right.label, pairs)


def compare(
    left: State,
    right: State,
    map: WeightMap,
    *,
    values: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    relative_to: str = "left",
    progress: Progress | None = None,
) -> WeightComparison:
    """Compare; `rtol` is relative to the left side, as everywhere here, or to the right, as numpy.allclose has it."""
    map, notes = fit_names(map, left)
    specs = {pair.right: right.items[pair.right].spec for pair in map.pairs if pair.right in right}
    rows = []
    for pair in metered(map.pairs, specs, "comparing weights", progress):
        row = _row(left, right, pair)
        measured = values and row.verdict == "equal"
        rows.append(_measured(row, left, right, pair, rtol, atol, equal_nan, relative_to) if measured else row)
    seen = {name for pair in map.pairs for name in pair.left}
    harmless = {item.name for item in (*map.only_left, *map.only_right) if item.harmless}
    for item in left.items.values():
        if item.name not in seen:
            verdict = "not carried" if item.name in harmless else "only left"
            rows.append(WeightRow(item.name, None, item.spec, None, verdict=verdict))
    for item in right.items.values():
        if item.name not in {pair.right for pair in map.pairs}:
            verdict = "not carried" if item.name in harmless else "only right"
            rows.append(WeightRow(None, item.name, None, item.spec, verdict=verdict))
    notes = [*left.notes, *right.notes, *notes]
    return WeightComparison(left.label, right.label, tuple(rows), rtol, atol, values, tuple(notes))


def _row(left: State, right: State, pair: Pair) -> WeightRow:
    """A pair by names and shapes alone: `equal` where these are."""
    name = " + ".join(pair.left)
    there = right.items.get(pair.right)
    known = there.spec if there else None
    if any(source not in left for source in pair.left):
        return WeightRow(None, pair.right, None, known, pair.transform, "only right" if there else "gone")
    try:
        spec = made(left, pair)
    except WeightsError as error:
        own = left.items[pair.left[-1]].spec
        return WeightRow(name, pair.right, own, known, pair.transform, "shape", str(error))
    if known is None:
        return WeightRow(name, None, spec, None, pair.transform, "only left")
    if spec.shape != known.shape:
        return WeightRow(name, pair.right, spec, known, pair.transform, "shape", f"{spec} and {known}")
    return WeightRow(name, pair.right, spec, known, pair.transform)


def _measured(
    row: WeightRow, left: State, right: State, pair: Pair, rtol: float, atol: float, equal_nan: bool, relative_to: str
) -> WeightRow:
    assert row.left_spec
    assert row.right_spec
    mine, theirs = value(left, pair), right.read(pair.right)
    same = row.left_spec.dtype == row.right_spec.dtype and bool(np.array_equal(as_bytes(mine), as_bytes(theirs)))
    if same and not _has_nan(theirs, row.right_spec.dtype):  # most are: nothing is left to measure
        return replace(row, allclose=True, ratio=1.0, cosine=1.0, mean_error=0.0, max_error=0.0)
    sides = (mine, theirs, row.left_spec.dtype, row.right_spec.dtype)
    if relative_to == "right":
        sides = (theirs, mine, row.right_spec.dtype, row.left_spec.dtype)
    numbers = measure(*sides, rtol=rtol, atol=atol)
    ratio = close_share(numbers, equal_nan)
    verdict = "equal" if same and ratio == 1.0 else "close" if ratio == 1.0 else "different"
    row = replace(row, cosine=numbers.cosine, mean_error=numbers.mean_abs, max_error=numbers.max_abs)
    return replace(row, verdict=verdict, allclose=ratio == 1.0, ratio=ratio)


def _has_nan(array: np.ndarray[Any, Any], dtype: str) -> bool:
    values = as_float(array, dtype)
    return values.dtype.kind in "fc" and bool(np.isnan(values).any())


def close_share(numbers: Measurement, equal_nan: bool) -> float:
    """The share of elements that numpy.isclose calls close; of no elements, all."""
    if not numbers.count:
        return 1.0
    close = 0 if numbers.close is None else round(numbers.close * numbers.count)  # NaN is close to NaN there
    return (close - (0 if equal_nan else numbers.nan_both)) / numbers.count


def as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array's bytes, without a copy where they lie in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
