"""A product takes the sum along that adds its bias; a convolution the padding before it."""

import numpy as np
import pytest
from nets import WIDTH, relu, weight
from sides import Maker, alone, names, noise, slots

from twintrace.align import align
from twintrace.model.pairs import Part

LINEAR = "torch.nn.functional.linear"


def fused(bias: np.ndarray, *, seed: int = 0):
    made = Maker("torch")
    x = made.given(noise(4, WIDTH))
    w, b = made.parameter(weight(seed)), made.parameter(bias)
    y = made.call(LINEAR, [x, w, b], x.array @ w.array.T + bias)
    made.call("torch.relu", [y], relu(y.array))
    return made.side()


def split(bias: np.ndarray, *, seed: int = 0, between: bool = False, shared: bool = False, function: str = "MatMul"):
    made = Maker("mindspore")
    x = made.given(noise(4, WIDTH))
    w, b = made.parameter(weight(seed)), made.parameter(bias)
    y = made.call(f"mindspore.ops.{function}", [x, w], x.array @ w.array.T)
    if between:
        y = made.call("mindspore.ops.reshape", [y, (2, 2, WIDTH)], y.array.reshape(2, 2, WIDTH))
    product = y
    y = made.call("mindspore.ops.BiasAdd", [y, b], y.array + bias)
    if shared:
        made.call("mindspore.ops.tanh", [product], np.tanh(product.array))
    made.call("mindspore.ops.relu", [y], relu(y.array))
    return made.side()


@pytest.mark.parametrize("factor", [1.0, 1e-6, 0.0])
@pytest.mark.parametrize("between", [False, True])
def test_a_product_takes_its_bias_along_small_or_not(factor, between):
    """With a small bias the product alone has the values of the product with its bias, to rounding."""
    bias = (factor * noise(WIDTH, seed=3)).astype(np.float32)
    found = align(fused(bias), split(bias, between=between))
    region = names(found)[f"{LINEAR}#0"]

    assert region.startswith("mindspore.ops.MatMul#0")
    assert region.endswith("mindspore.ops.BiasAdd#0")
    assert slots(found, f"{LINEAR}#0", Part.INPUT)["2"] == "BiasAdd#0:1"
    assert alone(found) == ([], [])


def test_so_it_is_where_all_parameters_are_others():
    found = align(fused(noise(WIDTH, seed=3)), split(noise(WIDTH, seed=4), seed=5, function="Dense"))

    assert names(found)[f"{LINEAR}#0"] == "mindspore.ops.Dense#0 + mindspore.ops.BiasAdd#0"


def test_a_sum_with_something_that_is_no_parameter_is_not_taken_along():
    """All parameters are others, so nothing is known by its values: what is computed is no bias, though it has the size of one."""
    right = Maker("mindspore")
    x = right.given(noise(4, WIDTH))
    made = right.call("mindspore.ops.tanh", [right.given(noise(WIDTH, seed=9))], np.tanh(noise(WIDTH, seed=9)))
    y = right.call("mindspore.ops.Dense", [x, right.parameter(weight(5))], x.array @ weight(5).T)
    y = right.call("mindspore.ops.add", [y, made], y.array + made.array)
    right.call("mindspore.ops.relu", [y], relu(y.array))
    found = align(fused(noise(WIDTH, seed=3)), right.side())

    assert "add" not in names(found).get(f"{LINEAR}#0", "")


def test_another_bias_is_not_taken_along():
    """The right adds something else, which the left has elsewhere: that is a difference, and not the same bias."""
    left = Maker("torch")
    x = left.given(noise(4, WIDTH))
    one, other = left.parameter(noise(WIDTH, seed=3)), left.parameter(noise(WIDTH, seed=4))
    y = left.call(LINEAR, [x, left.parameter(weight(0)), one], x.array @ weight(0).T + one.array)
    left.call("torch.mul", [y, other], y.array * other.array)
    right = Maker("mindspore")
    x = right.given(noise(4, WIDTH))
    one, other = right.parameter(noise(WIDTH, seed=3)), right.parameter(noise(WIDTH, seed=4))
    y = right.call("mindspore.ops.MatMul", [x, right.parameter(weight(0))], x.array @ weight(0).T)
    y = right.call("mindspore.ops.add", [y, other], y.array + other.array)
    right.call("mindspore.ops.mul", [y, one], y.array * one.array)
    found = align(left.side(), right.side())

    assert "add" not in names(found).get(f"{LINEAR}#0", "")


def test_a_product_that_others_take_too_is_no_part_of_a_sum():
    bias = noise(WIDTH, seed=3) * np.float32(1e-6)
    found = align(fused(bias), split(bias, shared=True))

    assert names(found).get(f"{LINEAR}#0") in (None, "mindspore.ops.MatMul#0")


def padded(framework: str, *, before: bool, extra: bool = False, width: int = 1):
    made = Maker(framework)
    x = made.given(noise(1, 3, 6, 6))
    y = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    if extra:
        y = made.call(f"{framework}.exp", [y], np.exp(y.array))
    w = made.parameter(weight(40, 4, 27))
    wide = np.pad(y.array, ((0, 0), (0, 0), (width, width), (width, width)))
    if before:
        y = made.call(f"{framework}.pad", [y, (width,) * 4], wide)
    y = made.call(f"{framework}.conv2d", [y, w], noise(1, 4, 6, 6, seed=8))
    made.call(f"{framework}.relu", [y], relu(y.array))
    return made.side()


def test_a_padding_of_something_else_is_not_taken_along():
    """The left pads what the right does not have."""
    found = align(padded("torch", before=True, extra=True), padded("mindspore", before=False))

    assert names(found)["torch.conv2d#0"] == "mindspore.conv2d#0"


def test_a_padding_that_adds_nothing_is_not_taken_along():
    found = align(padded("torch", before=True, width=0), padded("mindspore", before=False))

    assert names(found)["torch.conv2d#0"] == "mindspore.conv2d#0"


def test_a_convolution_takes_the_padding_before_it_along():
    left, right = padded("torch", before=True), padded("mindspore", before=False)
    found = align(left, right)

    assert names(found)["torch.pad#0 + torch.conv2d#0"] == "mindspore.conv2d#0"
    assert slots(found, "torch.pad#0", Part.INPUT) == {"pad#0:0": "0", "conv2d#0:1": "1"}
    assert alone(found) == ([], [])


def test_what_a_mapping_asks_for_is_not_completed():
    from twintrace.align import loads

    bias = noise(WIDTH, seed=3)
    asked = loads(f"mapping: 1\ncalls:\n  forward/api:{LINEAR}#0: forward/api:mindspore.ops.MatMul#0\n")
    found = align(fused(bias), split(bias), mapping=asked)

    assert names(found)[f"{LINEAR}#0"] == "mindspore.ops.MatMul#0"
