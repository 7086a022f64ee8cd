"""The names of lines."""

import pytest

from twintrace.compat.lines import line_name
from twintrace.compat.torch_npu_hooks.names import operation_name, parse


@pytest.mark.parametrize(
    ("text", "site", "backward", "output", "slot"),
    [
        ("Functional_linear_forward_input.0", "torch.nn.functional.linear", False, False, "0"),
        ("Torch_relu_forward_output", "torch.relu", False, True, ""),
        ("Tensor_add__backward_output.0", "torch.Tensor.add_", True, True, "0"),
        ("Tensor___matmul___forward_input.1", "torch.Tensor.__matmul__", False, False, "1"),
        ("Module_Linear_backward_input.0", "Linear", True, False, "0"),
        ("Torch_cat_forward_input.0.1", "torch.cat", False, False, "0.1"),
        ("17_Torch_relu_forward_input.0", "torch.relu", False, False, "0"),
        ("Functional_layer_norm_forward_input.kw.weight", "torch.nn.functional.layer_norm", False, False, "kw.weight"),
        ("Function_torchvision.ops.nms_forward_output", "torchvision.ops.nms", False, True, ""),
    ],
)
def test_a_name_is_taken_apart_and_put_together(text, site, backward, output, slot):
    name = parse(text)
    assert (name.site_name(), name.backward, name.output, name.slot) == (site, backward, output, slot)
    assert str(name) == text.removeprefix("17_")
    assert operation_name(name.kind, name.site_name(), name.operation) == f"{name.family}_{name.operation}"


def test_ptdbg_counts_its_calls():
    name = parse("Functional_conv2d_3_forward_input.1", numbered=True)
    assert (name.operation, name.call, name.slot) == ("conv2d", 3, "1")
    assert parse("Functional_conv2d_forward_input.1", numbered=True).call is None


@pytest.mark.parametrize(
    "text", ["", "linear", "Functional_linear", "Functional_linear_forward", "Other_x_forward_input.0"]
)
def test_what_is_no_name(text):
    assert parse(text) is None


def test_a_slot_has_an_end():
    assert parse("Torch_cat_forward_input" + ".0" * 20) is not None
    assert parse("Torch_cat_forward_input" + ".0" * 100) is None


def test_names_that_hold_the_words():
    """The old reader took any line whose name contains `output` for the end of a call."""
    name = parse("Module_InputOutput_input_layer_forward_output_forward_input.0")
    assert (name.operation, name.output, name.slot) == ("InputOutput_input_layer_forward_output", False, "0")
    assert line_name("Module_Output", "input", "0", backward=True) == "Module_Output_backward_input.0"
