"""The table of element types: one row each, and what follows from it agrees with numpy and torch."""

import numpy as np
import pytest

from twintrace.model import dtypes
from twintrace.model.dtypes import DTYPES, LARGEST, LETTERS, LONG_NAMES, MINDSPORE_NAMES, UNITS, short_name

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("text", "short"),
    [("torch.float32", "f32"), ("Float32", "f32"), ("mindspore.float32", "f32"), ("BFloat16", "bf16"), ("Bool", "b8"),
     ("mindspore.bool_", "b8"), ("torch.half", "f16"), ("torch.float8_e4m3fn", "f8e4m3fn"), ("float64", "f64"),
     ("torch.complex64", "c64"), ("torch.qint8", None), ("object", None)],
)  # fmt: skip
def test_names_however_a_tool_spells_them(text, short):
    assert short_name(text) == short


def test_every_name_is_read_back():
    assert all(short_name(f"torch.{long}") == name for name, long in LONG_NAMES.items())
    assert all(short_name(theirs) == name for name, theirs in MINDSPORE_NAMES.items())


@pytest.mark.parametrize("name", DTYPES)
def test_sizes_and_precisions_are_those_of_numpy_and_torch(name):
    assert np.dtype(LETTERS[name]).itemsize == DTYPES[name]
    dtype = getattr(torch, LONG_NAMES[name], None)
    if dtype is None:
        return
    assert dtype.itemsize == DTYPES[name]
    if not (dtype.is_floating_point or dtype.is_complex):
        assert name not in UNITS
        return
    if name not in ("f4e2m1fn_x2", "f8e5m2fnuz"):  # torch says nothing of the one, and halves the eps of the other
        facts = torch.finfo(dtype)
        assert UNITS[name] == facts.eps / 2
        assert name not in LARGEST or LARGEST[name] == facts.max
        if name in dtypes.PRECISIONS and name != "f8e8m0fnu":
            digits, least = dtypes.PRECISIONS[name]
            assert (2.0 ** (1 - digits), 2.0**least) == (facts.eps, facts.tiny)
