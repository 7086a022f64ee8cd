"""Differences that a user has accepted."""

import dataclasses

import comparisons
import pytest

from twintrace import api
from twintrace.model.errors import UsageError
from twintrace.model.results import Mistake


@pytest.fixture
def comparison():
    found = comparisons.comparison(100)
    return dataclasses.replace(found, lone=(), left_out=(), untold=(), backward=None)


def entries(tmp_path, text):
    path = tmp_path / "accept.toml"
    path.write_text(text, encoding="utf-8")
    return api.read_accepted(path)


def test_what_is_written_accepts_what_was_found(comparison, tmp_path):
    assert comparison.code == 1
    assert api.write_accepted(comparison, tmp_path / "a.toml") == 1
    found = api.accept(comparison, api.read_accepted(tmp_path / "a.toml"))
    assert not found.parted
    assert found.divergence is None
    assert all(mistake.accepted for _, mistake in found.mistakes)
    assert "Accepted: " in api.verdict(found)
    assert "fits no difference" not in api.verdict(found)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ('place = "encoder.*.norm"\ncause = "eps"', True),
        ('place = "*.ln"\ncause = "meaning"', True),  # the right's name
        ('cause = "EPS"', True),
        ('place = "encoder.*.norm"\ncause = "momentum"', False),
        ('place = "encoder.*.norm"\ncause = "kernel"', False),
        ('place = "decoder.*"\ncause = "eps"', False),
    ],
)
def test_place_and_cause_must_both_fit(comparison, tmp_path, text, accepted):
    found = api.accept(comparison, entries(tmp_path, f"[[accept]]\n{text}\n"))
    assert found.parted is not accepted
    assert ("fits no difference" in "".join(found.remarks)) is not accepted


def test_another_mistake_at_the_same_place_still_counts(comparison, tmp_path):
    other = Mistake("kernel", "the left's x does not give what it says it computes: y", "the kernel", size=50.0)
    first = comparison.forward.result
    both = dataclasses.replace(first, mistakes=(*first.mistakes, other))
    results = tuple(both if item is first else item for item in comparison.results)
    found = api.accept(
        dataclasses.replace(comparison, results=results), entries(tmp_path, '[[accept]]\ncause = "eps"\n')
    )
    assert found.parted
    assert found.divergence.mistake.kind == "kernel"


def test_a_lone_result_is_accepted_by_its_kind(comparison, tmp_path):
    lone = dataclasses.replace(comparison, lone=("only the left computes torch.mean of the result, f32[]",))
    text = '[[accept]]\ncause = "eps"\n[[accept]]\nplace = "torch.mean"\ncause = "alone"\n'
    assert api.accept(lone, entries(tmp_path, text)).lone == ()
    assert api.accept(lone, entries(tmp_path, '[[accept]]\ncause = "eps"\n')).parted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accept = 3", "expected \\[\\[accept\\]\\]"),
        ("[[accept]]\nwhere = 'x'", "entry 1: expected the texts place, cause and reason, got where"),
        ("[[accept]]\nplace = 3", "a value that is no text"),
        ("[[accept]]\nreason = 'x'", "would accept everything"),
        ("[[", "expected TOML"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, text, told):
    with pytest.raises(UsageError, match=told):
        entries(tmp_path, text)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.toml: cannot be read"):
        api.read_accepted(tmp_path / "gone.toml")
