"""Several calls on one side that do what one, or others, do on the other."""

import numpy as np
import pytest
from nets import WIDTH, attention, mlp, ported_mlp, relu, softmax, weight
from sides import Maker, alone, names, noise, slots

from twintrace.align import align
from twintrace.align.pairing import Pairing
from twintrace.align.trees import CallTree
from twintrace.model.pairs import Part


def test_fused_and_unfused_attention():
    found = align(attention(fused=True), attention(fused=False, framework="mindspore"))
    region = next(match for match in found.matches if len(match.right) > 1)

    assert [call.site.name.rpartition(".")[2] for call in region.left] == ["scaled_dot_product_attention"]
    assert [call.site.name.rpartition(".")[2] for call in region.right if "transpose" not in call.site.name] == [
        "matmul",
        "div",
        "softmax",
        "matmul",
    ]
    assert "5 calls" in region.because or "4 calls" in region.because
    assert names(found)["out#0"] == "out#0"
    assert alone(found, skipped=False) == ([], [])


def test_a_region_is_compared_at_its_edge():
    found = align(attention(fused=True), attention(fused=False, framework="mindspore"))
    name = "torch.nn.functional.scaled_dot_product_attention#0"

    assert slots(found, name, Part.OUTPUT) == {"": "matmul#1:"}
    assert slots(found, name, Part.INPUT)["0"] == "matmul#0:0"
    assert slots(found, name, Part.INPUT)["2"] == "matmul#1:1"


def test_a_linear_beside_a_product_and_a_bias():
    found = align(mlp(), ported_mlp(split=True))

    assert names(found)["torch.nn.functional.linear#0"] == "mindspore.ops.MatMul#0 + mindspore.ops.BiasAdd#0"
    assert names(found)["fc1#0"] == "dense_in#0"
    assert alone(found, skipped=False) == ([], [])


def sums(framework: str, order: tuple[int, int, int]):
    """Three terms added up in some order."""
    made = Maker(framework)
    terms = [made.call("torch.neg", [made.given(noise(4, WIDTH, seed=n))], -noise(4, WIDTH, seed=n)) for n in range(3)]
    one, two, three = (terms[n] for n in order)
    half = made.call("torch.add", [one, two], one.array + two.array)
    whole = made.call("torch.add", [half, three], half.array + three.array)
    made.call("torch.relu", [whole], relu(whole.array))
    return made.side()


def test_the_same_sum_in_another_order_is_one_region():
    found = align(sums("torch", (0, 1, 2)), sums("mindspore", (0, 2, 1)))

    assert names(found)["torch.add#0 + torch.add#1"] == "torch.add#0 + torch.add#1"
    assert alone(found) == ([], [])


def test_two_products_beside_one_that_is_split():
    """A fused projection, cut in two, beside two projections."""
    both = np.concatenate([weight(5), weight(6)])
    left = Maker("torch")
    x = left.given(noise(4, WIDTH))
    with left.module("gate_up", "Linear", [x], weight=both) as fused:
        y = fused.gives(left.call("torch.nn.functional.linear", [x, fused.weight], x.array @ both.T))
    one, two = left.call("torch.chunk", [y, 2, -1], (x.array @ weight(5).T, x.array @ weight(6).T))
    left.call("torch.mul", [one, two], one.array * two.array)
    right = Maker("mindspore")
    x = right.given(noise(4, WIDTH))
    one = right.layer("gate", "Dense", x, x.array @ weight(5).T, "mindspore.ops.Dense", weight=weight(5))
    two = right.layer("up", "Dense", x, x.array @ weight(6).T, "mindspore.ops.Dense", weight=weight(6))
    right.call("mindspore.ops.mul", [one, two], one.array * two.array)
    found = align(left.side(), right.side())

    assert names(found)["torch.mul#0"] == "mindspore.ops.mul#0"
    assert (
        names(found)["torch.nn.functional.linear#0 + torch.chunk#0"] == "mindspore.ops.Dense#0 + mindspore.ops.Dense#1"
    )
    assert alone(found, skipped=False) == ([], [])


