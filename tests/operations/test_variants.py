"""Other spellings that a port may have taken by mistake: each with its sentence, and nothing that is no variant."""

import pytest

from twintrace.model.tensors import Spec
from twintrace.operations import Meaning, Operand, variants

SPECS = {0: Spec("f32", (2, 3, 4, 16)), 1: Spec("f32", (8, 8)), 2: Spec("f32", (8, 6)), 3: Spec("f32", (5,))}
X, SQUARE, WEIGHT, BIAS = (Operand(number) for number in SPECS)


def changed(operation, arguments, spec=SPECS.__getitem__):
    """By sentence: what differs from the meaning itself; the operation under its own name, if it is another."""
    found = {}
    for sentence, variant in variants(Meaning(operation, arguments), spec):
        other = {name: value for name, value in variant.arguments.items() if arguments.get(name, value) != value}
        found[sentence] = other if variant.operation == operation else {"operation": variant.operation, **other}
    return found


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("exp", {"input": X}, {}),
        ("add", {"input": X, "other": X, "alpha": 1}, {"a difference": {"operation": "sub"}}),
        (
            "sub",
            {"input": X, "other": BIAS, "alpha": 1},
            {"its operands swapped": {"input": BIAS, "other": X}, "a sum": {"operation": "add"}},
        ),
        (
            "matmul",
            {"input": X, "other": SQUARE, "transpose_a": False, "transpose_b": False},
            {
                "its operands swapped": {"input": SQUARE, "other": X},
                "the second matrix transposed": {"transpose_b": True},
                "the first matrix transposed": {"transpose_a": True},
            },
        ),
        (
            "linear",
            {"input": X, "weight": SQUARE, "bias": None},
            {"the weight transposed": {"operation": "matmul"}},
        ),
        (
            "linear",
            {"input": X, "weight": SQUARE, "bias": BIAS},
            {"the weight transposed": {"operation": "addmm", "input": BIAS}, "without bias": {"bias": None}},
        ),
        ("linear", {"input": X, "weight": WEIGHT, "bias": BIAS}, {"without bias": {"bias": None}}),  # it is not square
        (
            "scaled_dot_product_attention",
            {"query": X, "key": X, "value": X, "attn_mask": BIAS, "is_causal": False, "scale": 0.3},
            {
                "with a causal mask": {"is_causal": True},
                "scores that are not scaled": {"scale": 1.0},
                "scores scaled by 1/sqrt(d)": {"scale": 0.25},
                "scores scaled by 1/d": {"scale": 1 / 16},
                "scaled by the width of all heads": {"scale": 1 / 48**0.5},
                "without the mask": {"attn_mask": None},
            },
        ),
        (
            "dropout",
            {"input": X, "p": 0.25, "training": True},
            {"switched off (eval)": {"training": False}, "p=0.75, the share that is kept": {"p": 0.75}},
        ),
        (
            "sgd",
            {"nesterov": False, "weight_decay": 0.1},
            {"with Nesterov's momentum": {"nesterov": True}, "without weight decay": {"weight_decay": 0.0}},
        ),
        (
            "rmsprop",
            {"eps_added": "after the root"},
            {"eps added below the root": {"eps_added": "below the root"}},
        ),
    ],
)  # fmt: skip
def test_variants_of_an_operation(operation, arguments, expected):
    assert changed(operation, arguments) == expected


@pytest.mark.parametrize(
    ("operation", "setting", "value", "others"),
    [
        ("gelu", "approximate", "none", {"GELU by tanh": "tanh"}),
        ("gelu", "approximate", "tanh", {"GELU by the error function": "none"}),
        ("leaky_relu", "negative_slope", 0.2, {"slope 0.01": 0.01, "slope 0.1": 0.1, "slope 0.3": 0.3}),
    ],
)
def test_an_activation_may_be_another_one_or_have_another_setting(operation, setting, value, others):
    found = changed(operation, {"input": X, setting: value})
    own = {sentence: change for sentence, change in found.items() if "operation" not in change}
    assert own == {sentence: {setting: other} for sentence, other in others.items()}
    assert {"relu", "silu", "elu", "mish", "quick_gelu"} <= {change.get("operation") for change in found.values()}
    assert operation not in {change.get("operation") for change in found.values()}


