"""Operands by slot, whatever their frameworks call them."""

import pytest

from twintrace.model.pairs import Part
from twintrace.operations import family_of, meaning_of
from twintrace.operations.operands import TENSORS, operand_of, parameter_of, ranks


def operands(function, *slots):
    """Names of the arguments of a function."""
    return [operand_of(family_of(function), Part.INPUT, slot, function=function) for slot in slots]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gamma", "weight"),
        ("beta", "bias"),
        ("embedding_table", "weight"),
        ("moving_mean", "running_mean"),
        ("moving_variance", "running_var"),
        ("weight", "weight"),
        ("scale_of_mine", "scale_of_mine"),
    ],
)
def test_parameters_have_pytorchs_names(name, same):
    """Those of MindSpore's Cells stand in their rows."""
    assert parameter_of(name) == same
    assert operand_of("batch_norm", Part.PARAMETER, f"layer.{name}") == f"layer.{same}"
    assert operand_of("batch_norm", Part.BUFFER, name) == same


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("torch.nn.functional.linear", ["input", "weight", "bias"]),
        ("mindspore.mint.nn.functional.linear", ["input", "weight", "bias"]),
        ("aten.addmm.default", ["bias", "input", "weight"]),
        ("torch.nn.functional.embedding", ["input", "weight"]),
        ("torch.embedding", ["weight", "input"]),
        ("mindspore.ops.Gather", ["weight", "input"]),
        ("torch.nn.functional.batch_norm", ["input", "running_mean", "running_var", "weight", "bias"]),
        ("aten.native_batch_norm.default", ["input", "weight", "bias", "running_mean", "running_var"]),
        ("mindspore.ops.BatchNorm", ["input", "weight", "bias", "running_mean", "running_var"]),
        ("torch.where", ["condition", "input", "other"]),
        ("torch.Tensor.__rsub__", ["other", "input"]),
        ("mindspore.Tensor.__iadd__", ["input", "other"]),
        ("mindspore.ops.BiasAdd", ["input", "other"]),
        ("mindspore.ops.flash_attention_score", ["query", "key", "value", "attn_mask"]),
        ("aten.convolution.default", ["input", "weight", "bias"]),
        ("torch.lerp", ["input", "end", "share"]),
    ],
)
def test_positions_by_function(function, names):
    """A function may have an order of its own; one without row has that of the catalog."""
    assert operands(function, *map(str, range(len(names)))) == names


def test_settings_between_tensors_are_counted_or_not():
    """`layer_norm(x, shape, weight, bias)` here, `LayerNorm(x, gamma, beta)` there; of a kernel the tensors alone."""
    assert operands("torch.nn.functional.layer_norm", "0", "2", "3") == ["input", "weight", "bias"]
    assert operands("mindspore.ops.LayerNorm", "0", "1", "2") == ["input", "weight", "bias"]
    assert ranks(["0", "kw.a", "3", "1.2"]) == [0, -1, 1, -1]
    slots = ["0", "2", "3"]
    found = [operand_of("layer_norm", Part.INPUT, slot, rank) for slot, rank in zip(slots, ranks(slots), strict=True)]
    assert found == ["input", "weight", "bias"]


def test_keywords():
    """By the row of the function, or by what most rows mean by the name."""
    assert operands("mindspore.ops.cross_entropy", "kw.input", "kw.target") == ["input", "target"]
    assert operands("mindspore.ops.binary_cross_entropy", "kw.logits", "kw.labels") == ["input", "target"]
    assert operands("a.users.function", "kw.x", "kw.labels", "kw.q", "kw.other") == [
        "input",
        "target",
        "query",
        "other",
    ]
    assert operands("torch.add", "kw.other") == operands("mindspore.ops.add", "kw.other") == ["other"]


def test_a_function_of_another_family_has_the_order_that_is_asked_for():
    """A product beside a linear layer: its second operand is what the other's weight is."""
    assert operand_of("linear", Part.INPUT, "1", 1, "mindspore.ops.MatMul") == "weight"


def test_containers_and_results():
    """An item of a list keeps its place; results have no roles."""
    assert operands("torch.cat", "0.1") == ["tensors.1"]
    assert operand_of("add", Part.OUTPUT, "0") == "0"
    assert "dim" not in TENSORS


def test_a_dump_of_tensors_alone_says_nothing_of_other_arguments() -> None:
    """Dumps of some tools hold tensors only: what a clip cuts off is not known there, and its default is not what was given."""
    from dataclasses import replace

    import torch
    from operation_cases import Recording

    x = torch.linspace(-1, 1, 8)
    recorded = Recording(lambda: (torch.clip(x, 0.2, 0.5), torch.relu(x)))
    for name, known in (("clip", False), ("relu", True)):
        call = recorded.call(name)
        dumped = replace(call, args=call.args[:1], tensors_only=True)
        assert recorded.meaning(call) is not None
        found = meaning_of(dumped, recorded.framework, recorded.specs.__getitem__)
        assert (found is not None) is known
