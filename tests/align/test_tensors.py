"""Which tensor of one call belongs to which of its partner."""

import numpy as np
import pytest
from nets import WIDTH, weight
from sides import Maker, noise, slots

from twintrace.align import align
from twintrace.model.pairs import Part
from twintrace.model.records import Role


def beside(left: Maker, right: Maker):
    return align(left.side(), right.side())


def test_swapped_arguments_go_by_their_values():
    left, right = Maker("torch"), Maker("mindspore")
    for made, order in ((left, (0, 1)), (right, (1, 0))):
        one, two = (made.given(noise(4, WIDTH, seed=n)) for n in order)
        made.call("torch.add" if made is left else "mindspore.ops.add", [one, two], one.array + two.array)

    assert slots(beside(left, right), "torch.add#0", Part.INPUT) == {"0": "1", "1": "0"}


@pytest.mark.parametrize(
    ("function", "crosswise", "off"), [("add", True, 0.0), ("add", True, 1.0), ("sub", False, 0.0), ("cat", False, 0.0)]
)
def test_operands_in_the_other_order_in_one_program(function, crosswise, off):
    """Of a sum they belong together crosswise, also if only one of them is known; elsewhere another order is a difference."""
    left, right = Maker("torch"), Maker("torch")
    for made, order in ((left, (0, 1)), (right, (1, 0))):
        given = [made.given(noise(4, WIDTH, seed=n)) for n in (0, 1)]
        ends = [
            made.call("torch.tanh", [given[0]], np.tanh(given[0].array)),
            made.call("torch.sin", [given[1]], np.sin(given[1].array) + (off if made is right else 0)),
        ]
        one, two = (ends[n] for n in order)
        made.call(f"torch.{function}", [one, two], one.array + two.array)

    found = slots(beside(left, right), f"torch.{function}#0", Part.INPUT)
    assert found == ({"0": "1", "1": "0"} if crosswise else {"0": "0", "1": "1"})


@pytest.mark.parametrize("opposite", [True, False])
def test_what_is_chosen_from_in_the_other_order(opposite):
    """The opposite condition is no partner; with the same one, another order is a difference."""
    left, right = Maker("torch"), Maker("torch")
    for made in (left, right):
        x, y = (made.given(noise(4, WIDTH, seed=n)) for n in (0, 1))
        turned = made is right
        one, two = made.call("torch.tanh", [x], np.tanh(x.array)), made.call("torch.sin", [y], np.sin(y.array))
        first = one.array > 0
        chosen = np.where(first, one.array, two.array)
        if turned and opposite:
            first = ~first
        elif turned:
            chosen = np.where(first, two.array, one.array)
        condition = made.given(first)
        made.call("torch.where", [condition, two, one] if turned else [condition, one, two], chosen)

    found = slots(beside(left, right), "torch.where#0", Part.INPUT)
    assert found == ({"1": "2", "2": "1"} if opposite else {"0": "0", "1": "1", "2": "2"})


def test_one_tensor_twice_is_not_exchanged():
    left, right = Maker("torch"), Maker("torch")
    for made in (left, right):
        x = made.given(noise(4, WIDTH))
        made.call("torch.add", [x, x], 2 * x.array)

    assert slots(beside(left, right), "torch.add#0", Part.INPUT) == {"0": "0", "1": "1"}


def test_keywords_and_positions():
    left, right = Maker("torch"), Maker("mindspore")
    mask = noise(4, WIDTH, seed=5) > 0
    x = left.given(noise(4, WIDTH))
    left.call("torch.masked_fill", [x, left.given(mask), 0.0], np.where(mask, 0, x.array))
    x = right.given(noise(4, WIDTH))
    right.call(
        "mindspore.ops.masked_fill", [], np.where(mask, 0, x.array), input_x=x, mask=right.given(mask), value=0.0
    )

    assert slots(beside(left, right), "torch.masked_fill#0", Part.INPUT) == {"0": "kw.input_x", "1": "kw.mask"}


def test_parameters_under_their_other_names():
    left, right = Maker("torch"), Maker("mindspore")
    gamma, beta = noise(WIDTH, seed=1), noise(WIDTH, seed=2)
    x = left.given(noise(4, WIDTH))
    left.layer("norm", "LayerNorm", x, x.array * gamma + beta, weight=gamma, bias=beta)
    x = right.given(noise(4, WIDTH))
    right.layer("ln", "LayerNorm", x, x.array * gamma + beta, beta=beta, gamma=gamma)

    assert slots(beside(left, right), "norm#0", Part.PARAMETER) == {"weight": "gamma", "bias": "beta"}


