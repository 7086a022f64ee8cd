"""Relative errors as the tool defines them, one element after the other, for every element type."""

import math

import numpy as np
import pytest

from tests.store.elements import READ, SPECIAL, held, ordinary
from twintrace.compat.msprobe.compare.tensors import relative_errors
from twintrace.model.tensors import DTYPES

INF, NAN = math.inf, math.nan
SINGLE = {"f32", "f16", "bf16"} | {dtype for dtype in DTYPES if dtype.startswith(("f8", "f4"))}


def definition(left: list, right: list, left_dtype: str, right_dtype: str) -> tuple[float, float, float]:
    kind = np.float32 if {left_dtype, right_dtype} <= SINGLE else np.float64
    with np.errstate(all="ignore"):
        found = [one_ratio(one, two, kind) for one, two in zip(left, right, strict=True)]
    most = max((ratio for ratio in found if ratio is not None), default=0.0)
    shares = (sum(ratio is not None and ratio < kind(bound) for ratio in found) for bound in (0.001, 0.005))
    return float(most), *(share / len(found) for share in shares)


def one_ratio(one, two, kind) -> float | None:
    complex_ = isinstance(one, tuple) or isinstance(two, tuple)
    ones, twos = (each if isinstance(each, tuple) else (each, 0.0) for each in (one, two))
    sizes = math.hypot(*map(float, ones)), math.hypot(*map(float, twos))
    if any(map(math.isnan, (*ones, *twos))):
        return 0.0 if any(map(math.isnan, ones)) and any(map(math.isnan, twos)) else None
    if any(map(math.isinf, sizes)):
        return 0.0 if ones == twos else None
    step = np.finfo(kind).eps
    if complex_:
        error = math.hypot(float(twos[0]) - float(ones[0]), float(twos[1]) - float(ones[1]))
        return np.float64(error) / (sizes[0] or step)
    beneath, above = kind(one), kind(two)
    if beneath == 0:
        beneath, above = beneath + step, above + step
    return abs((above - beneath) / beneath)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_against_the_definition(dtype):
    near = ordinary(dtype, 400)
    far = near[: len(near) // 2] + ordinary(dtype, 200)
    odd = SPECIAL.get(dtype) or bytes(range(256))
    turned = odd[DTYPES[dtype] :] + odd[: DTYPES[dtype]]
    for left, right in ((near, far), (odd, odd), (odd, turned), (bytes(len(near)), near)):
        wanted = definition(READ[dtype](left), READ[dtype](right), dtype, dtype)
        assert relative_errors(held(left, dtype), held(right, dtype), dtype, dtype) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(
    ("one", "two"), [("f32", "bf16"), ("f32", "f64"), ("i64", "f32"), ("f16", "i32"), ("f32", "c64")]
)
def test_two_types_at_once(one, two):
    left, right = ordinary(one, 300), ordinary(two, 300)
    wanted = definition(READ[one](left), READ[two](right), one, two)
    assert relative_errors(held(left, one), held(right, two), one, two) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ([0], [1], (2.0**23, 0, 0)),  # one, in steps of the smallest
        ([0, 1], [1e-15, 1], (0, 1, 1)),  # lost beside the step that is added
        ([1000, 1000], [1000.9999, 1004.9], (float(np.float32(np.float32(1004.9) - 1000) / np.float32(1000)), 0.5, 1)),
        ([NAN, INF, 1, 1], [1, -INF, 1, 1], (0, 0.5, 0.5)),
        ([1e-38, 1], [3e38, 1], (INF, 0.5, 0.5)),
        ([1] * 70_000, [1.002] + [1] * 69_999, (float(np.float32(1.002) - 1), 69_999 / 70_000, 1)),  # several blocks
    ],
)  # fmt: skip
def test_unpleasant_cases(left, right, wanted):
    assert relative_errors(np.array(left, np.float32), np.array(right, np.float32), "f32", "f32") == wanted


def test_strides_make_no_difference():
    left, right = (held(ordinary("f32", 3000), "f32").reshape(30, 100)[:, ::3] for _ in range(2))
    plain = relative_errors(np.ascontiguousarray(left), np.ascontiguousarray(right), "f32", "f32")
    assert relative_errors(left, right, "f32", "f32") == plain
