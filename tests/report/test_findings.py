"""Answers about one run, and reports on weights: what is listed, and what is only counted."""

import pytest

from twintrace.model.nonfinite import NonfiniteReport, Origin, Pass, Source, ValueRange
from twintrace.model.tensors import Spec, Statistics
from twintrace.model.weights import Pair, WeightMap
from twintrace.report.findings import nonfinite_text
from twintrace.report.weights import map_text


@pytest.mark.parametrize(("given", "more"), [(4, None), (5, "and 1 more"), (9, "and 5 more")])
def test_four_operands_are_printed_and_the_rest_is_counted(given, more):
    """An optimizer's step has hundreds."""
    known = Statistics(0.0, 1.0, 0.5, 1.0, 0, 0, 0, 1)
    ranges = tuple(ValueRange(f"input {number}", Spec("f32", (2,)), known) for number in range(given))
    origin = Origin(0, 0, Pass.FORWARD, Source.DIVISION, "what", "why", given=ranges)
    lines = nonfinite_text(NonfiniteReport("runs/a", origin)).splitlines()
    assert [line for line in lines if "f32[2]" in line][-1].strip() == "input 3 f32[2] 0 … 1, norm 1, 1 zero"
    assert sum("f32[2]" in line for line in lines) == 4
    assert next((line.strip() for line in lines if line.strip().startswith("and ")), None) == more


@pytest.mark.parametrize(("confidence", "sure"), [(1.0, True), (0.9, True), (0.85, False)])
def test_pairs_that_are_less_sure_are_counted_and_listed(confidence, sure):
    found = WeightMap("torch", "mindspore", (Pair(("a",), "b", (), confidence, "alike: a"),))
    text = map_text(found)
    assert f"sure {int(sure)}, less so {int(not sure)}" in text
    assert ("0.85" in text) is not sure