def split_layers(framework: str, off: float, *, split: bool, extra: bool = False, bias: bool = True):
    """Three linear layers, each `off` by some noise: as one call each, or as a product and a sum. All calls are functions."""
    made = Maker(framework)
    x = made.given(noise(4, WIDTH))
    for number in range(3):
        w, b = weight(number), weight(10 + number)[0] if bias else ZEROS
        held = made.parameter(w) if not split else made.given(w)  # a dump does not always know what is a parameter
        added = made.parameter(b) if not split else made.given(b)
        product = x.array @ w.T + off * noise(4, WIDTH, seed=9)
        if split:
            if extra and number == 1:
                x = made.call("mindspore.ops.cast", [x], x.array)
            half = made.call("mindspore.ops.MatMul", [x, held], product)
            x = made.call("mindspore.ops.BiasAdd", [half, added], product + b)
        else:
            x = made.call("torch.nn.functional.linear", [x, held, added], product + b)
        x = made.call(f"{framework}.softmax", [x], softmax(x.array))
    squared = made.call(f"{framework}.Tensor.pow", [x, 2], x.array**2)
    made.call(f"{framework}.Tensor.sum", [squared], squared.array.sum(keepdims=True))
    return made.side()


ZEROS = np.zeros(WIDTH, np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("extra", [False, True])
def test_after_two_runs_have_parted_a_region_is_known_by_its_parameters(extra, bias):
    left = split_layers("torch", 0.0, split=False, bias=bias)
    right = split_layers("mindspore", 0.3, split=True, extra=extra, bias=bias)
    found = align(left, right)
    linear = [names(found)[f"torch.nn.functional.linear#{n}"] for n in range(3)]

    assert [name.replace("mindspore.ops.cast#0 + ", "") for name in linear] == [
        f"mindspore.ops.MatMul#{n} + mindspore.ops.BiasAdd#{n}" for n in range(3)
    ]
    assert [names(found)[f"torch.softmax#{n}"] for n in range(3)] == [f"mindspore.softmax#{n}" for n in range(3)]
    assert names(found)["torch.Tensor.sum#0"] == "mindspore.Tensor.sum#0"
    assert slots(found, "torch.nn.functional.linear#1", Part.OUTPUT) == {"": "BiasAdd#1:"}
    assert alone(found, skipped=False) == ([], [])


def test_a_product_with_the_same_parameter_and_another_bias_is_no_region():
    left = split_layers("torch", 0.0, split=False)
    right = split_layers("mindspore", 0.3, split=True, bias=False)

    assert "torch.nn.functional.linear#1" not in names(align(left, right))


def norms(framework: str, off: float, *, split: bool):
    """Two norms, each `off` by some noise: as one call each, or written out."""
    made = Maker(framework)
    x = made.given(noise(4, WIDTH))
    for number in range(2):
        w, b = weight(20 + number)[0], weight(30 + number)[0]
        centred = x.array - x.array.mean(-1, keepdims=True) + off * noise(4, WIDTH, seed=9)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True))
        normed = centred / spread
        held = made.parameter(w), made.parameter(b)
        if split:
            one = made.call("mindspore.ops.sub", [x], centred)
            two = made.call("mindspore.ops.std", [x], spread)
            three = made.call("mindspore.ops.div", [one, two], normed)
            four = made.call("mindspore.ops.mul", [three, held[0]], normed * w)
            x = made.call("mindspore.ops.add", [four, held[1]], normed * w + b)
        else:
            x = made.call("torch.nn.functional.layer_norm", [x, *held], normed * w + b)
        x = made.call(f"{framework}.relu", [x], relu(x.array))
    return made.side()