def test_a_batch_norm_takes_its_statistics_from_elsewhere():
    arguments = {
        "input": X,
        "running_mean": BIAS,
        "training": True,
        "momentum": 0.1,
        "eps": 1e-5,
        "weight": BIAS,
        "bias": BIAS,
    }
    found = changed("batch_norm", arguments)
    assert found["with the running statistics (eval)"] == {"training": False}
    assert found["momentum 0.9, the share of the old value"] == {"momentum": 0.9}
    assert (found["without weight"], found["without bias"]) == ({"weight": None}, {"bias": None})
    assert {sentence for sentence in found if sentence.startswith("eps=")} == {
        "eps=1e-12", "eps=1e-08", "eps=1e-07", "eps=1e-06", "eps=0.001", "eps=0",
    }  # fmt: skip
    assert found["eps=1e-12"] == {"eps": 1e-12}
    assert "with the statistics of the batch (train)" in changed("batch_norm", {**arguments, "training": False})
    assert not any("statistics" in sentence for sentence in changed("batch_norm", {**arguments, "running_mean": None}))


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (((1, 1),), {"without padding": ((0, 0),)}),
        (
            ((1, 2),),
            {
                "without padding": ((0, 0),),
                "the odd cell of the padding before": ((2, 1),),
                "as much padding before as behind": ((2, 2),),
            },
        ),
        (
            ((2, 1),),
            {
                "without padding": ((0, 0),),
                "the odd cell of the padding behind": ((1, 2),),
                "as much padding before as behind": ((2, 2),),
            },
        ),
    ],
)
def test_padding_may_lie_elsewhere(padding, expected):
    found = changed("conv", {"input": X, "weight": SQUARE, "bias": None, "padding": padding})
    assert {sentence: change["padding"] for sentence, change in found.items()} == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (slice(0, 8, 1), {"the second half (not interleaved)": slice(8, 16, 1),
                          "every second element from 0 (interleaved)": slice(0, 16, 2),
                          "every second element from 1 (interleaved)": slice(1, 16, 2)}),
        (slice(1, 16, 2), {"the first half (not interleaved)": slice(0, 8, 1), "the second half (not interleaved)": slice(8, 16, 1),
                           "every second element from 0 (interleaved)": slice(0, 16, 2)}),
        (slice(0, 4, 1), {}),  # no half
    ],
)  # fmt: skip
def test_halves_may_be_cut_in_other_ways(index, expected):
    full = tuple(slice(0, size, 1) for size in (2, 3, 4))
    found = changed("getitem", {"input": X, "index": (*full, index)})
    assert found == {sentence: {"index": (*full, way)} for sentence, way in expected.items()}


def test_halves_of_an_odd_axis_or_of_an_unknown_shape_are_none():
    assert changed("getitem", {"input": BIAS, "index": (slice(0, 2, 1),)}) == {}
    assert changed("getitem", {"input": X, "index": (slice(0, 1, 1),)}, spec=None) == {}
    assert changed("getitem", {"input": X, "index": (0,)}) == {}


def test_reductions_and_axes():
    assert changed("softmax", {"input": BIAS, "dim": 0}, spec=None).keys() == {"the logarithm of softmax"}
    assert changed("softmax", {"input": SQUARE, "dim": 0})["along axis 1"] == {"dim": 1}
    assert "along axis 0" not in changed("softmax", {"input": SQUARE, "dim": 0})
    found = changed("mse_loss", {"input": X, "target": X, "reduction": "sum"})
    assert found["the mean over the elements"] == {"reduction": "mean"}
    assert found["no reduction over the elements"] == {"reduction": "none"}
    assert "the sum over the elements" not in found
    assert found["absolute error"]["operation"] == "l1_loss"
