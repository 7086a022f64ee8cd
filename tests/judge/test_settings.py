"""What was set differently, whatever the two sides call it."""

from __future__ import annotations

import pytest

from twintrace.judge.settings import SYNONYMS, different_settings, other_arguments
from twintrace.model.records import Call, Config
from twintrace.model.sites import Kind, Site
from twintrace.model.tensors import Spec
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.operations import Meaning, Operand, meaning_of


def module(kind, **values):
    return (Call(0, Site(Kind.MODULE, "norm", 0, type=kind), None, (), {}, None, config=Config("norm", kind, values)),)


def call(name, *args, **kwargs):
    return (Call(0, Site(Kind.API, name, 0), None, args, kwargs, TensorRef(9)),)


def framework_module(kind, framework, *args, **values):
    """A module of the framework's own class; its input is tensor 0, its parameters are further ones."""
    config = Config("m", kind, {**values, f"{framework}_class": kind})
    parameters = {name: 1 for name in args}
    site = Site(Kind.MODULE, "m", 0, type=kind)
    return (Call(0, site, None, (TensorRef(0),), {}, TensorRef(9), config=config, parameters=parameters),)


def read(left, right, frameworks=("torch", "torch"), shape=(2, 3, 4)):
    """Settings that differ, by what the calls mean; every tensor has the same shape."""
    readers = tuple(lambda one, name=name: meaning_of(one, name, lambda _: Spec("f32", shape)) for name in frameworks)
    return different_settings(left, right, readers)


@pytest.mark.parametrize(
    ("left", "right", "frameworks", "told"),
    [
        (
            framework_module("GELU", "torch", approximate="none"), framework_module("GELU", "mindspore", approximate=True),
            ("torch", "mindspore"), {"approximate": ("'none'", "'tanh'")},
        ),
        (
            framework_module("LayerNorm", "torch", normalized_shape=Nest("tuple", (("0", 4),)), eps=1e-5),
            framework_module("LayerNorm", "mindspore", normalized_shape=Nest("tuple", (("0", 4),)), epsilon=1e-7),
            ("torch", "mindspore"), {"eps": ("1e-05", "1e-07")},
        ),
        (
            framework_module("Dropout", "torch", p=0.1, training=True),
            framework_module("Dropout", "mindspore", keep_prob=0.9, training=False),
            ("torch", "mindspore"), {"training": ("True", "False")},
        ),
        (call("torch.softmax", TensorRef(0), -1), call("torch.softmax", TensorRef(0), dim=2), ("torch", "torch"), {}),
        (
            call("torch.softmax", TensorRef(0), -1), call("mindspore.ops.softmax", TensorRef(0), 1),
            ("torch", "mindspore"), {"dim": ("2", "1")},
        ),
        (call("torch.sum", TensorRef(0), dim=1), call("torch.sum", TensorRef(0)), ("torch", "torch"),
         {"dim": ("(1,)", "(0, 1, 2)")}),
        (call("torch.clamp", TensorRef(0), 0.0), call("torch.clamp", TensorRef(0), -1.0), ("torch", "torch"),
         {"min": ("0.0", "-1.0")}),
        (
            call("torch.nn.functional.linear", TensorRef(0), TensorRef(1), TensorRef(2)),
            call("torch.nn.functional.linear", TensorRef(0), TensorRef(1)),
            ("torch", "torch"), {"bias": ("a tensor", "None")},
        ),
        (
            call("torch.nn.functional.linear", TensorRef(0), TensorRef(1), TensorRef(2)),
            call("torch.nn.functional.linear", TensorRef(0), TensorRef(1), bias=TensorRef(7)),
            ("torch", "torch"), {},
        ),
        (call("torch.mul", TensorRef(0), TensorRef(1)), call("torch.mul", TensorRef(0), 0.5), ("torch", "torch"), {}),
        (call("torch.permute", TensorRef(0), Nest("tuple", (("0", 0), ("1", 2), ("2", 1)))),
         call("torch.permute", TensorRef(0), Nest("tuple", (("0", 1), ("1", 2), ("2", 0)))), ("torch", "torch"),
         {"dims": ("(0, 2, 1)", "(1, 2, 0)")}),
        (call("torch.permute", TensorRef(0), Nest("tuple", (("0", 0), ("1", 2), ("2", 1)))),
         call("mindspore.ops.Transpose", TensorRef(0), Nest("tuple", (("0", 1), ("1", 2), ("2", 0)))), ("torch", "mindspore"), {}),
    ],
)  # fmt: skip
def test_settings_are_compared_by_what_they_mean(left, right, frameworks, told):
    """Defaults are filled in, axes counted from the front; a missing tensor is told, which tensor it is is not."""
    assert read(left, right, frameworks) == told


def test_arguments_of_two_operations_are_not_settings():
    """`max` of all and `maximum` have an `other` that is none."""
    left, right = (
        call("torch.nn.functional.leaky_relu", TensorRef(0), 0.1),
        call("torch.nn.functional.elu", TensorRef(0), 0.2),
    )
    assert read(left, right) == {}


def test_what_has_no_meaning_is_compared_as_it_was_written():
    """A user's class."""
    assert read(module("Norm", eps=1e-5), module("Norm", epsilon=1e-7)) == {"eps": ("1e-05", "1e-07")}


def test_calls_that_say_the_same_are_not_read():
    """Reading costs more than looking: between two runs of one program nearly all do."""

    def fails(_):
        raise AssertionError("read")

    one, two = (call("torch.softmax", TensorRef(number), Nest("tuple", (("0", 1),))) for number in (0, 5))
    assert different_settings(one, two, (fails, fails)) == {}
    with pytest.raises(AssertionError, match="read"):
        different_settings(one, call("torch.softmax", TensorRef(0), Nest("tuple", (("0", True),))), (fails, fails))


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


def test_none_is_what_an_argument_is_that_is_not_given():
    x, w = TensorRef(0), TensorRef(1)
    assert different_settings(call("f", x, w, None), call("f", x, w)) == {}
    assert different_settings(call("f", x, mask=None), call("f", x)) == {}


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


def test_arguments_that_differ_are_told_by_name_without_those_that_no_user_can_set():
    left = Meaning(
        "sgd",
        {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "eps_added": "inside", "dampening": 0, "input": Operand(1)},
    )
    right = Meaning(
        "sgd",
        {"weight_decay": 0.2, "momentum": 0.8, "lr": 0.1, "eps_added": "outside", "dampening": 1, "input": Operand(2)},
    )
    found = other_arguments(left, right)
    assert found == {"dampening": ("0", "1"), "momentum": ("0.9", "0.8"), "weight_decay": ("0.1", "0.2")}
    assert [*found] == sorted(found)
