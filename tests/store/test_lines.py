"""One line of a journal, and the values in it."""

import json
import math

import pytest
import specimens

from twintrace.model import tagged
from twintrace.model.errors import TraceFormatError, TraceWriteError
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.store import lines
from twintrace.store.lines import decode, field_of, number_of, optional_of, seal, seal_text, unseal, value_of, wire_of

READ_BACK = [
    None,
    True,
    7,
    -1.5,
    "same",
    Nest("list", (("0", 1), ("1", Nest("list", (("0", 2),))))),
    Nest("tuple", (("0", 1), ("1", TensorRef(0)))),
    Nest("set", (("0", "a"),)),
    Nest("dict", (("mask", TensorRef(1)), ("a.b/c\nd", 0))),
    Nest("Output", (("loss", TensorRef(2)),)),
    Token("dtype", "float32"),
    math.nan,
    -math.inf,
    complex(1.0, math.inf),
]


@pytest.mark.parametrize(
    ("wire", "value"), list(zip(specimens.VALUES, READ_BACK, strict=True)), ids=lambda x: str(x)[:24]
)
def test_values_travel_both_ways(wire, value):
    assert repr(value_of(wire)) == repr(value)  # repr, because nan != nan
    assert json.loads(json.dumps(wire_of(value))) == wire  # pairs are lists in JSON


def test_a_sealed_line_is_plain_json_with_its_check_last():
    raw = seal({"k": "note", "topic": "a", "text": "–\n"})
    assert raw == '{"k":"note","topic":"a","text":"–\\n","crc":"af89c9aa"}\n'.encode()
    assert json.loads(raw)["text"] == "–\n"
    assert unseal(raw) == unseal(raw[:-1]) == {"k": "note", "topic": "a", "text": "–\n"}
    assert seal_text('{"k":"note","topic":"a","text":"–\\n"') == raw


@pytest.mark.parametrize(
    "text", ["a\nb", "../../x", "a\0b", "\ud800", "\u2028", '"}', ',"crc":"00000000"}', "𝄞", "\x85"]
)
def test_any_name_fits_in_one_line(text):
    raw = seal({"k": "note", "topic": text, "text": text})
    assert raw.count(b"\n") == 1
    assert unseal(raw)["text"] == text


BROKEN = {
    "nothing": (b"", "no check at its end"),
    "a torn line": (b'{"k":"note","topic":"a","te', "no check at its end"),
    "no check": (b'{"k":"note","topic":"a","text":"b"}', "no check at its end"),
    "a check that is no number": (b'{"k":"note","topic":"a","crc":"zzzzzzzz"}', "not a number"),
    "another check": (b'{"k":"note","topic":"a","crc":"00000000"}', "check says 00000000, its bytes give"),
    "no JSON": (specimens.seal_raw(b'{"k":"note",topic'), "not JSON"),
    "no object": (specimens.seal_raw(b'[1,2,3,4,5,6]'), "not JSON"),
    "not UTF-8": (specimens.seal_raw(b'{"k":"note","topic":"\xff"'), "not JSON"),
    "UTF-16": (specimens.seal_raw('{"k":"note"'.encode("utf-16")), "not JSON"),
    "NaN": (specimens.seal_raw(b'{"k":"note","x":NaN'), "not finite"),
    "Infinity": (specimens.seal_raw(b'{"k":"note","x":-Infinity'), "not finite"),
    "beyond float64": (specimens.seal_raw(b'{"k":"note","x":1e999'), "not finite"),
    "5000 digits": (specimens.seal_raw(b'{"k":"note","x":' + b"9" * 5000), "not JSON"),
    "deep": (specimens.seal_raw(b'{"k":"note","x":' + b"[" * 400 + b"]" * 400), "nested deeper than 300"),
    "deeper": (specimens.seal_raw(b'{"k":"note","x":' + b"[" * 200_000), "not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_says_what_is_wrong(case):
    raw, text = BROKEN[case]
    with pytest.raises(ValueError, match=text):
        unseal(raw)


def test_what_is_deep_is_not_what_is_long():
    assert decode(b"[" + b"[1]," * 5000 + b"2]") == [[1]] * 5000 + [2]
    assert decode(b"[" * 300 + b"]" * 300)
    with pytest.raises(ValueError, match="deeper than 300"):
        decode(b"[" * 301 + b"]" * 301)


def test_a_line_that_no_reader_would_take_is_not_written():
    with pytest.raises(TraceWriteError, match=f"at most {lines.MAX_LINE}"):
        seal({"k": "note", "topic": "", "text": "x" * lines.MAX_LINE})
    assert len(seal({"k": "note", "text": "x" * (lines.MAX_LINE - 50)})) <= lines.MAX_LINE + 1


UNKNOWN = [
    {"$t": -1}, {"$t": True}, {"$t": "0"}, {"$t": 2**62}, {"$tuple": 1}, {"$dict": ["dict"]}, {"$dict": [1, []]},
    {"$dict": ["dict", [["a"]]]}, {"$dict": ["dict", [[1, 2]]]}, {"$token": ["a"]}, {"$token": ["a", 1]}, {"$float": "1"},
    {"$float": 1}, {"$float": ["nan"]}, {"$complex": [1]}, {"$complex": ["a", 1]}, {"$new": 1}, {"a": 1}, {}, {"$t": 1, "b": 2},
]  # fmt: skip


@pytest.mark.parametrize("wire", UNKNOWN, ids=str)
def test_a_form_that_is_not_known_is_refused(wire):
    with pytest.raises(ValueError, match=r"unknown form|expected"):
        value_of(wire)


def test_values_are_not_followed_for_ever():
    deep = [1]
    for _ in range(tagged.MAX_DEPTH - 1):
        deep = [deep]
    value_of(deep)
    with pytest.raises(ValueError, match=f"deeper than {tagged.MAX_DEPTH}"):
        value_of([[deep]])


@pytest.mark.parametrize("wire", ["1", True, [1], {}, {"$float": 1}, {"$float": "nan", "b": 1}], ids=str)
def test_what_is_no_number_is_refused(wire):
    with pytest.raises(ValueError, match="expected"):
        number_of(wire)
    assert number_of({"$float": "inf"}) == math.inf
    assert number_of(3) == 3
    assert number_of(None) is None


@pytest.mark.parametrize(
    ("value", "kind"), [(True, int), (-1, int), (2**62, int), (1.0, int), ("1", int), (1, str), (None, list), (1, bool)]
)
def test_a_field_of_another_type_names_record_and_field(value, kind):
    with pytest.raises(TraceFormatError, match=r"j\.jsonl: line 3: field 'x': expected .*, got"):
        field_of({"x": value}, "x", kind, "j.jsonl: line 3")


def test_a_field_that_may_be_absent():
    assert optional_of({}, "x", int, 5, "") == optional_of({"x": None}, "x", int, 5, "") == 5
    assert optional_of({"x": 0}, "x", int, 5, "") == 0
    with pytest.raises(TraceFormatError, match="field 'x'"):
        optional_of({"x": "0"}, "x", int, 5, "")
