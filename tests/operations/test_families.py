"""Families of operations: names of all frameworks and levels, in one table."""

import pytest

from twintrace.operations import Traits, family_of, is_class, is_known, operations_named, traits_named
from twintrace.operations import families as table
from twintrace.operations.catalog import OPERATIONS


def test_a_name_with_rows_of_several_families_is_stated():
    """Of which it is must not depend on the order of the tables."""
    stated = {name for line in table.joined(table._FAMILIES) for name in line.replace("|", " ").split()}
    known = table._TABLE
    torn = {
        name for name, operations in known.operations.items() if len({known.family[item] for item in operations}) > 1
    }

    assert torn
    assert torn - stated == set()


def test_a_name_is_stated_once():
    """Else the last line would win."""
    names = [name for line in table.joined(table._FAMILIES) for name in line.partition("|")[2].split()]
    operations = [name for line in table.joined(table._FAMILIES) for name in line.partition("|")[0].split()]

    assert not {name for name in names if names.count(name) > 1}
    assert not {name for name in operations if operations.count(name) > 1}
    assert [name for name in names if name != name.lower().replace("_", "")] == []


def test_no_name_is_stated_that_its_row_says_already():
    """A name is added in one place."""
    known = table._TABLE
    rows = table._operations({})
    needless = [
        name
        for line in table.joined(table._FAMILIES)
        for name in line.partition("|")[2].split()
        if {known.family[item] for item in rows.get(name, ())} == {line.split()[0]}
    ]

    assert needless == []


def test_a_family_is_its_own_family():
    """So the name of a family can be asked for like any other."""
    families = {*table._TABLE.named.values(), "layer_norm_backward", "a user's"}

    assert {name for name in families if family_of(name) != name and name in OPERATIONS} == set()
    assert family_of("layer_norm_backward") == "layer_norm_backward"


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_operation_of_the_catalog_is_known(operation):
    """A new row of the catalog is a family by itself, or one of a family that is stated."""
    assert is_known(operation)
    assert operation in operations_named(operation)


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
        ("aten.threshold_backward.default", "mindspore.ops.ReluGrad"),
        ("aten.native_layer_norm_backward.default", "LayerNormGrad", "LayerNormGradV3"),
        ("aten.max_pool2d_with_indices_backward.default", "MaxPoolGradWithArgmax"),
        ("torch.sin", "mindspore.ops.Sin"),
        ("torch.gather", "mindspore.ops.gather_elements", "aten.gather.default"),
        ("mindspore.ops.gather", "torch.index_select", "Embedding"),
    ],
)
def test_the_same_operation(names):
    """Whatever a framework or a level of recording calls it."""
    assert len({family_of(name) for name in names}) == 1
    assert all(map(is_known, names))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("torch.relu", "torch.nn.functional.gelu"),
        ("torch.add", "torch.sub"),
        ("torch.max", "torch.maximum"),
        ("mindspore.ops.ReluGrad", "mindspore.ops.ReLU"),
        ("torch.Tensor.__rsub__", "torch.Tensor.sub"),
        ("Conv2d", "ConvTranspose2d"),
        ("torch.gather", "mindspore.ops.gather"),
        ("torch.rand", "torch.Tensor.__and__"),
    ],
)
def test_other_operations(one, two):
    """Names that look alike, or stand beside each other."""
    assert family_of(one) != family_of(two)


def test_a_users_class_is_no_operation_for_its_name():
    """`Cross` and `Mode` are functions of PyTorch's; a module that is called so may do anything."""
    assert all(map(is_class, ("Linear", "Dense", "LSTM", "LayerNorm", "Softmax", "FlashAttention", "ResizeBilinear")))
    assert not any(map(is_class, ("Cross", "Mode", "Net", "Encoder", "Diff")))


@pytest.mark.parametrize(
    ("names", "trait"),
    [
        (
            ["torch.nn.functional.linear", "Dense", "mindspore.ops.MatMul", "Conv2d", "aten.mm.default", "LSTM"],
            "contracts",
        ),
        (["torch.nn.functional.layer_norm", "BatchNorm2d", "torch.Tensor.sub", "torch.Tensor.__add__"], "cancels"),
        (["torch.softmax", "mindspore.ops.SoftmaxCrossEntropyWithLogits", "torch.exp"], "exponential"),
        (["torch.relu", "ReLU", "MaxPool2d", "torch.argmax", "mindspore.ops.TopK"], "decides"),
        (["torch.tanh", "GELU", "mindspore.ops.Sigmoid", "GRUCell", "aten.gelu_backward.default"], "approximates"),
        (["Embedding", "torch.Tensor.__getitem__", "mindspore.ops.Gather", "torch.chunk"], "selects"),
        (["torch.sum", "mindspore.ops.ReduceSum", "SumExt"], "sums"),
    ],
)
def test_traits_are_had_by_name(names, trait):
    """A judge without values knows no more than the name."""
    assert [name for name in names if not getattr(traits_named(name), trait)] == []


def test_elementary_operations_in_one_call():
    """A layer that is one call rounds more than once."""
    names = ("torch.add", "LayerNorm", "MultiheadAttention", "LSTM", "TransformerEncoderLayer", "TransformerEncoder")

    assert [traits_named(name).steps for name in names] == [1, 3, 8, 16, 24, 64]


@pytest.mark.parametrize("name", ["torch.Tensor.view", "Flatten", "mindspore.ops.Reshape", "torch.Tensor.transpose"])
def test_what_only_moves_values_has_no_excuse(name):
    """It rounds nothing."""
    assert traits_named(name) == Traits(moves=True, views=True, affine=True)


def test_of_a_name_that_no_table_has_nothing_is_assumed():
    """Not even of a user's class that has a word of an operation in its name."""
    assert traits_named("MyAttentionNorm") == Traits()
