"""Names of rows, built and taken apart."""

import pytest

from twintrace.compat.lines import line_name
from twintrace.compat.troubleshooter.names import (
    Labels,
    argument_leaves,
    label_of_stack,
    long_dtype,
    operation_name,
    parse,
    result_leaves,
    short_dtype,
    stack_key,
)
from twintrace.model.sites import Kind
from twintrace.model.values import Nest, TensorRef

SITES = [
    ("torch", Kind.MODULE, "encoder.conv", "Conv2d", "NN_Conv2d"),
    ("torch", Kind.API, "torch.clip", "", "Torch_clip"),
    ("torch", Kind.API, "torch.functional.einsum", "", "Torch_einsum"),
    ("torch", Kind.API, "torch.linalg.norm", "", "Torch_linalg_norm"),
    ("torch", Kind.API, "torch.Tensor.__getitem__", "", "Tensor___getitem__"),
    ("torch", Kind.API, "torch.nn.functional.relu_", "", "Functional_relu_"),
    ("torch", Kind.API, "torch_npu.npu_rotary_mul", "", "NPU_npu_rotary_mul"),
    ("torch", Kind.API, "mylib.kernels.scan", "", "Torch_mylib_kernels_scan"),
    ("msadapter", Kind.API, "torch.nn.functional.relu", "", "Functional_relu"),
    ("mindspore", Kind.API, "mindspore.ops.MatMul", "", "Functional_MatMul"),
    ("mindspore", Kind.API, "mindspore.mint.nn.functional.gelu", "", "Functional_gelu"),
    ("mindspore", Kind.API, "mindspore.Tensor.reshape", "", "Tensor_reshape"),
    ("mindspore", Kind.MODULE, "cell", "Dense", "NN_Dense"),
]


@pytest.mark.parametrize(("framework", "kind", "name", "type", "expected"), SITES)
def test_operations(framework, kind, name, type, expected):
    assert operation_name(framework, kind, name, type) == expected
    found = parse(f"{expected}_12_forward_input.0")
    assert (found.label, found.call, found.slot) == (f"{expected}_12", 12, "0")
    again = operation_name(framework, kind, found.site_name(framework), found.operation)
    assert again == expected, "what a dump is read as has the name that it was read from"


def test_parts():
    assert parse("NN_LSTM_3_forward_output.1.0")[2:] == (3, False, True, "1.0")
    assert parse("NN_LSTM_3_backward_input")[2:] == (3, True, False, "")
    for wrong in (
        "LAYER_conv_forward_input",
        "NN_Conv2d_forward_input",
        "NN_Conv2d_0_forward_middle",
        "NN_a/b_0_forward_input",
    ):
        assert parse(wrong) is None
    assert line_name("NN_ReLU_0", "input", "0.1") == "NN_ReLU_0_forward_input.0.1"
    assert line_name("NN_ReLU_0", "input", "", backward=True) == "NN_ReLU_0_backward_input"


def test_counting():
    labels = Labels()
    assert [labels.next(name) for name in ("NN_A", "NN_B", "NN_A")] == ["NN_A_0", "NN_B_0", "NN_A_1"]


@pytest.mark.parametrize(
    ("framework", "label", "key"),
    [
        ("torch", "NN_Conv2d_0", "torch.nn.Conv2d(0) forward"),
        ("torch", "Torch_clip_3", "torch.clip(3) forward"),
        ("torch", "Tensor_add__1", "torch.Tensor.add_(1) forward"),
        ("msadapter", "Functional_relu_0", "torch.nn.functional.relu(0) forward"),
        ("torch", "VF_lstm_0", "VF_lstm_0_forward_stack_info"),
        ("mindspore", "NN_Conv2d_0", "NN_Conv2d_0_forward_stack_info"),
    ],
)
def test_keys_of_stacks(framework, label, key):
    assert stack_key(framework, label) == key
    assert label_of_stack(key) == label


def test_what_is_no_key_of_a_stack():
    assert label_of_stack("LAYER: conv forward") is None


def leaf(value):
    return value.id if isinstance(value, TensorRef) else value


def test_arguments_are_numbered():
    a, b, c = (TensorRef(number) for number in range(3))
    pair = Nest("tuple", (("0", a), ("1", 7)))
    found = argument_leaves((a, pair, 2.5), {"mask": b, "rest": Nest("dict", (("x", c),))})
    assert [(item.suffix, item.slot, leaf(item.value)) for item in found] == [
        ("0", "0", 0), ("1.0", "1.0", 0), ("1.1", "1.1", 7), ("2", "2", 2.5), ("3", "kw.mask", 1), ("4.0", "kw.rest.x", 2),
    ]  # fmt: skip


def test_what_is_nested_deeper_is_numbered_on():
    a, b, c = (TensorRef(number) for number in range(3))
    deep = Nest("list", (("0", Nest("tuple", (("0", a), ("1", b)))), ("1", c)))
    assert [item.suffix for item in argument_leaves((deep,), {})] == ["0.0", "0.1", "0.2"]


def test_results():
    assert [(item.suffix, item.slot) for item in result_leaves(TensorRef(0))] == [("", "")]
    output = Nest("Output", (("logits", TensorRef(0)), ("hidden", Nest("tuple", (("0", TensorRef(1)),)))))
    assert [(item.suffix, item.slot) for item in result_leaves(output)] == [("0", "logits"), ("1.0", "hidden.0")]
    assert list(result_leaves(Nest("tuple", ()))) == []


def test_element_types():
    for framework, text in (("torch", "torch.bfloat16"), ("msadapter", "torch.bfloat16"), ("mindspore", "BFloat16")):
        assert long_dtype(framework, "bf16") == text
        assert short_dtype(text) == "bf16"
    assert short_dtype("<class 'int'>") == "i64"
    assert short_dtype("object") is None
