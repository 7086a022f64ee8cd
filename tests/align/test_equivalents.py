"""The table of what is the same under another name."""

import itertools

import pytest

from twintrace.align import equivalents
from twintrace.align.equivalents import meaning_of, operation_of, ranks
from twintrace.model.pairs import Part

TABLES = {
    "operations": equivalents.OPERATIONS,
    "parameters": equivalents.PARAMETERS,
    "keywords": equivalents.KEYWORDS,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_name_stands_in_one_row_only(name):
    """So the relation is symmetric, and nothing is equal to two things that differ."""
    everything = [entry for row, others in TABLES[name].items() for entry in (row, *others)]

    assert not {entry for entry in everything if everything.count(entry) > 1}


def test_names_are_written_as_they_are_looked_up():
    """A name that is not in its bones would never be found."""
    names = [entry for row, others in equivalents.OPERATIONS.items() for entry in (row, *others)]

    assert [name for name in names if operation_of(name) != operation_of(name.upper())] == []
    assert all(name == name.lower().replace("_", "") for name in names)


@pytest.mark.parametrize("row", [row for row, others in equivalents.OPERATIONS.items() if others])
def test_the_relation_is_symmetric(row):
    for one, two in itertools.combinations((row, *equivalents.OPERATIONS[row]), 2):
        assert operation_of(one) == operation_of(two) == row


@pytest.mark.parametrize(
    "names",
    [
        ("torch.nn.functional.linear", "Linear", "Dense", "mindspore.ops.Dense", "mindspore.mint.nn.functional.linear"),
        ("torch.clip", "torch.Tensor.clamp_", "Functional.clip", "Torch.clip", "mindspore.ops.clip_by_value"),
        ("torch.Tensor.permute", "mindspore.ops.Transpose", "torch.transpose", "mindspore.Tensor.swapaxes"),
        ("torch.Tensor.view", "mindspore.ops.Reshape", "torch.flatten", "mindspore.ops.expand_dims"),
        ("aten.mm.default", "MatMul", "mindspore.ops.BatchMatMul", "torch.bmm", "torch.Tensor.__matmul__"),
        ("aten.add.Tensor", "torch.Tensor.__iadd__", "AddExt", "mindspore.ops.BiasAdd", "mindspore.Tensor.__radd__"),
        ("BatchNorm2d", "torch.nn.functional.batch_norm", "mindspore.ops.BatchNorm", "SyncBatchNorm"),
        ("Sequential", "SequentialCell"),
        ("SumExt", "torch.Tensor.sum", "mindspore.ops.ReduceSum"),
        ("torch.nn.functional.scaled_dot_product_attention", "mindspore.ops.flash_attention_score"),
    ],
)
def test_the_same_operation(names):
    assert len({operation_of(name) for name in names}) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("torch.relu", "torch.nn.functional.gelu"),
        ("torch.add", "torch.sub"),
        ("torch.max", "torch.maximum"),
        ("mindspore.ops.ReluGrad", "mindspore.ops.ReLU"),
        ("torch.Tensor.__rsub__", "torch.Tensor.sub"),
        ("Conv2d", "ConvTranspose2d"),
    ],
)
def test_other_operations(one, two):
    assert operation_of(one) != operation_of(two)


def test_parameters_and_arguments():
    for left, right in (
        ("weight", "gamma"),
        ("bias", "beta"),
        ("running_mean", "moving_mean"),
        ("running_var", "moving_variance"),
    ):
        assert meaning_of("batchnorm", Part.PARAMETER, left) == meaning_of("batchnorm", Part.PARAMETER, right)
        assert meaning_of("batchnorm", Part.BUFFER, left) == meaning_of("batchnorm", Part.PARAMETER, right)
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
        meaning_of("layernorm", Part.INPUT, slot, rank)
        for slot, rank in zip("023", ranks(["0", "2", "3"]), strict=True)
    ]
    there = [
        meaning_of("layernorm", Part.INPUT, slot, rank)
        for slot, rank in zip("012", ranks(["0", "1", "2"]), strict=True)
    ]

    assert here == there == ["input", "weight", "bias"]
    assert ranks(["0", "kw.a", "3", "1.2"]) == [0, -1, 1, -1]


def test_a_function_may_have_an_order_of_its_own():
    found = [meaning_of("batchnorm", Part.INPUT, str(n), n, "mindspore.ops.BatchNorm") for n in range(5)]

    assert found == ["input", "weight", "bias", "runningmean", "runningvar"]
    assert meaning_of("batchnorm", Part.INPUT, "1", 1, "torch.nn.functional.batch_norm") == "runningmean"
