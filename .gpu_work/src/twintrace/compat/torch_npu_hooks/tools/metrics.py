"""The three numbers of a row, as the document means them and as the old tool computed them.

            by default                          legacy
    Cosine  a·b / (|a| |b|)                     0.5 + 0.5 · that, so that orthogonal is 0.5
    RMSE    √(Σ (a - b)² / n)                   the same; nan is an empty cell
    MAPE    100 · Σ |(a - b) / b| / n, "%"      the same, rounded to four digits; x/0 is inf%, 0/0 is nan%

a is the npu, b the bench. By default `nan` says that a number cannot be had: an element that is not finite, a zero vector's
cosine, a zero of the bench for MAPE.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ....model.results import TensorResult
from ....model.tensors import Tensor
from ....model.verdicts import Outcome
from ....store.arrays import as_float
from ....store.trace import Journal

NOT_CALCULATED = "cannot be calculated"


class Scores(NamedTuple):
    """The last three cells of a row."""

    cosine: str
    rmse: str
    mape: str


_UNKNOWN = Scores(NOT_CALCULATED, NOT_CALCULATED, NOT_CALCULATED)
_NAN = Scores("nan", "nan", "nan")


def scores(item: TensorResult) -> Scores:
    """From what was measured; where the bits are equal nothing needed to be."""
    bench = item.left.statistics
    if bench is None or item.left.missing or item.right.missing:
        return _UNKNOWN
    zeros = bench.zero
    found = item.measurement
    if found is None:
        if item.verdict.outcome is not Outcome.SAME:
            return _UNKNOWN
        if bench.nan or bench.posinf or bench.neginf or bench.norm is None:
            return _NAN
        return Scores(_text(1.0 if bench.norm else None), "0.0", _percent(None if zeros else 0.0))
    if found.finite < found.count or not found.count:
        return _NAN
    return Scores(_text(found.cosine), _text(found.rmse), _percent(None if zeros else found.mape))


def legacy_scores(npu: Journal, npu_tensor: Tensor, bench: Journal, bench_tensor: Tensor) -> Scores:
    """As the old tool computed them, nan and inf included."""
    if npu_tensor.payload is None or bench_tensor.payload is None:
        return _UNKNOWN
    a, b = _flat(npu, npu_tensor), _flat(bench, bench_tensor)
    with np.errstate(all="ignore"):
        cosine = 0.5 + 0.5 * float(np.float64(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))
        rmse = float(np.linalg.norm(a - b) / np.sqrt(np.float64(len(a))))
        mape = round(float(np.sum(np.abs((a - b) / b)) / np.float64(len(b)) * 100), 4)
    return Scores(_text(cosine), "" if math.isnan(rmse) else repr(rmse), f"{mape}%")


def _flat(journal: Journal, tensor: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = as_float(journal.array(tensor), tensor.spec.dtype)
    return np.real(values).astype(np.float64).reshape(-1)


def _text(number: float | None) -> str:
    return "nan" if number is None or math.isnan(number) else repr(number)


def _percent(number: float | None) -> str:
    return "nan" if number is None or math.isnan(number) else f"{number:.10g}%"
