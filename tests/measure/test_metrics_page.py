"""docs/reference/metrics.md describes every number, and no number that is not there."""

import dataclasses
import re
from pathlib import Path

from twintrace.measure.formats import form
from twintrace.model.measurements import Measurement, StatisticsDifference
from twintrace.model.tensors import DTYPES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    found = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def described(text: str) -> set[str]:
    """Names that open a table's row, and those that open a paragraph."""
    cells = re.findall(r"^\| (`[^|]+`) \|", text, flags=re.MULTILINE)
    return {
        name
        for cell in [*cells, *re.findall(r"^(`\w+`)", text, flags=re.MULTILINE)]
        for name in re.findall(r"\w+", cell)
    }


def faults(page: str) -> list[str]:
    parts = sections(page)
    only = described(parts.pop("Statistics only"))
    types = described(parts["Units in the last place"]) & {*DTYPES}
    rest = set().union(*map(described, parts.values())) - types
    wanted = {field.name for field in dataclasses.fields(Measurement)}
    statistics = {field.name for field in dataclasses.fields(StatisticsDifference)}
    return sorted(rest ^ wanted) + sorted(only ^ statistics)


def precisions(page: str) -> dict[str, tuple[int, int]]:
    found = re.findall(r"`(\w+)` \| (\d+) \| (-?\d+) \|", sections(page)["Units in the last place"])
    return {name: (int(digits), int(least)) for name, digits, least in found}


def test_every_number_is_described():
    assert faults(PAGE) == []


def test_the_table_of_precisions_is_the_one_in_use():
    assert precisions(PAGE) == {dtype: form(dtype).precision for dtype in DTYPES if form(dtype).precision}


def test_the_check_can_fail():
    assert faults(PAGE.replace("| `rmse` |", "| `rms` |")) == ["rms", "rmse"]
    assert faults(PAGE.replace("`nan`, `inf`, `zero`", "`nan`, `inf`")) == ["zero"]
    assert precisions(PAGE.replace("| `f32` | 24 |", "| `f32` | 23 |")) != precisions(PAGE)