def test_such_a_region_reaches_back_to_what_both_sides_take():
    found = align(norms("torch", 0.0, split=False), norms("mindspore", 0.3, split=True))

    assert names(found)["torch.nn.functional.layer_norm#1"] == " + ".join(
        f"mindspore.ops.{name}#1" for name in ("sub", "std", "div", "mul", "add")
    )
    assert names(found)["torch.relu#1"] == "mindspore.relu#1"
    assert alone(found) == ([], [])


def scaled(framework: str, *, split: bool):
    """A norm without a mean, in one call or written out; the product with its weight puts out what the norm does."""
    made = Maker(framework)
    x, w = made.given(noise(4, WIDTH)), made.parameter(weight(22)[0])
    y = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    mean = (y.array**2).mean(-1, keepdims=True)
    normed = y.array / np.sqrt(mean)
    if split:
        one = made.call(f"{framework}.pow", [y, 2], y.array**2)
        two = made.call(f"{framework}.rsqrt", [made.call(f"{framework}.mean", [one], mean)], 1 / np.sqrt(mean))
        three = made.call(f"{framework}.mul", [y, two], normed)
        z = made.call(f"{framework}.mul", [w, three], normed * w.array)
    else:
        z = made.call(f"{framework}.nn.functional.rms_norm", [y, w], normed * w.array)
    made.call(f"{framework}.relu", [z], relu(z.array))
    return made.side()


def test_a_norm_is_not_the_product_with_its_weight():
    """Both hold the same parameter and put out the same."""
    found = align(scaled("torch", split=False), scaled("mindspore", split=True))

    assert names(found)["torch.nn.functional.rms_norm#0"] == " + ".join(
        f"mindspore.{name}" for name in ("pow#0", "mean#0", "rsqrt#0", "mul#0", "mul#1")
    )
    assert alone(found) == ([], [])


def normed(parts: int, order: tuple[int, ...] = (0, 1, 2, 3, 4, 5)):
    """A result that is made in one call or in two, its rows in some order, and the roots of it."""
    made = Maker("torch", ordered=True)
    x = made.given(noise(6, WIDTH))
    rows = list(order)
    if parts == 1:
        y = made.call("torch.nn.functional.silu", [x], np.tanh(x.array)[rows])
    else:
        half = made.call("torch.sigmoid", [x], relu(x.array))
        y = made.call("torch.mul", [x, half], np.tanh(x.array)[rows])
    made.call("torch.sqrt", [y], np.sin(y.array) if order[0] == 0 else np.cos(3 * y.array))
    return made.side()


def test_alike_statistics_in_other_places_make_no_region():
    """Outputs of norms have alike statistics: a region ends where the elements lie in their places, too."""
    same, other = align(normed(1), normed(2)), align(normed(1), normed(2, (5, 4, 3, 2, 1, 0)))

    assert names(same)["torch.nn.functional.silu#0"] == "torch.sigmoid#0 + torch.mul#0"
    assert [match.confidence for match in same.matches if len(match.right) == 2] == [0.85]
    assert not [match for match in other.matches if len(match.right) == 2 and match.confidence > 0.5]


def test_what_follows_from_an_answer_comes_of_the_data_as_well():
    """Experts that a router chooses, and the rows that they get; not positions."""
    made = Maker("torch")
    x = made.given(noise(4, WIDTH))
    chosen = made.call("torch.argmax", [x, 1], x.array.argmax(1))
    mine = made.call("torch.eq", [chosen, 2], chosen.array == 2)
    rows = made.call("torch.nonzero", [mine], np.argwhere(chosen.array == 2))
    places = made.call("torch.arange", [4], np.arange(4))
    later = made.call("torch.add", [places, 1], np.arange(4) + 1)
    made.call("torch.max", [x, 1], (x.array.max(1), chosen.array))
    pairing = Pairing(*[CallTree(made.side())] * 2)

    assert [pairing.is_of_flow(0, index) for index in range(6)] == [False] * 5 + [True]  # one of its results is
    assert [pairing.decides(0, value.number) for value in (chosen, mine, rows, places, later)] == [True] * 3 + [
        False
    ] * 2
