"""The comparisons that the other tests print are what they claim to be."""

import comparisons
import pytest

from twintrace.model.verdicts import Outcome


@pytest.mark.parametrize("rows", [0, 1, 19, 20, 21, 40, 500])
def test_there_are_exactly_as_many_rows_as_asked_for(rows):
    found = comparisons.comparison(rows)
    assert sum(len(result.tensors) for result in found.results) == rows


def test_one_place_differs_on_its_own_and_forward_comes_first():
    found = comparisons.comparison(100)
    assert found.forward
    assert found.backward
    assert found.divergence is found.forward
    assert sum(result.introduced_forward for result in found.results) == 1
    assert not found.agree
    assert {result.verdict.outcome for result in found.results} == {*Outcome}


def test_what_agrees_agrees():
    found = comparisons.agreeing(100)
    assert found.divergence is None
    assert not found.count(Outcome.DIFFERENT)
    assert not found.only_left
    assert comparisons.nothing().results == ()
