"""Buffers that follow from their shape: what one net keeps and the other computes when it needs it.

    position_ids   i64[1, 512]          0 1 2 …                             position indices
    inv_freq       f32[32]              1, r, r², …                         inverse frequencies
    attn.bias      b8[1, 1, 64, 64]     the lower triangle                  a causal mask
    masked_bias    f32[]                -1e9                                the value of a mask
    pe             f32[1, 512, 64]      sin(p·f), cos(p·f)                  a table of sines and cosines
    logits_bias    f32[1, 50000]        0                                   a bias of zeros

Values decide; a name alone makes nothing dispensable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.tensors import UNITS
from ..store.arrays import as_float
from .states import Item, State

Array = np.ndarray[Any, Any]
ZEROS = "a bias of zeros"
_MOST = 1 << 24
"""Elements beyond which nothing is looked at: a mask of 4096 positions has as many."""
_MASKS = -1e4
"""The largest value that masks use in place of minus infinity."""


def derivation(item: Item, state: State) -> str:
    """A word for values that follow from the shape; "" for others."""
    shape = tuple(size for size in item.spec.shape if size != 1)
    if math.prod(shape) > _MOST or not math.prod(shape):
        return ""
    whole = item.spec.dtype not in UNITS
    big = len(shape) > 1 and not re.search("pos|mask|freq", item.name)
    if item.role == "weight" and not whole and (big or item.rule.kind not in ("", "embedding")):
        return ""  # as most weights are: not read for this
    values = as_float(state.read(item.name), item.spec.dtype).reshape(shape)
    if whole or values.dtype.kind not in "fc":
        values = values.astype(np.float64)
    if "freq" in item.name and not whole and 0 < values.size <= 2 and values.flat[0] == 1:
        return "inverse frequencies"  # too few to be recognised by themselves
    for told, holds in _FORMS:
        if holds(values, whole):
            return told
    bias = item.role.endswith("bias") or (item.role == "value" and item.name.endswith("bias"))
    return ZEROS if bias and not values.any() else ""


def _positions(values: Array, whole: bool) -> bool:
    return values.ndim == 1 and values.size > 1 and np.array_equal(values, values[0] + np.arange(values.size)) and whole


def _frequencies(values: Array, whole: bool) -> bool:
    """A falling geometric sequence from 1, as exactly as its type can hold it."""
    if whole or values.ndim != 1 or values.size < 3 or values[0] != 1 or not (values > 0).all():
        return False
    exact = values.astype(np.float64)
    rtol, atol = next(((rtol, atol) for rtol, atol, holds in _COARSE if holds(values)), (1e-4, 0.0))
    last = int(np.flatnonzero(exact > _SMALL)[-1])  # the ratio from one that is held to all digits
    if not last or exact[1] >= 1:
        return False
    return np.allclose(exact, exact[last] ** (np.arange(exact.size) / last), rtol=rtol, atol=atol)


def _is_bf16(values: Array) -> bool:
    return not (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF).any()


def _is_f16(values: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(np.float16), values)


_COARSE: tuple[tuple[float, float, Callable[[Array], bool]], ...] = ((2**-7, 0.0, _is_bf16), (2**-10, 2**-24, _is_f16))
"""Of values that were kept in 16 bits once, whatever they are kept in now: their rounding and that of the one that gives the ratio,
and the least that f16 can hold."""
_SMALL = 1e-4
"""Below this f16 holds fewer digits."""


def _triangle(values: Array, whole: bool) -> bool:
    """Zero on one side of the diagonal (with it or without), one other value on the other side."""
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape[0] < 3:
        return False
    lower = np.tri(values.shape[0], dtype=bool)
    for inside in (lower, ~lower, lower.T, ~lower.T):
        kept, other = values[inside], values[~inside]
        if (kept == kept[0]).all() and (other == other[0]).all() and kept[0] != other[0] and 0 in (kept[0], other[0]):
            return True
    return False


def _waves(values: Array, whole: bool) -> bool:
    """Sines and cosines of positions times a falling geometric sequence, side by side or in halves."""
    if whole or values.ndim != 2 or values.shape[0] < 3 or values.shape[1] < 4 or values.shape[1] % 2:
        return False
    half = values.shape[1] // 2
    for sines, cosines in (
        (values[:, 0::2], values[:, 1::2]),
        (values[:, :half], values[:, half:]),
        (values[:, half:], values[:, :half]),
    ):
        frequencies = np.arctan2(sines[1], cosines[1]).astype(np.float64)
        if (frequencies <= 0).any() or not np.allclose(
            frequencies[1:] / frequencies[:-1], frequencies[1] / frequencies[0], rtol=1e-3
        ):
            continue
        angles = np.arange(values.shape[0])[:, None] * frequencies
        if np.allclose(sines, np.sin(angles), atol=1e-4) and np.allclose(cosines, np.cos(angles), atol=1e-4):
            return True
    return False


_FORMS: tuple[tuple[str, Callable[[Array, bool], bool]], ...] = (
    ("position indices", _positions),
    ("a constant", lambda values, whole: whole and bool((values == values.flat[0]).all())),
    (
        "the value of a mask",
        lambda values, whole: not whole and bool((values == values.flat[0]).all() and values.flat[0] <= _MASKS),
    ),
    ("inverse frequencies", _frequencies),
    ("a causal mask", _triangle),
    ("a table of sines and cosines", _waves),
)
