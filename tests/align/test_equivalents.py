"""Roles of tensors, whatever their frameworks call them."""

import pytest

from twintrace.align import equivalents
from twintrace.align.equivalents import meaning_of, ranks
from twintrace.model.pairs import Part

TABLES = {
    "parameters": equivalents.PARAMETERS,
    "keywords": equivalents.KEYWORDS,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_name_stands_in_one_row_only(name):
    """So the relation is symmetric, and nothing is equal to two things that differ."""
    everything = [entry for row, others in TABLES[name].items() for entry in (row, *others)]

    assert not {entry for entry in everything if everything.count(entry) > 1}


def test_parameters_and_arguments():
    for left, right in (
        ("weight", "gamma"),
        ("bias", "beta"),
        ("running_mean", "moving_mean"),
        ("running_var", "moving_variance"),
    ):
        assert meaning_of("batch_norm", Part.PARAMETER, left) == meaning_of("batch_norm", Part.PARAMETER, right)
        assert meaning_of("batch_norm", Part.BUFFER, left) == meaning_of("batch_norm", Part.PARAMETER, right)
    assert meaning_of("embedding", Part.PARAMETER, "embedding_table") == "weight"
    assert meaning_of("linear", Part.INPUT, "1") == meaning_of("linear", Part.PARAMETER, "weight") == "weight"
    assert meaning_of("linear", Part.INPUT, "kw.bias") == meaning_of("linear", Part.INPUT, "2") == "bias"
    assert (
        meaning_of("add", Part.INPUT, "kw.other")
        == meaning_of("add", Part.INPUT, "kw.y")
        == meaning_of("add", Part.INPUT, "1")
    )


def test_arguments_count_among_the_tensors():
    """`layer_norm(x, shape, weight, bias)` here, `LayerNorm(x, gamma, beta)` there."""
    here = [
        meaning_of("layer_norm", Part.INPUT, slot, rank)
        for slot, rank in zip("023", ranks(["0", "2", "3"]), strict=True)
    ]
    there = [
        meaning_of("layer_norm", Part.INPUT, slot, rank)
        for slot, rank in zip("012", ranks(["0", "1", "2"]), strict=True)
    ]

    assert here == there == ["input", "weight", "bias"]
    assert ranks(["0", "kw.a", "3", "1.2"]) == [0, -1, 1, -1]


def test_a_function_may_have_an_order_of_its_own():
    found = [meaning_of("batch_norm", Part.INPUT, str(n), n, "mindspore.ops.BatchNorm") for n in range(5)]

    assert found == ["input", "weight", "bias", "runningmean", "runningvar"]
    assert meaning_of("batch_norm", Part.INPUT, "1", 1, "torch.nn.functional.batch_norm") == "runningmean"