def test_a_module_beside_a_function_whose_arguments_its_parameters_are():
    left, right = Maker("torch"), Maker("mindspore")
    w = weight(0)
    x = left.given(noise(4, WIDTH))
    left.layer("fc", "Linear", x, x.array @ w.T, weight=w)
    x = right.given(noise(4, WIDTH))
    right.call("mindspore.ops.dense", [x, right.parameter(w)], x.array @ w.T)

    assert slots(beside(left, right), "fc#0") == {"0": "0", "weight": "1", "": ""}


def test_channels_last():
    left, right = Maker("torch"), Maker("mindspore")
    x = noise(2, 3, 6, 7)
    made = left.given(x)
    left.call("torch.relu", [made], np.maximum(x, 0))
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    made = right.given(last)
    right.call("mindspore.ops.ReLU", [made], np.maximum(last, 0))
    (match,) = beside(left, right).matches

    assert {str(pair.layout) for pair in match.tensors} == {"axes 0, 3, 1, 2"}
    for pair in match.tensors:
        turned = (last if pair.part is Part.INPUT else np.maximum(last, 0)).transpose(pair.layout.axes)
        assert np.array_equal(turned, x if pair.part is Part.INPUT else np.maximum(x, 0))


def test_nested_results():
    left, right = Maker("torch"), Maker("mindspore")
    x, h, c = noise(5, 2, WIDTH), noise(1, 2, WIDTH, seed=1), noise(1, 2, WIDTH, seed=2)
    left.call("torch.lstm", [left.given(x)], (x * 2, h, c))
    right.call("mindspore.ops.LSTM", [right.given(x)], (x * 2, (h, c)))

    assert slots(beside(left, right), "torch.lstm#0", Part.OUTPUT) == {"0": "0", "1": "1.0", "2": "1.1"}


def test_what_only_one_side_has_is_told():
    left, right = Maker("torch"), Maker("mindspore")
    x = noise(4, WIDTH)
    left.call("torch.max", [left.given(x), 1], x.max(1))
    right.call("mindspore.ops.max", [right.given(x), 1], (x.max(1), x.argmax(1)))
    (match,) = beside(left, right).matches

    assert [(stray.slot, stray.because) for stray in match.only_right] == [("1", "no tensor of the other side fits")]


def test_two_zero_biases_could_be_any_two():
    """Constants of one size, in slots that mean nothing: no pair is better than a wrong one."""
    left, right = Maker("torch"), Maker("mindspore")
    x, zero = noise(4, WIDTH), np.zeros(WIDTH, np.float32)
    left.call("torch.custom", [left.given(x), 1, left.given(zero), left.given(zero.copy())], x * 3)
    right.call("mindspore.custom", [right.given(x), right.given(zero), 1, 2, right.given(zero.copy())], x * 3)
    (match,) = beside(left, right).matches

    assert [pair.left_slot for pair in match.tensors if pair.part is Part.INPUT] == ["0"]
    assert len(match.only_left) == len(match.only_right) == 2


def test_gradients_follow_their_tensors():
    left, right = Maker("torch"), Maker("mindspore")
    for made, order in ((left, (0, 1)), (right, (1, 0))):
        values = [made.given(noise(4, WIDTH, seed=n)) for n in order]
        made.call("torch.sub" if made is left else "mindspore.ops.sub", values, noise(4, WIDTH, seed=9))
        for place, number in enumerate(order):
            made.gradient_of(0, Role.INPUT, str(place), noise(4, WIDTH, seed=30 + number))
        made.gradient_of(0, Role.OUTPUT, "", noise(4, WIDTH, seed=40))
    found = beside(left, right)

    assert slots(found, "torch.sub#0", Part.INPUT_GRADIENT) == {"0": "1", "1": "0"}
    assert slots(found, "torch.sub#0", Part.OUTPUT_GRADIENT) == {"": ""}


def normed(framework: str, gradients: dict[str, np.ndarray]) -> Maker:
    """A layer norm of which the dump has these gradients, by slot."""
    made = Maker(framework)
    x, gamma, beta = (made.given(noise(*shape, seed=n)) for n, shape in enumerate(((4, WIDTH), (WIDTH,), (WIDTH,))))
    name = "torch.nn.functional.layer_norm" if framework == "torch" else "mindspore.ops.LayerNorm"
    made.call(name, [x, gamma, beta], noise(4, WIDTH, seed=9))
    for slot, array in gradients.items():
        made.gradient_of(0, Role.INPUT, slot, array)
    return made


