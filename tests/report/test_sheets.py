"""What the page is given: few bytes, right numbers, texts as they would be written."""

import dataclasses
import gzip
import hashlib
import json
import math
import re
from importlib import resources

import comparisons
import pytest

from twintrace.model.errors import ReportError
from twintrace.model.measurements import Heat
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.report.comparison_sheet import comparison_sheet
from twintrace.report.headline import headline_of_comparison
from twintrace.report.page import SCRIPTS, write_page
from twintrace.report.sheets import LONGEST, PAGE, Words, heat, number, pack, show


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (None, 4, None),
        (0.0, 4, 0),
        (-0.0, 4, 0),
        (1.0, 4, 1),
        (0.123456789, 4, 0.1235),
        (1.23456789e-30, 3, 1.23e-30),
        (5e-324, 4, 5e-324),
        (123456789, 2, 123456789),
        (2**63 - 1, 4, "9223372036854775807"),
        (1e300, 4, 1e300),
        (math.nan, 4, "nan"),
        (math.inf, 4, "inf"),
        (-math.inf, 4, "-inf"),
    ],
)
def test_a_number_for_people(value, digits, expected):
    found = number(value, digits)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("a'b", '"a\'b"'),
        (TensorRef(3), "f32[3]"),
        (Token("dtype", "torch.float32"), "torch.float32"),
        (Nest("tuple", (("0", 1),)), "(1,)"),
        (Nest("list", (("0", 1), ("1", TensorRef(2)))), "[1, f32[2]]"),
        (Nest("dict", (("a", 1.5),)), "{a: 1.5}"),
        (Nest("Output", (("loss", True),)), "Output{loss: True}"),
    ],
)
def test_a_value_as_it_would_be_written(value, text):
    assert show(value, lambda identity: f"f32[{identity}]") == text


def test_a_value_of_any_size_is_shown_in_part():
    nest = Nest("list", tuple((str(at), "x" * 200) for at in range(1000)))
    for _ in range(2000):
        nest = Nest("list", (("0", nest),))
    assert show(nest) == "[" * 9 + "…" + "]" * 9
    assert len(show("x" * 10**6)) < LONGEST + 50


def test_words_are_numbered_once():
    words = Words()
    assert [words(text) for text in ("a", "b", "a")] == [0, 1, 0]
    assert words.items == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ((0.0, 0.5, 1.0), "Ag/"),
        ((0.0, 1e-12, 1.0), "AB/"),
        ((0.0, 0.0, 0.0), "AAA"),
        ((math.nan, math.inf, 2.0), "??/"),
        ((5e-324, 0.0, 0.0), "/AA"),
    ],
)
def test_a_heat_map_is_one_letter_a_cell(values, cells):
    assert heat(Heat(1, 3, values))[3] == cells


def test_packing_is_the_same_every_time():
    content = {"text": "é\ud800</script>", "numbers": [1, 2.5]}
    assert pack(content) == pack(content)
    assert json.loads(gzip.decompress(pack(content))) == content
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack([math.nan])


def test_every_row_is_on_a_page_and_what_tells_most_on_the_first():
    comparison = comparisons.comparison(4000)
    sheet = comparison_sheet(comparison)
    sizes = [len(sheet.page(page)) for page in range(sheet.pages)]
    assert sum(sizes) == len(comparison.results)
    assert set(sizes[:-1]) == {PAGE}
    position, found = 0, []
    for step in sheet.index["rows"]["position"]:
        position += step
        found.append(position)
    assert sorted(found) == list(range(len(comparison.results)))
    [first] = [row for row, result in enumerate(comparison.results) if result.introduced_forward]
    assert found[first] == 0
    for row in (0, 1, 7, len(found) - 1):
        page = sheet.page(found[row] // PAGE)[found[row] % PAGE]
        assert len(page["tensors"]) == len(comparison.results[row].tensors)


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    sheet = comparison_sheet(comparisons.comparison())
    write_page(sheet, path)
    before = path.read_bytes()

    def fail(self, target):
        raise OSError("no space left")

    monkeypatch.setattr(type(path), "replace", fail)
    with pytest.raises(ReportError, match="no space left"):
        write_page(sheet, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_bundled_is_what_its_readme_says():
    assets = resources.files("twintrace.report") / "assets"
    said = dict(re.findall(r"\| `(.+\.js)` \| `([0-9a-f]{64})`", (assets / "README.md").read_text(encoding="utf-8")))
    bundled = [item for item in assets.iterdir() if item.name.endswith(".min.js")]
    assert said == {item.name: hashlib.sha256(item.read_bytes()).hexdigest() for item in bundled}
    for item in bundled:
        licence = (assets / item.name.replace(".min.js", ".LICENSE")).read_text(encoding="utf-8")
        assert "Permission is hereby granted" in licence


def test_no_script_makes_markup_of_texts():
    """`innerHTML` and its kin are how texts become markup."""
    for name in SCRIPTS:
        source = (resources.files("twintrace.report") / "assets" / name).read_text(encoding="utf-8")
        source = source.replace('"http://www.w3.org/2000/svg"', "")  # the name of a kind of elements, nothing to fetch
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?:", source
        ), name


def test_the_page_begins_with_the_first_parting():
    """The gradients may part in an earlier step than the values."""
    comparison = comparisons.comparison(100)
    later = dataclasses.replace(comparison.forward, result=dataclasses.replace(comparison.forward.result, step=9))
    for forward, first in ((comparison.forward, "values"), (later, "gradients")):
        found = headline_of_comparison(dataclasses.replace(comparison, forward=forward), [1, 2])
        cards = next(item for item in found if item.get("class") == "cards")
        assert first in cards[0].find("h2").text
