"""Evidence to judge: two arrays, and all that the store and the scales would say of them."""

from __future__ import annotations

import numpy as np

from twintrace.judge.policies import Evidence
from twintrace.measure.statistics import difference
from twintrace.measure.values import measure
from twintrace.model.pairs import Layout, Part, TensorPair
from twintrace.model.tensors import Spec, Tensor
from twintrace.store.digest import digest

NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "i64", "bool": "b8"}


def tensor(array, number=0, *, fingerprint=True):
    """What a journal says of an array."""
    array = np.ascontiguousarray(array)
    dtype = NAMES[array.dtype.name]
    found = digest(array, dtype, fingerprint=fingerprint)
    return Tensor(number, Spec(dtype, array.shape), statistics=found.statistics, fingerprint=found.fingerprint)


def evidence(
    left,
    right,
    *,
    part=Part.OUTPUT,
    numbers=(0, 0),
    values=True,
    fingerprint=True,
    layout=None,
    names=(),
    rtol=1e-5,
    atol=1e-8,
):
    """Two arrays as the bench gets them; `values=False`: only their statistics were kept."""
    left, right = np.asarray(left), np.asarray(right)
    layout = layout or Layout()
    one, two = (
        tensor(item, number, fingerprint=fingerprint) for item, number in zip((left, right), numbers, strict=True)
    )
    pair = TensorPair(part, "0", "0", *numbers, layout)
    measured = None
    if values:
        measured = measure(left, right, one.spec.dtype, two.spec.dtype, layout, rtol=rtol, atol=atol)
    return Evidence(pair, one, two, measured, difference(one.statistics, two.statistics), names)