def loose(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> dict[str, str]:
    found = beside(normed("torch", left), normed("mindspore", right))
    return slots(found, "torch.nn.functional.layer_norm#0", Part.INPUT_GRADIENT)


OF_X, OF_GAMMA, OF_BETA = noise(4, WIDTH, seed=50), noise(WIDTH, seed=51), noise(WIDTH, seed=52)
IN_ORDER = {"node.0": OF_X, "node.1": OF_GAMMA, "node.2": OF_BETA}


def test_gradients_that_are_nobodys_go_by_their_values():
    """One tool has them in the order of the arguments, the other in the reverse: of two shapes alike only values can tell."""
    backwards = {"node.0": OF_BETA, "node.1": OF_GAMMA, "node.2": OF_X}
    assert loose(IN_ORDER, backwards) == {"node.0": "node.2", "node.1": "node.1", "node.2": "node.0"}


def test_gradients_that_are_nobodys_beside_those_of_arguments():
    assert loose(IN_ORDER, {"0": OF_X, "1": OF_GAMMA, "2": OF_BETA}) == {"node.0": "0", "node.1": "1", "node.2": "2"}


def test_gradients_that_are_nobodys_and_all_the_same_are_paired_in_order():
    zeros = np.zeros(WIDTH, np.float32)
    same = {"node.0": OF_X, "node.1": zeros, "node.2": zeros.copy()}
    assert loose(same, same) == {"node.0": "node.0", "node.1": "node.1", "node.2": "node.2"}


def test_gradients_that_are_nobodys_and_differ_are_not_paired_by_chance():
    """What a node inside a function gave has the shape of an argument's gradient, and is none."""
    others = {"node.0": OF_X * 2, "node.1": OF_GAMMA, "node.2": OF_BETA * 3}
    found = beside(normed("torch", IN_ORDER), normed("mindspore", others))
    (match,) = found.matches

    assert slots(found, "torch.nn.functional.layer_norm#0", Part.INPUT_GRADIENT) == {"node.1": "node.1"}
    assert {stray.because for stray in match.only_left} == {"the other side has no gradient with these values"}


def test_gradients_of_arguments_never_go_by_their_values():
    """Each says whose it is: those of `gamma` and `beta`, exchanged, are a mistake to be shown."""
    found = loose({"0": OF_X, "1": OF_GAMMA, "2": OF_BETA}, {"0": OF_X, "1": OF_BETA, "2": OF_GAMMA})
    assert found == {"0": "0", "1": "1", "2": "2"}


def test_gradients_of_parameters_follow_their_parameters():
    left, right = Maker("torch"), Maker("mindspore")
    gamma, beta, w = noise(WIDTH, seed=1), noise(WIDTH, seed=2), weight(0, 6, WIDTH)
    x = left.given(noise(4, WIDTH))
    x = left.layer("norm", "LayerNorm", x, x.array * gamma + beta, weight=gamma, bias=beta)
    left.layer("fc", "Linear", x, x.array @ w.T, weight=w)
    x = right.given(noise(4, WIDTH))
    x = right.layer("ln", "LayerNorm", x, x.array * gamma + beta, gamma=gamma, beta=beta)
    right.layer("out", "Dense", x, x.array @ w.T, weight=np.ascontiguousarray(w.T))
    for made, named in (
        (left, ("norm.weight", "norm.bias", "fc.weight")),
        (right, ("ln.gamma", "ln.beta", "out.weight")),
    ):
        for number, name in enumerate(named):
            shape = (WIDTH,) if number < 2 else (6, WIDTH) if made is left else (WIDTH, 6)
            made.gradient(name, noise(*shape, seed=50 + number + (made is right)))  # other values: only names can tell
    left.gradient("frozen.weight", noise(3, seed=8))
    found = beside(left, right)

    assert {(p.left_slot, p.right_slot) for p in found.parameter_gradients} == {
        ("norm.weight", "ln.gamma"),
        ("norm.bias", "ln.beta"),
        ("fc.weight", "out.weight"),
    }
    assert [str(p.layout) for p in found.parameter_gradients if p.left_slot == "fc.weight"] == ["axes 1, 0"]
    assert [stray.slot for stray in found.stray_left] == ["frozen.weight"]
    assert not found.stray_right


@pytest.mark.parametrize("held", [True, False], ids=["parameters are held by modules", "parameters are not seen"])
def test_equal_gradients_of_a_layer_and_its_rewrite_are_paired(held: bool):
    """The two biases of a recurrent layer have one gradient: the biases' own values tell them apart, or any order is right."""
    left, right = Maker("torch"), Maker("torch")
    biases, of_both = (noise(WIDTH, seed=1), noise(WIDTH, seed=2)), noise(WIDTH, seed=3)
    for made, path, names in ((left, "rnn", ("bias_ih_l0", "bias_hh_l0")), (right, "cell", ("b_hidden", "b_input"))):
        x = made.given(noise(4, WIDTH))
        own = biases if made is left else biases[::-1]
        parameters = dict(zip(names, own, strict=True)) if held else {}
        steps = 1 if made is left else 2
        for step in range(steps):
            last = step == steps - 1
            x = made.layer(path, path.title(), x, np.tanh(x.array) if last else x.array + 1, **parameters)
        for name in names:
            made.gradient(f"{path}.{name}", of_both.copy())
    found = beside(left, right)

    pairs = {(p.left_slot, p.right_slot) for p in found.parameter_gradients}
    assert len(pairs) == 2
    assert not found.stray_left
    assert not found.stray_right
    if held:
        assert pairs == {("rnn.bias_ih_l0", "cell.b_input"), ("rnn.bias_hh_l0", "cell.b_hidden")}


def test_a_mask_of_another_kind_is_no_pair():
    """True and false on one side, 0 and -1e9 on the other: the same place, and not the same thing."""
    left, right = Maker("torch"), Maker("mindspore")
    x, keep = noise(4, WIDTH), noise(4, WIDTH, seed=3) > 0
    with left.module(
        "attn", "Attention", [left.given(x), left.given(np.where(keep, 0, -1e9).astype(np.float32))]
    ) as module:
        module.gives(left.call("torch.neg", [left.given(x)], -x))
    with right.module("mha", "SelfAttention", [right.given(x), right.given(keep)]) as module:
        module.gives(right.call("mindspore.ops.neg", [right.given(x)], -x))

    assert slots(beside(left, right), "attn#0", Part.INPUT) == {"0": "0"}


@pytest.mark.parametrize("other", [False, True])
def test_gradients_of_what_goes_to_other_calls_are_not_compared(other):
    """A sum of what the takers send back is no gradient of the same, where one side has another taker."""

    def side(framework, more, seed):
        made = Maker(framework)
        x, w = made.given(noise(4, WIDTH)), weight(0)
        y = made.call(f"{framework}.ops.relu", [x], np.maximum(x.array, 0))
        made.gradient_of(0, Role.OUTPUT, "", noise(4, WIDTH, seed=seed))
        made.call(f"{framework}.ops.matmul", [y, made.parameter(w)], y.array @ w)
        if more:
            made.call(f"{framework}.ops.sin", [y], np.sin(y.array))
        return made.side()

    found = align(side("torch", True, 1), side("mindspore", not other, 2))
    (match,) = (match for match in found.matches if match.left[0].site.name.endswith("relu"))

    assert any(pair.part is Part.OUTPUT_GRADIENT for pair in match.tensors) is not other
    why = [stray.because for stray in match.only_left]
    assert why == (
        ["the tensor goes to other calls on the other side, and its gradient comes from them"] if other else []
    )


def test_gradients_of_what_one_side_computes_twice_are_parts():
    def side(framework, times, seed):
        made = Maker(framework)
        x = made.given(noise(4, WIDTH))
        ends = []
        for number in range(times):
            ends.append(made.call(f"{framework}.ops.tanh", [x], np.tanh(x.array)))
            made.gradient_of(number, Role.OUTPUT, "", noise(4, WIDTH, seed=seed + number))
        made.call(f"{framework}.ops.mul", [ends[0], ends[-1]], ends[0].array * ends[-1].array)
        return made.side()

    found = align(side("torch", 1, 1), side("mindspore", 2, 3))
    (match,) = (match for match in found.matches if match.left[0].site.name.endswith("tanh"))

    assert not [pair for pair in match.tensors if pair.part.backward]
    assert {stray.because for stray in match.only_left} == {
        "one side computes the value twice, and each time has a part of the gradient"
    }
