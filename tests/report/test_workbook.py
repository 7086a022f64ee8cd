"""XLSX, read back with openpyxl."""

import dataclasses
import math

import comparisons
import pytest
import vision
from openpyxl import load_workbook

from twintrace.model.verdicts import Outcome, Verdict
from twintrace.report import spreadsheet
from twintrace.report.tables import ALONE, SHEET
from twintrace.report.workbook import COLOURS, write_xlsx

NAMES = [column.name for column in SHEET]


@pytest.fixture
def book(tmp_path):
    def make(comparison, **options):
        write_xlsx(comparison, tmp_path / "report.xlsx")
        return load_workbook(tmp_path / "report.xlsx", **options)

    return make


def test_three_sheets_with_frozen_headers_and_filters(book):
    found = book(comparisons.comparison(60))
    assert found.sheetnames == ["verdict", "pairs", "alone"]
    pairs = found["pairs"]
    assert [cell.value for cell in pairs[1]] == NAMES
    assert (pairs.max_row, pairs.max_column) == (61, len(NAMES))
    assert pairs.freeze_panes == "A2"
    assert pairs.auto_filter.ref == pairs.dimensions
    assert [cell.value for cell in found["alone"][1]] == [*ALONE]
    assert found["alone"].freeze_panes == "A2"


def test_the_verdict_is_on_the_first_sheet(book):
    found = dict(row for row in book(comparisons.comparison(60))["verdict"].iter_rows(min_row=2, values_only=True))
    assert found["agree"] is False
    assert found["first difference, forward: left"] == "forward/module:encoder.1.norm#0"


def test_rows_are_coloured_by_verdict(book):
    pairs = book(comparisons.comparison(100))["pairs"]
    at = NAMES.index("outcome")
    seen = {}
    for row in pairs.iter_rows(min_row=2):
        colours = {cell.fill.fgColor.rgb[-6:] for cell in row if cell.value is not None}
        assert len(colours) == 1, "the whole row has one colour"
        seen.setdefault(row[at].value, set()).update(colours)
    assert seen == {str(outcome): {colour} for outcome, colour in COLOURS.items()}


@pytest.mark.parametrize("kind", vision.KINDS)
def test_good_and_bad_can_be_told_apart_whatever_cones_one_has(kind):
    """Pale, so that texts can be read: 15 in CIELAB, six times what is just noticeable."""
    seen = {outcome: vision.lab(bytes.fromhex(colour), kind) for outcome, colour in COLOURS.items()}
    for good in (Outcome.SAME, Outcome.ROUNDING):
        assert math.dist(seen[good], seen[Outcome.DIFFERENT]) > 15


def test_numbers_are_numbers_and_what_is_not_finite_is_text(book):
    pairs = book(comparisons.comparison(60))["pairs"]
    rows = [dict(zip(NAMES, row, strict=True)) for row in pairs.iter_rows(min_row=2, values_only=True)]
    assert any(row["max_abs"] == 2.1e-3 for row in rows)
    odd = next(row for row in rows if row["right_norm"] == "inf")
    assert odd["diff_mean"] == "nan"
    assert odd["diff_max"] is None


def test_nothing_is_a_formula_or_a_link(book):
    found = book(comparisons.comparison(60))
    cells = [cell for sheet in found for row in sheet.iter_rows() for cell in row]
    assert {cell.data_type for cell in cells if cell.value is not None} <= {"s", "inlineStr", "n", "b"}
    assert not [cell for cell in cells if cell.hyperlink]
    texts = {cell.value for cell in cells if isinstance(cell.value, str)}
    assert {"=1+1", "+1", "-1+1"} <= texts, "and they are there as they were written"


def test_texts_that_no_cell_can_hold(book):
    comparison = comparisons.comparison(20)
    first = comparison.results[0]
    odd = Verdict(Outcome.DIFFERENT, "x" * 40_000 + "\ud800\x00\x1b", 2**60, None)
    changed = dataclasses.replace(first.tensors[0], verdict=odd)
    comparison = dataclasses.replace(
        comparison,
        results=(dataclasses.replace(first, tensors=(changed,)),),
        remarks=("a\x00b\x1bc\ud800d",),
        forward=None,
        backward=None,
    )
    found = book(comparison)
    row = dict(zip(NAMES, next(found["pairs"].iter_rows(min_row=2, values_only=True)), strict=True))
    assert len(row["because"]) == 32_767
    assert row["because"].endswith("…")
    assert row["error"] == str(2**60)
    assert "b" in dict(found["verdict"].iter_rows(min_row=2, values_only=True))["remark"]


def test_more_rows_than_a_sheet_holds_go_on_in_the_next(book, monkeypatch):
    monkeypatch.setattr(spreadsheet, "MAX_ROWS", 25)
    found = book(comparisons.comparison(60))
    assert [(sheet.title, sheet.max_row) for sheet in found if sheet.title.startswith("pairs")] == [
        ("pairs", 26), ("pairs 2", 26), ("pairs 3", 11),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [comparisons.nothing, comparisons.agreeing])
def test_empty_and_agreeing_comparisons(book, make):
    found = book(make())
    assert found.sheetnames == ["verdict", "pairs", "alone"]
    assert found["pairs"].max_row == 1 + sum(len(result.tensors) for result in make().results)


@pytest.mark.slow
def test_a_hundred_thousand_rows(book):
    found = book(comparisons.comparison(100_000), read_only=True)
    assert sum(1 for _ in found["pairs"].iter_rows(max_col=1)) == 100_001
