"""What was set differently, whatever the two sides call it."""

from __future__ import annotations

import inspect

import pytest

from twintrace.judge.settings import POSITIONS, SYNONYMS, different_settings
from twintrace.model.records import Call, Config
from twintrace.model.sites import Kind, Site
from twintrace.model.values import Nest, TensorRef, Token


def module(kind, **values):
    return (Call(0, Site(Kind.MODULE, "norm", 0, type=kind), None, (), {}, None, config=Config("norm", kind, values)),)


def call(name, *args, **kwargs):
    return (Call(0, Site(Kind.API, name, 0), None, args, kwargs, None),)


def test_two_names_of_one_setting_are_compared():
    found = different_settings(
        module("LayerNorm", eps=1e-5, elementwise_affine=True), module("LayerNorm", epsilon=1e-7)
    )
    assert found == {"eps": ("1e-05", "1e-07")}


def test_the_same_number_in_another_type_is_no_difference():
    left, right = module("Pool", kernel_size=3, padding=0), module("AvgPool", kernel_size=3.0, padding=0)
    assert different_settings(left, right) == {}


def test_one_number_may_stand_for_all_axes():
    pair = Nest("tuple", (("0", 2), ("1", 3)))
    found = different_settings(module("Conv2d", stride=2), module("Convolution", stride=pair))
    assert found == {"stride.1": ("2", "3")}


def test_within_one_framework_what_only_one_side_has_is_told():
    assert different_settings(call("torch.sum", TensorRef(1), dim=1), call("torch.sum", TensorRef(1))) == {
        "dim": ("1", "not given")
    }


def test_between_two_it_is_not():
    assert different_settings(call("torch.sum", TensorRef(1), dim=1), call("mindspore.ops.sum", TensorRef(1))) == {}


def test_positions_count_where_the_function_is_the_same():
    left, right = call("mindspore.ops.clamp", TensorRef(0), 0.0), call("mindspore.ops.clamp", TensorRef(0), -1.0)
    assert different_settings(left, right) == {"argument 1": ("0.0", "-1.0")}


def test_a_position_has_its_name_where_it_is_known():
    x = TensorRef(0)
    assert different_settings(call("torch.clamp", x, 0.0), call("torch.clamp", x, -1.0)) == {"min": ("0.0", "-1.0")}
    found = different_settings(call("torch.softmax", x, -1), call("torch.softmax", x, dim=1))
    assert found == {"dim": ("-1", "1")}
    assert different_settings(call("torch.softmax", x, 1), call("torch.softmax", x, dim=1)) == {}


def test_a_tensor_that_one_side_has_not_is_told():
    """It is no setting of its own, but what the call does depends on it."""
    x, w, b = TensorRef(0), TensorRef(1), TensorRef(2)
    linear = "torch.nn.functional.linear"
    assert different_settings(call(linear, x, w, b), call(linear, x, w, None)) == {"bias": ("a tensor", "None")}
    assert different_settings(call(linear, x, w, bias=b), call(linear, x, w)) == {"bias": ("a tensor", "not given")}
    assert different_settings(call(linear, x, w, b), call(linear, x, w, bias=TensorRef(7))) == {}


def test_none_is_what_an_argument_is_that_is_not_given():
    x, w = TensorRef(0), TensorRef(1)
    assert different_settings(call("f", x, w, None), call("f", x, w)) == {}
    assert different_settings(call("f", x, mask=None), call("f", x)) == {}


def test_the_names_of_positions_are_those_of_pytorch():
    """Where Python can tell: a function that is written in Python has a signature."""
    functional = pytest.importorskip("torch.nn.functional")
    compared = 0
    for name, positions in POSITIONS.items():
        function = getattr(functional, name.rpartition(".")[2], None)
        try:
            real = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # not there, or not written in Python
            continue
        if real[:1] != ["args"]:  # boolean_dispatch
            compared += 1
            assert tuple(real[: len(positions)]) == positions, name
    assert compared > 8


@pytest.mark.parametrize(("one", "two"), [(True, 1), (Token("dtype", "float32"), Token("dtype", "float16"))])
def test_values_that_are_not_the_same(one, two):
    assert different_settings(module("A", x=one), module("A", x=two))


def test_nan_is_nan():
    assert different_settings(module("A", x=float("nan")), module("A", x=float("nan"))) == {}


def test_of_regions_nothing_is_said():
    assert different_settings(module("A", x=1) * 2, module("A", x=2)) == {}


def test_no_synonym_has_a_synonym():
    assert not set(SYNONYMS) & set(SYNONYMS.values())


def test_the_settings_of_optimizers_are_compared_whatever_holds_them():
    group = Nest("list", (("0", Nest("dict", (("lr", 0.01), ("momentum", 0.9)))),))
    settings = Nest("dict", (("init_learning_rate", 0.02), ("momentum", 0.9)))
    found = different_settings(call("torch.optim.SGD.step", groups=group), call("mindspore.nn.SGD", settings=settings))
    assert found == {"lr": ("0.01", "0.02")}
