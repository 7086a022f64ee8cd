"""Tables as XLSX, read back with openpyxl."""

import math
import zipfile
from xml.etree import ElementTree

import pytest
from openpyxl import load_workbook
from openpyxl.utils import get_column_letter
from openpyxl.utils.escape import unescape

from twintrace.report import spreadsheet
from twintrace.report.spreadsheet import MAX_TEXT, Spreadsheet


@pytest.fixture
def book(tmp_path):
    def make(columns, rows, fills=None, **options):
        with Spreadsheet(tmp_path / "book.xlsx", fills) as made:
            made.add("one", columns, rows, **options)
        return load_workbook(tmp_path / "book.xlsx")

    return make


def test_cells_come_back_as_what_they_were(book):
    cells = ["text", 1.5, -1e-300, 7, True, False, None, "", 0.1 + 0.2, "ein Ü und 中文 und 🙂", " spaces ", "a\nb\tc"]
    sheet = book([str(at) for at in range(len(cells))], [(None, cells)])["one"]
    assert [cell.value for cell in sheet[2]] == [cell if cell != "" else None for cell in cells]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "{=1}", "<b>&amp;'\"</b>", "]]>", "http://example.org", "#N/A"]
)
def test_a_text_is_a_text(book, text):
    cell = book(["x"], [(None, [text])])["one"]["A2"]
    assert (cell.value, cell.data_type, cell.hyperlink) == (
        text,
        "inlineStr" if cell.data_type == "inlineStr" else "s",
        None,
    )


def test_numbers_that_no_cell_holds_are_texts(book):
    values = [math.inf, -math.inf, math.nan, 2**53 + 1, -(2**63)]
    sheet = book(["a", "b", "c", "d", "e"], [(None, values)])["one"]
    assert [cell.value for cell in sheet[2]] == [str(value) for value in values]


def test_what_xml_cannot_say_is_spelled_as_excel_spells_it(book):
    texts = ["a\x00b\x1bc", "_x0041_", "x\ud800y", "\ufffe", "carriage\rreturn"]
    sheet = book(["x"], [(None, [text]) for text in texts])["one"]
    found = [unescape(sheet.cell(row, 1).value) for row in range(2, 7)]
    assert found == ["a\x00b\x1bc", "_x0041_", "x\ufffdy", "\ufffe", "carriage\rreturn"]


def test_a_text_that_is_too_long_is_cut(book):
    value = book(["x"], [(None, ["x" * 40_000])])["one"]["A2"].value
    assert (len(value), value[-1]) == (MAX_TEXT, "…")


def test_rows_in_colours_headers_frozen_filters_on(book):
    sheet = book(
        ["a", "b"], [("red", ["x", None]), (None, ["y", 1.0])], {"red": "FF0000", "blue": "0000FF"}, widths=[40, 9]
    )["one"]
    assert [cell.fill.fgColor.rgb for cell in sheet[2]] == ["FFFF0000", "FFFF0000"], "an empty cell is coloured, too"
    assert sheet["A3"].fill.fill_type is None
    assert sheet["A1"].font.b
    assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", "A1:B3")
    assert sheet.column_dimensions["A"].width == 40


def test_places_are_named_as_everybody_names_them():
    assert [spreadsheet._letters(at) for at in range(800)] == [get_column_letter(at + 1) for at in range(800)]


def test_a_long_table_goes_on_in_the_next_sheet(book, monkeypatch):
    monkeypatch.setattr(spreadsheet, "MAX_ROWS", 10)
    found = book(["n"], ((None, [number]) for number in range(25)))
    assert [(sheet.title, sheet.max_row) for sheet in found] == [("one", 11), ("one 2", 11), ("one 3", 6)]
    assert [sheet["A2"].value for sheet in found] == [0, 10, 20]


def test_an_empty_table_has_its_header(book):
    sheet = book(["a", "b"], [])["one"]
    assert [cell.value for cell in sheet[1]] == ["a", "b"]


def test_a_row_of_another_length_is_not_written_silently(book):
    with pytest.raises(ValueError, match="zip"):
        book(["a", "b"], [(None, ["x"])])


def test_every_part_is_xml(tmp_path):
    with Spreadsheet(tmp_path / "book.xlsx", {"red": "FF0000"}) as book:
        book.add('odd "name" & <more>', ["a"], [("red", ["x"])])
    with zipfile.ZipFile(tmp_path / "book.xlsx") as file:
        names = file.namelist()
        assert [ElementTree.fromstring(file.read(name)).tag for name in names]
    assert load_workbook(tmp_path / "book.xlsx").sheetnames == ['odd "name" & <more>']
