"""The flat tables: one list of columns, and everything that a comparison holds is in it."""

import dataclasses

import comparisons
import pytest

from twintrace.model.measurements import Measurement, StatisticsDifference
from twintrace.model.tensors import Statistics
from twintrace.model.verdicts import Outcome
from twintrace.report.tables import ALONE, COLUMNS, SHEET, alone, cell, rows, summary


def table(comparison) -> list[dict[str, object]]:
    return [dict(zip([column.name for column in SHEET], row, strict=True)) for row in rows(comparison)]


def test_there_is_a_row_for_each_pair_of_tensors():
    found = table(comparisons.comparison(60))
    assert len(found) == 60
    assert {row["outcome"] for row in found} == {*map(str, Outcome)}
    assert all(value is None or type(value) in (str, int, float, bool) for row in found for value in row.values())


def test_a_row_says_where_what_and_why():
    row = next(row for row in table(comparisons.comparison(60)) if row["introduced"] and row["part"] == "output")
    assert row["left_site"] == "forward/module:encoder.1.norm#0"
    assert row["right_site"] == "forward/module:enc.cells.1.ln#0"
    assert row["left"] == "f32[4, 16]"
    assert row["left_source"] == "model.py:30 in forward: x = self.step10(x)"
    assert row["settings"] == "eps: 1e-05 | 1e-06"
    assert row["max_abs"] == row["error"] == 2.1e-3
    assert row["worst_index"] == "3, 15"
    assert row["score"] > 0.99
    assert row["layout"] == "as it is"


@pytest.mark.parametrize(("forward", "backward"), [(True, False), (False, True)])
def test_a_difference_arises_in_values_or_in_gradients(forward, backward):
    """A call whose values arise from elsewhere may be where its gradients begin to differ, and the other way round."""
    comparison = comparisons.comparison(60)
    result = max(comparison.results, key=lambda item: len({part.pair.part.backward for part in item.tensors}))
    result = dataclasses.replace(result, introduced_forward=forward, introduced_backward=backward)
    found = table(dataclasses.replace(comparison, results=(result,)))
    assert {row["introduced"] for row in found if "gradient" in row["part"]} == {backward}
    assert {row["introduced"] for row in found if "gradient" not in row["part"]} == {forward}


def test_a_region_names_all_its_calls():
    sites = {row["left_site"] for row in table(comparisons.comparison(20))}
    assert "forward/api:torch.matmul#2 + forward/api:torch.softmax#0" in sites


def test_every_number_has_a_column():
    """A field that is added to the model and not here would be lost silently."""
    names = [column.name for column in COLUMNS]
    assert len(names) == len({*names})
    ways = {column.way for column in COLUMNS}
    for prefix, kind, apart in (
        ("measurement", Measurement, {"worst"}),
        ("statistics", StatisticsDifference, set()),
        ("left.statistics", Statistics, {"order"}),
        ("right.statistics", Statistics, {"order"}),
    ):
        fields = {field.name for field in dataclasses.fields(kind)} - apart
        assert {way.removeprefix(f"{prefix}.") for way in ways if way.startswith(f"{prefix}.")} >= fields
    assert {"measurement.worst.index", "measurement.worst.left", "measurement.worst.right"} <= ways


def test_every_column_is_used_by_some_row():
    found = table(comparisons.comparison(100))
    never = [column.name for column in SHEET if all(row[column.name] in (None, "") for row in found)]
    assert never == ["left_missing"]  # only the right side has lost something


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), (True, True), (3, 3), (0.5, 0.5), ((2, 3), "2, 3"), ((), ""), (Outcome.SAME, "same"), ("=1", "=1")],
)
def test_cells(value, shown):
    assert cell(value) == shown
    assert type(cell(value)) is type(shown)


def test_what_is_alone_has_a_row_each():
    found = [dict(zip(ALONE, row, strict=True)) for row in alone(comparisons.comparison(40))]
    assert {row["side"] for row in found} == {"left", "right"}
    assert sum(row["skipped"] for row in found) == 2
    strays = [row for row in found if row["because"].startswith("the other side gives one output")]
    assert [row["side"] for row in strays] == ["right", "right"]
    assert strays[0]["site"].endswith("flash_attention_score#2: output 1")


def test_the_summary_has_the_answer_first():
    found = list(summary(comparisons.comparison(40)))
    assert found[0] == ("agree", False)
    assert dict(found)["first difference, forward: left"] == "forward/module:encoder.1.norm#0"
    assert dict(found)["not compared, on one side only"] == "step 7, rank 0"
    assert ("agree", True) in summary(comparisons.agreeing())
    assert ("first difference, forward", "none") in summary(comparisons.nothing())
