"""Values as JSON and back, for every element type."""

import json
import math

import numpy as np
import pytest

from twintrace.compat.reading import storable
from twintrace.compat.torch_npu_hooks.writer import from_values, to_text
from twintrace.model.tensors import DTYPES, Spec
from twintrace.store.arrays import STORAGE


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if storable(dtype) == dtype])
def test_what_is_written_is_read_back_bit_by_bit(dtype):
    generator = np.random.default_rng(0)
    count = 6
    storage = STORAGE[dtype]
    if dtype == "b8":
        array = np.array([True, False, True, True, False, True])
    elif storage.kind in "iu" and dtype != "bf16":
        limits = np.iinfo(storage)
        array = np.array([limits.min, limits.max, 0, 1, 2, 3], dtype=storage)
    elif dtype == "bf16":
        array = np.array([0x3F80, 0xC0A0, 0x7F80, 0x0001, 0x0000, 0x8000], dtype=storage)
    else:
        array = generator.standard_normal(count).astype(storage)
        array[0] = np.inf
    values = json.loads(to_text(array.tobytes(), dtype))
    assert len(values) == (2 * count if dtype.startswith("c") else count)
    back = from_values(values, Spec(dtype, (2, 3)))
    assert back.shape == (2, 3)
    assert back.tobytes() == array.tobytes()


def test_floats_are_written_as_the_old_tool_did():
    array = np.array([0.1, math.nan, -math.inf], dtype=np.float32)
    assert to_text(array.tobytes(), "f32") == b"[0.10000000149011612, NaN, -Infinity]"


def test_codes_are_written_as_their_values():
    assert json.loads(to_text(bytes([0x38, 0xB8]), "f8e4m3fn")) == [1.0, -1.0]
    assert storable("f8e4m3fn") == "f32"
    assert to_text(bytes([0x22]), "f4e2m1fn_x2") == b"[]"


def test_a_tensor_without_dimensions():
    assert from_values([2.5], Spec("f32", ())).shape == ()
    assert from_values([2.5], Spec("bf16", ())).shape == ()


@pytest.mark.parametrize(
    ("values", "spec"),
    [
        ([1.0, 2.0], Spec("f32", (3,))),
        ([[1.0], [2.0]], Spec("f32", (2,))),
        (["x"], Spec("f32", (1,))),
        ([None], Spec("f32", (1,))),
        ([1 << 70], Spec("i64", (1,))),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(values, spec):
    with pytest.raises(ValueError, match=r"values for a tensor|a flat list of numbers"):
        from_values(values, spec)
