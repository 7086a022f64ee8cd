"""CSV, read back with the csv module."""

import csv
import math

import comparisons
import pytest

from twintrace.report.delimited import FORMULA, text, write_csv, write_rows
from twintrace.report.tables import SHEET


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_and_columns_come_back(tmp_path):
    write_csv(comparisons.comparison(60), tmp_path / "report.csv")
    found = read(tmp_path / "report.csv")
    assert len(found) == 60
    assert [*found[0]] == [column.name for column in SHEET]
    assert {row["outcome"] for row in found} == {"same", "rounding", "different", "unknown"}
    row = next(row for row in found if row["introduced"] == "True" and row["outcome"] == "different")
    assert float(row["max_abs"]) == 2.1e-3
    assert float(row["diff_norm"]) == -1e-6, "a negative number is no formula"
    assert row["because"] == comparisons.DIFFERENT.because


def test_numbers_that_are_not_finite_are_words(tmp_path):
    write_csv(comparisons.comparison(60), tmp_path / "report.csv")
    row = next(row for row in read(tmp_path / "report.csv") if row["right_norm"] == "inf")
    assert math.isnan(float(row["diff_mean"]))
    assert row["diff_max"] == ""


def test_no_text_begins_like_a_formula(tmp_path):
    write_csv(comparisons.comparison(60), tmp_path / "report.csv")
    texts = [value for row in read(tmp_path / "report.csv") for value in row.values()]
    dangerous = [value for value in texts if value.startswith(FORMULA) and not is_number(value)]
    assert dangerous == []
    assert "'=1+1" in texts
    assert "'+1" in texts


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_the_check_of_numbers_rejects():
    assert is_number("-1e-6")
    assert not is_number("-1+1")


@pytest.mark.parametrize("make", [comparisons.nothing, comparisons.agreeing])
def test_empty_and_agreeing_comparisons(tmp_path, make):
    write_csv(make(), tmp_path / "report.csv")
    assert len(read(tmp_path / "report.csv")) == sum(len(result.tensors) for result in make().results)


def test_any_table_is_written_as_the_csv_module_writes_it(tmp_path):
    texts = [
        "plain",
        "a,b",
        'say "x"',
        '"',
        "two\nlines",
        "a\rb",
        "tab\tinside",
        " space ",
        "",
        "Ü 中",
        "a'b",
        "1e5",
        "nan",
        "x=1",
        ";",
    ]
    rows = [texts, [1.5, -0.0, 1e300, math.inf, math.nan, 7, -7, 2**70, True, False, None, 0.1 + 0.2, "x", "y", "z"]]
    write_rows(tmp_path / "ours.csv", texts, rows)
    with (tmp_path / "theirs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([texts, *rows])
    assert (tmp_path / "ours.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "\nx", '=a,"b"'])
def test_a_text_like_a_formula_gets_an_apostrophe(tmp_path, text):
    write_rows(tmp_path / "some.csv", ["x", "y"], [[text, 1]])
    with (tmp_path / "some.csv").open(newline="", encoding="utf-8") as file:
        assert [*csv.reader(file)][1] == ["'" + text, "1"]


@pytest.mark.parametrize("begin", FORMULA)
def test_a_text_that_is_nothing_but_the_beginning_of_a_formula_is_a_text(begin):
    cell = text(("name",), [(begin,)]).split("\r\n", 1)[1]
    assert cell.lstrip('"').startswith("'")


def test_numbers_are_left_alone():
    assert text(("a", "b"), [(-1.5, "x")]) == "a,b\r\n-1.5,x\r\n"
