"""Names of records: made from a trace's names, taken apart, and back again."""

import pytest

from twintrace.compat.msprobe.names import FRAMEWORKS, Numbers, item_name, parse, record_name, stem, stems

NAMES = [
    ("torch", "api", "torch.nn.functional.conv2d", "", "Functional.conv2d"),
    ("torch", "api", "torch.Tensor.add", "", "Tensor.__add__"),
    ("torch", "api", "torch.Tensor.__eq__", "", "Tensor.__eq__"),
    ("torch", "api", "torch.Tensor.lt", "", "Tensor.__lt__"),
    ("torch", "api", "torch.Tensor.add_", "", "Tensor.add_"),
    ("torch", "api", "torch.matmul", "", "Torch.matmul"),
    ("torch", "api", "torch.distributed.all_reduce", "", "Distributed.all_reduce"),
    ("torch", "api", "torch_npu.npu_rms_norm", "", "NPU.npu_rms_norm"),
    ("torch", "api", "torch._VF.lstm", "", "VF.lstm"),
    ("torch", "api", "torch.ops.aten.mm.default", "", "Aten.mm.default"),
    ("torch", "api", "flash_attn.attend", "", "flash_attn.attend"),
    ("torch", "module", "blocks.0.fc", "Linear", "Module.blocks.0.fc.Linear"),
    ("msadapter", "api", "torch.nn.functional.linear", "", "Functional.linear"),
    ("msadapter", "module", "0.conv1", "Conv2d", "Module.0.conv1.Conv2d"),
    ("mindspore", "api", "mindspore.ops.softmax", "", "Functional.softmax"),
    ("mindspore", "api", "mindspore.ops.MatMul", "", "Primitive.MatMul"),
    ("mindspore", "api", "mindspore.mint.matmul", "", "Mint.matmul"),
    ("mindspore", "api", "mindspore.mint.nn.functional.relu", "", "MintFunctional.relu"),
    ("mindspore", "api", "mindspore.mint.distributed.all_reduce", "", "MintDistributed.all_reduce"),
    ("mindspore", "api", "mindspore.communication.comm_func.all_reduce", "", "Distributed.all_reduce"),
    ("mindspore", "api", "mindspore.Tensor.eq", "", "Tensor.__eq__"),
    ("mindspore", "api", "mindspore.jit.step", "", "Jit.step"),
    ("mindspore", "module", "fc", "Dense", "Cell.fc.Dense"),
]


@pytest.mark.parametrize(("framework", "kind", "name", "type", "expected"), NAMES)
@pytest.mark.parametrize("backward", [False, True])
def test_a_call_of_a_trace_gets_its_name_and_keeps_it(framework, kind, name, type, expected, backward):
    made = stem(kind, name, type, framework)
    assert expected == made
    full = record_name(made, 7, backward=backward)
    assert full == (
        f"{expected}.{'backward' if backward else 'forward'}.7"
        if kind == "module"
        else f"{expected}.7.{'backward' if backward else 'forward'}"
    )
    back = parse(full)
    assert back is not None
    assert str(back) == full
    assert back.kind == kind
    assert back.call == 7
    assert back.site_name(FRAMEWORKS[framework]) == name
    assert back.type == type


@pytest.mark.parametrize(
    ("name", "expected"),
    [("torch.linalg.norm", "Torch.norm"), ("torch.functional.einsum", "Torch.einsum"), ("custom", "Custom.custom")],
)
def test_names_that_lose_their_home_as_in_msprobe(name, expected):
    assert stem("api", name, "", "torch") == expected


@pytest.mark.parametrize(
    ("framework", "name", "code", "expected"),
    [
        ("torch", "torch.Tensor.add", "y = x + 1", "Tensor.__add__"),
        ("torch", "torch.Tensor.add", "y = x.add(1)", "Tensor.add"),
        ("torch", "torch.Tensor.add_", "x += 1", "Tensor.__iadd__"),
        ("torch", "torch.Tensor.add_", "x.add_(1)", "Tensor.add_"),
        ("torch", "torch.Tensor.add_", "x = self.norm(x)", "Tensor.add_"),
        ("msadapter", "torch.Tensor.matmul", "x @ y", "Tensor.__matmul__"),
        ("mindspore", "mindspore.mint.nn.functional.relu", "x = ops.relu(x)", "Functional.relu"),
        ("mindspore", "mindspore.mint.nn.functional.relu", "x = mint.nn.functional.relu(x)", "MintFunctional.relu"),
        ("mindspore", "mindspore.mint.tanh", "x = self.activation(x)", "Mint.tanh"),
        ("mindspore", "mindspore.Tensor.mul", "x.mul(y)", "Tensor.mul"),
    ],
)
def test_a_function_with_two_names_has_that_of_the_line_that_calls_it(framework, name, code, expected):
    assert stem("api", name, "", framework, code) == expected
    assert expected in stems("api", name, "", framework)


@pytest.mark.parametrize("text", ["Module.fc.Linear.parameters_grad", "Module.fc.Linear.parameters_grad.0"])
def test_both_generations_of_parameter_gradients(text):
    name = parse(text)
    assert name is not None
    assert (name.prefix, name.name, name.type, name.what) == ("Module", "fc", "Linear", "parameters_grad")
    assert str(name) == "Module.fc.Linear.parameters_grad"


def test_a_primitive_of_26_2_has_its_attribute_in_its_name():
    name = parse("Primitive.get_shp.Shape.1.forward")
    assert name is not None
    assert name.site_name("mindspore") == "mindspore.ops.Shape"


def test_saved_values():
    name = parse("my.loss_grad.3.debug")
    assert name is not None
    assert (name.name, name.call, name.what) == ("my.loss_grad", 3, "debug")


@pytest.mark.parametrize(
    "text", ["", "Functional", "Functional.conv2d", "Functional.conv2d.x.forward", "optimizer", "a.forward"]
)
def test_what_is_no_record(text):
    assert parse(text) is None


def test_items():
    assert item_name("Functional.conv2d.3.forward", "input", "1.0") == "Functional.conv2d.3.forward.input.1.0"
    assert item_name("loss.0.debug", "", "") == "loss.0.debug"


def test_calls_are_numbered_by_record_not_by_function():
    numbers = Numbers()
    spelled = ["Tensor.__add__", "Tensor.add", "Tensor.__add__"]
    assert [numbers.of("api", stem, "forward", "torch.Tensor.add", n) for n, stem in enumerate(spelled)] == [0, 0, 1]
    assert numbers.of("api", "Torch.norm", "forward", "torch.norm", 0) == 0
    assert numbers.of("api", "Torch.norm", "forward", "torch.linalg.norm", 0) == 1


def test_calls_that_were_left_out_keep_their_numbers():
    numbers = Numbers()
    assert [numbers.of("api", "Torch.relu", "forward", "torch.relu", n) for n in (2, 3, 7)] == [2, 3, 7]


def test_recomputed_calls_are_numbered_after_the_others():
    numbers = Numbers()
    phases = [("forward", 0), ("forward", 1), ("recompute", 0), ("forward", 2)]
    assert [numbers.of("api", "Torch.relu", phase, "torch.relu", n) for phase, n in phases] == [0, 1, 2, 3]
    assert [numbers.of("module", "Module.a.A", phase, "a", n) for phase, n in phases] == [0, 1, 2, 3]


def test_a_module_that_calls_itself_returns_after_the_inner_call():
    numbers = Numbers()
    assert [numbers.of("module", "Module.a.A", "forward", "a", n) for n in (1, 0)] == [1, 0]
