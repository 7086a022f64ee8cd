"""Tolerances from a TOML file."""

from __future__ import annotations

import pytest

from twintrace.judge.tolerances import Tolerances, read_tolerances
from twintrace.model.errors import UsageError

GOOD = """
rtol = 1e-3
[dtype.bf16]
rtol = 1.6e-2
[name."encoder.*"]
atol = 1
[name."encoder.0.*"]
rtol = 0.5
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        (tmp_path / "tolerances.toml").write_text(text)
        return tmp_path / "tolerances.toml"

    return written


@pytest.mark.parametrize(
    ("dtypes", "names", "expected"),
    [
        (("f32", "f32"), (), (1e-3, 1e-8)),
        (("f32", "bf16"), (), (1.6e-2, 1e-8)),
        (("f32", "f32"), ("decoder.0", "encoder.1.norm"), (1e-3, 1.0)),
        (("bf16", "bf16"), ("encoder.0.norm",), (0.5, 1.0)),
    ],
)
def test_the_last_name_that_fits_wins_over_the_type(write, dtypes, names, expected):
    assert read_tolerances(write(GOOD)).of(dtypes, names) == expected


def test_an_empty_file_says_nothing(write):
    assert read_tolerances(write("")) == Tolerances()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rtol = ", "not a TOML file"),
        ("rtl = 1", "unknown key 'rtl'"),
        ("rtol = 'much'", "rtol: expected a number that is not negative, got 'much'"),
        ("rtol = -1", "expected a number that is not negative, got -1"),
        ("rtol = inf", "expected a number that is not negative, got inf"),
        ("rtol = true", "got True"),
        ("dtype = 3", r"dtype: expected tables \[dtype"),
        ("[dtype.float32]\nrtol = 1", r"\[dtype.float32\]: no such element type"),
        ("[name.a]\ntol = 1", r"\[name.'a'\] unknown key 'tol'"),
    ],
)
def test_a_file_that_says_something_else_is_refused_with_the_key(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_tolerances(write(text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_tolerances(tmp_path / "none.toml")
