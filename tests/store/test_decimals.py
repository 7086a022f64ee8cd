"""Numbers out of JSON text: the floats that Python reads, and nothing where the text is no list of them."""

import json
import random
import struct

import numpy as np
import pytest

pytest.importorskip("numba")

from twintrace.store import decimals
from twintrace.store.decimals import parse


def read(texts, **options):
    return parse(", ".join(texts).encode(), len(texts), **options)


def test_float32_values_come_back_bit_by_bit():
    values = np.random.default_rng(0).standard_normal(20_000).astype(np.float32) * np.float32(1e-3)
    values[:4] = [0.0, -0.0, np.float32(1e-45), np.float32(3.4028235e38)]
    found = parse(json.dumps(values.tolist())[1:-1].encode(), values.size)
    assert found.dtype == np.float32
    assert np.array_equal(found.view(np.uint32), values.view(np.uint32))


def test_every_float64_is_the_one_that_python_reads():
    """Random bits, so that every exponent is there, subnormal numbers too."""
    random.seed(0)
    bits = (struct.unpack("<d", struct.pack("<Q", random.getrandbits(64)))[0] for _ in range(40_000))
    values = [value for value in bits if value == value and abs(value) != float("inf")]
    for start in range(0, len(values), 2000):  # some are left to Python, of which there may be so many in a list
        texts = [repr(value) for value in values[start : start + 2000]]
        assert read(texts, wide=True).tolist() == values[start : start + 2000]


def test_numbers_however_they_are_written():
    random.seed(1)
    texts = [
        f"{random.choice(['', '-'])}{random.randint(0, 10 ** random.randint(1, 17))}"
        f".{random.randint(0, 10 ** random.randint(1, 18)):0{random.randint(1, 20)}d}"
        f"{random.choice(['', 'e-5', 'E+12', 'e-40', 'e7'])}"
        for _ in range(3000)
    ]
    assert read(texts, wide=True).tolist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "4503599627370497.5", "4503599627370496.5", "9007199254740993", "9007199254740995", "1e22", "1e23", "8.5e22",
        "123456789012345678901234567890", "0.1234567890123456789012345", "1e400", "1e-400", "5e-324", "0.0000000000000000000000001",
        "12345678", "1234567890123456789", "9999999999999999999", "18446744073709551616", "0.00000000", "-0.0", "0", "1E5",
    ],
)  # fmt: skip
def test_numbers_that_are_easily_read_wrongly(text):
    """Half way between two floats, more digits than a word holds, at the ends of the range."""
    for texts in ([text], ["1.5", text, "-2"], [f"-{text}"] if not text.startswith("-") and text != "0" else []):
        if texts:
            assert list(map(str, read(texts, wide=True))) == [str(np.float64(float(each))) for each in texts]


def test_what_json_has_besides():
    found = parse(b" NaN ,\t-Infinity,Infinity ,\r\n1 ", 4)
    assert str(found.tolist()) == "[nan, -inf, inf, 1.0]"
    assert parse(b"", 0).size == parse(b"  ", 0).size == 0


@pytest.mark.parametrize(
    "text",
    ["1,,2", "1,2,", ",1,2", "01,2", "1.,2", ".5,1", "1e,2", "1e+,2", "[1],2", "1 2", "nan,2", "-NaN,1", "--1,2", "+1,2", "1;2", "",
     ",",     "-", "1,-", "Infinit,1", "true,false", '"1",2', "1,2,3", "1", "0x10,1"],
)  # fmt: skip
def test_what_is_no_list_of_so_many_numbers(text):
    assert parse(text.encode(), 2) is None


def test_a_list_of_nothing_but_hard_numbers_is_left_to_others():
    texts = ["1e-310"] * (decimals._MOST_HARD + 1)
    assert read(texts) is None
    assert read(texts[:-1]) is not None


def test_without_numba_the_answer_is_none(monkeypatch):
    monkeypatch.setattr(decimals, "_kernel", lambda wide: None)
    assert parse(b"1, 2", 2) is None


def test_a_hard_number_among_many_is_left_to_python():
    texts = [*["1.5"] * 200, "123456789012345678901234567890", *["-2"] * 200]
    for wide, kind in ((False, np.float32), (True, np.float64)):
        assert read(texts, wide=wide).tolist() == list(np.array(texts, kind))


@pytest.mark.parametrize("change", [(b", ", b",, "), (b", ", b" "), (b"1.5", b"x"), (b", ", b", 7, ")])
def test_a_mistake_anywhere_is_seen(change):
    text = b", ".join([b"1.5"] * 400)
    assert parse(text, 400) is not None
    assert parse(text, 399) is None
    assert parse(text, 401) is None
    for start in range(0, len(text) - 8, 97):
        assert parse(text[:start] + text[start:].replace(*change, 1), 400) is None


def test_what_lies_between_two_floats_is_rounded_as_python_rounds_it():
    """Half way between two float32, and as little beside it as float64 can tell."""
    between = [
        1 + 2**-24,
        1 + 3 * 2**-24,
        1 + 2**-24 + 2**-52,
        1 + 2**-24 - 2**-52,
        2.0**-149 * 1.5,
        3.4028235677973366e38,
    ]
    with np.errstate(over="ignore"):
        expected = np.array(between).astype(np.float32)
    assert read([repr(value) for value in between]).tolist() == expected.tolist()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9, 1e5, 1e-30])
def test_dumps_of_activations_and_gradients(scale, wide):
    """Zeros of either sign among numbers of any length and exponent, as Python writes float32 values."""
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(4_000) * scale).astype(np.float32)
    values[rng.random(values.size) < 0.3] = 0.0
    values[rng.random(values.size) < 0.1] = -0.0
    values[::7] = np.float16(0.123)
    found = parse(json.dumps(values.tolist())[1:-1].encode(), values.size, wide=wide)
    assert np.array_equal(found.astype(np.float32).view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize(
    "text",
    ["0.0461234599351882934", "1.0461234599351882", "9.0461234599351882934", "0.04612345993518829", "0.0461234599351882e-07",
     "0.0461234599351882e-7", "0.0461234599351882E-07", "0.0461234599351882e07", "0.0461234599351882e-123", "0.0461234599351882 ",
     "-0.0461234599351882934", "12.0461234599351882", "0.0461234599351882934567"],
)  # fmt: skip
@pytest.mark.parametrize("padding", [0, 3, 40])
def test_numbers_of_every_length_are_read_whatever_follows(text, padding):
    """At the end of the text there is no room for eight digits at once."""
    found = parse(f"{text},{' 1.5,' * padding} 2".encode(), padding + 2, wide=True)
    assert found[0] == float(text)
    twice = text.replace("e-", "e--") if "e-" in text else "1.2.3"
    for broken in (text.replace(".", ".x"), text.replace("882", "8-2"), "0" + text, twice):
        assert parse(f"{broken},{' 1.5,' * padding} 2".encode(), padding + 2, wide=True) is None
