"""The mistake in a wrong weight: a sentence, out of the two arrays.

    expected            found
    [[1, 2], [3, 4]]    [[1, 3], [2, 4]]     is transposed
    i f g o             i g f o              has its 4 blocks (gates) in the order 0 2 1 3
    bn.weight           bn.bias's values     and its partner the other way round: the two are swapped
    anything            all 0                is all 0: it was never loaded, or was reset

Hypotheses are tried from the most special to the most general; each is tested exactly on the values, so the sentence is true.
The last one always holds: other values, and how far they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..model.tensors import UNITS
from ..store.arrays import as_float
from .transforms import cast

Array = np.ndarray[Any, Any]
_GATES = {
    **dict.fromkeys(("lstm", "lstm_cell"), (4, "gates i f g o")),
    **dict.fromkeys(("gru", "gru_cell"), (3, "gates r z n")),
    "attention": (3, "query, key and value"),
}


def describe(expected: Array, got: Array, dtype: str, kind: str = "") -> str:
    """A sentence about `got`, whose values should be those of `expected`; both in their storage type."""
    one, two = as_float(expected, dtype), as_float(got, dtype)
    if got.shape != expected.shape:
        return next(_other_shape(one, two), f"has shape {list(got.shape)}, expected {list(expected.shape)}")
    if dtype not in UNITS or one.dtype.kind not in "fc":
        one, two = one.astype(np.float64), two.astype(np.float64)
    for hypothesis in _HYPOTHESES:
        text = next(hypothesis(one, two, kind), None)
        if text:
            return text
    size = float(np.linalg.norm(one.reshape(-1)) * np.linalg.norm(two.reshape(-1)))
    cosine = float(np.vdot(one.reshape(-1), two.reshape(-1)).real) / size if size else math.nan
    largest = float(np.abs(one - two).max(initial=0))
    if cosine > 0.99:
        return f"has values that are near (off by up to {largest:.3g}, cosine {cosine:.5f}): another step of training?"
    return f"has other values (cosine {cosine:.3f}, off by up to {largest:.3g}): not these weights, perhaps a fresh initialisation"


def _other_shape(one: Array, two: Array) -> Iterator[str]:
    for axes in itertools.permutations(range(one.ndim)) if one.ndim <= 5 else ():
        if np.transpose(one, axes).shape == two.shape and np.array_equal(np.transpose(one, axes), two):
            yield f"is transposed: its axes are in the order {' '.join(map(str, axes))}"
    if one.size == two.size and np.array_equal(one.reshape(-1), two.reshape(-1)):
        yield f"has the right values in the shape {list(two.shape)} instead of {list(one.shape)}"
    if one.ndim == two.ndim:
        inner = tuple(map(slice, map(min, one.shape, two.shape)))
        if one[inner].shape == two.shape and np.array_equal(one[inner], two):
            yield f"is cut off: {list(two.shape)} of {list(one.shape)}"
        elif two[inner].shape == one.shape and np.array_equal(two[inner], one):
            yield f"is padded: {list(two.shape)} where {list(one.shape)} was expected"


def _not_finite(one: Array, two: Array, kind: str) -> Iterator[str]:
    bad = ~np.isfinite(two) & np.isfinite(one)
    if bad.any():
        where = np.unravel_index(int(bad.argmax()), bad.shape)
        yield f"is not finite in {int(bad.sum())} of {bad.size} elements, first at {[int(at) for at in where]}"


def _constant(one: Array, two: Array, kind: str) -> Iterator[str]:
    if two.size > 1 and (two == two.flat[0]).all() and not (one == one.flat[0]).all():
        yield f"is all {two.flat[0]:g}: it was never loaded, or was reset"


def _axes(one: Array, two: Array, kind: str) -> Iterator[str]:
    if 2 <= one.ndim <= 5:
        for axes in itertools.permutations(range(one.ndim)):
            turned = np.transpose(one, axes)
            if turned.shape == two.shape and np.array_equal(turned, two):
                order = "" if one.ndim == 2 else f": its axes are in the order {' '.join(map(str, axes))}"
                yield f"is transposed{order}"


def _mirrored(one: Array, two: Array, kind: str) -> Iterator[str]:
    for count in range(1, min(one.ndim, 5) + 1):
        for axes in itertools.combinations(range(min(one.ndim, 5)), count):
            if np.array_equal(np.flip(one, axes), two):
                yield f"is mirrored along {'axis' if count == 1 else 'axes'} {' and '.join(map(str, axes))}"


def _blocks(one: Array, two: Array, kind: str) -> Iterator[str]:
    gates, name = _GATES.get(kind, (0, ""))
    counts = [gates] if gates else []
    for axis in range(min(one.ndim, 2)):
        for count in [*counts, *(number for number in (2, 3, 4) if number != gates)]:
            if one.shape[axis] % count or one.shape[axis] < count:
                continue
            parts, others = np.split(one, count, axis), np.split(two, count, axis)
            order = [next((n for n, part in enumerate(parts) if np.array_equal(part, other)), None) for other in others]
            if None not in order and sorted(order) == list(range(count)):  # type: ignore[type-var]
                what = f" ({name})" if count == gates and axis == 0 else ""
                yield f"has its {count} blocks{what} in the order {' '.join(map(str, order))} along axis {axis}"


def _rolled(one: Array, two: Array, kind: str) -> Iterator[str]:
    for axis in range(one.ndim):
        for shift in (1, -1, 2, -2):
            if one.shape[axis] > abs(shift) and np.array_equal(np.roll(one, shift, axis), two):
                yield f"is shifted by {shift} along axis {axis}"


def _reordered(one: Array, two: Array, kind: str) -> Iterator[str]:
    for axis in range(min(one.ndim, 2)):
        rows = [sorted(row.tobytes() for row in np.moveaxis(side, axis, 0)) for side in (one, two)]
        if one.ndim > 1 and rows[0] == rows[1]:
            yield f"has its slices along axis {axis} in another order"
    if one.size == two.size and np.array_equal(np.sort(one, axis=None), np.sort(two, axis=None)):
        yield "has the right elements in another order (reshaped where it should have been transposed, or the like)"


def _rounded(one: Array, two: Array, kind: str) -> Iterator[str]:
    if one.dtype.kind == "f":
        for dtype in ("f16", "bf16", "f32"):
            narrow = as_float(cast(one, "f64" if one.dtype == np.float64 else "f32", dtype), dtype).astype(one.dtype)
            if one.dtype.itemsize > (4 if dtype == "f32" else 2) and np.array_equal(narrow, two):
                yield f"was rounded to {dtype}"
        steps = np.abs(one).max(initial=0) / 127 if one.size else 0
        if steps and np.allclose(np.round(one / steps) * steps, two, rtol=1e-5, atol=1e-6 * steps):
            yield "was quantised to 8 bits"


def _scaled(one: Array, two: Array, kind: str) -> Iterator[str]:
    if np.array_equal(-one, two):
        yield "has the opposite sign"
        return
    chosen = np.abs(one) > 1e-3 * np.abs(one).max(initial=0)
    if chosen.sum() > 1:
        factors = two[chosen] / one[chosen]
        factor = float(np.median(factors.real))
        if (
            factor not in (0.0, 1.0)
            and math.isfinite(factor)
            and np.allclose(two, one * factor, rtol=1e-5, atol=1e-7 * abs(factor))
        ):
            yield f"is {factor:.6g} times what it should be"


_RELATIONS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("the square root of", np.sqrt),
    ("the square of", np.square),
    ("one divided by", np.reciprocal),
    ("one divided by the square root of", lambda values: 1 / np.sqrt(values)),
    ("the exponential of", np.exp),
    ("the logarithm of", np.log),
    ("the absolute value of", np.abs),
)


def _related(one: Array, two: Array, kind: str) -> Iterator[str]:
    with np.errstate(all="ignore"):
        for text, function in _RELATIONS:
            values = function(one)
            if np.isfinite(values).all() and np.allclose(values, two, rtol=1e-4, atol=1e-6):
                yield f"is {text} what it should be"
        moved = two - one
        if (
            one.size > 1
            and np.abs(moved).min() > 0
            and np.ptp(moved) <= 1e-5 * max(1e-30, float(np.abs(moved).max())) + 1e-6
        ):
            yield f"is what it should be plus {float(moved.mean()):.6g}"


def _few(one: Array, two: Array, kind: str) -> Iterator[str]:
    wrong = ~((one == two) | (np.isnan(one) & np.isnan(two)))
    count = int(wrong.sum())
    if count and (count == 1 or count * 4 <= one.size):
        where = [int(at) for at in np.unravel_index(int(wrong.argmax()), wrong.shape)]
        text = f"differs in {count} of {one.size} elements, first at {where}: {one[tuple(where)]:g} became {two[tuple(where)]:g}"
        for axis in range(one.ndim):
            lines = wrong.any(axis=tuple(other for other in range(one.ndim) if other != axis))
            if one.ndim > 1 and lines.sum() == 1:
                text += f"; all of them are in slice {int(lines.argmax())} of axis {axis}"
                break
        yield text


_HYPOTHESES: tuple[Callable[[Array, Array, str], Iterator[str]], ...] = (
    _not_finite, _constant, _blocks, _axes, _mirrored, _rolled, _rounded, _scaled, _reordered, _related, _few,
)  # fmt: skip
