"""Two networks that share no name: operations, values, parameters, order and flow say what belongs together."""

import numpy as np
import pytest
from nets import WIDTH, blocks, convnet, mlp, ported_mlp, relu, weight
from sides import Maker, alone, names, noise

from twintrace.align import align
from twintrace.model.pairs import Part
from twintrace.model.sites import Phase

PORTED = {
    "#0": "#0",
    "fc1#0": "dense_in#0",
    "fc2#0": "dense_mid#0",
    "fc3#0": "dense_out#0",
    "torch.nn.functional.linear#0": "mindspore.ops.Dense#0",
    "torch.nn.functional.linear#1": "mindspore.ops.Dense#1",
    "torch.nn.functional.linear#2": "mindspore.ops.Dense#2",
    "torch.relu#0": "mindspore.ops.ReLU#0",
    "torch.relu#1": "mindspore.ops.ReLU#1",
}


def test_other_names():
    found = align(mlp(), ported_mlp())

    assert names(found) == PORTED
    assert alone(found, skipped=False) == ([], [])
    assert alone(found) == ([], ["act0#0", "act1#0"])  # a module on one side, a function on the other


def test_other_nesting():
    found = align(mlp(), ported_mlp(nested=True))

    assert names(found) == {left: right.replace("dense", "body.dense") for left, right in PORTED.items()}
    assert alone(found, skipped=False) == ([], [])


def test_extra_casts_are_skipped():
    found = align(mlp(), ported_mlp(casts=True))

    assert names(found) == PORTED
    casts = [item for item in found.only_right if "cast" in item.call.site.name]
    assert len(casts) == 3
    assert all(item.skipped for item in casts)
    assert {item.because for item in casts} == {"a cast that only this side has: it computes nothing"}


def test_transposed_weights():
    found = align(mlp(), ported_mlp(transposed=True))

    assert names(found) == PORTED
    layouts = {
        str(pair.layout)
        for match in found.matches
        for pair in match.tensors
        if "weight" in (pair.left_slot, pair.right_slot)
    }
    assert layouts == {"axes 1, 0"}


def test_statistics_without_fingerprints_are_enough():
    assert names(align(mlp(marks=False), ported_mlp(marks=False))) == PORTED


def test_without_any_values_operations_shapes_and_order_are_enough():
    found = align(mlp(known=False), ported_mlp(known=False))

    assert names(found) == PORTED
    assert max(match.confidence for match in found.matches) < 0.95


def test_a_difference_upstream_does_not_part_what_follows():
    """The first layer computes something else: every later value differs, and the layers still belong together."""
    made = Maker("mindspore")
    x = made.given(noise(4, WIDTH))
    with made.module("", "Network", [x]) as net:
        for number in range(3):
            w, off = weight(number), 0.5 if number == 0 else 0.0
            x = made.layer(f"dense{number}", "Dense", x, x.array @ w.T + off, "mindspore.ops.Dense", weight=w)
            if number < 2:
                x = made.layer(f"act{number}", "ReLU", x, relu(x.array), "mindspore.ops.ReLU")
        net.gives(x)
    found = align(mlp(), made.side())

    assert [names(found)[f"fc{number + 1}#0"] for number in range(3)] == ["dense0#0", "dense1#0", "dense2#0"]
    assert names(found)["torch.relu#1"] == "mindspore.ops.ReLU#1"
    assert next(match.because for match in found.matches if match.left[0].site.name == "fc2") == "the same parameters"


@pytest.mark.parametrize("known", [True, False])
def test_blocks_that_are_all_alike_go_in_order(known):
    """24 of them with the same weights and zero biases: nothing but order tells them apart when values are not known."""
    found = align(blocks(24, known=known), blocks(24, "mindspore", known=known))

    assert all(names(found)[f"blocks.{n}#0"] == f"layer{n}#0" for n in range(24))
    assert all(names(found)[f"blocks.{n}.fc#0"] == f"layer{n}.dense#0" for n in range(24))
    assert alone(found) == ([], [])


def test_branches_in_another_order():
    """Values know no order: what is computed first on one side may be computed last on the other."""

    def side(framework: str, order: tuple[int, ...]):
        made = Maker(framework)
        torch = framework == "torch"
        x = made.given(noise(4, WIDTH))
        parts = {}
        for number in order:
            w = weight(number)
            name, kind = (f"b{number}", "Linear") if torch else (f"branch{number}", "Dense")
            y = made.layer(name, kind, x, x.array @ w.T, "", weight=w)
            parts[number] = made.call("torch.relu" if torch else "mindspore.ops.relu", [y], relu(y.array))
        both = np.concatenate([parts[n].array for n in sorted(parts)], 1)
        made.call("torch.cat" if torch else "mindspore.ops.concat", [[parts[n] for n in sorted(parts)]], both)
        return made.side()

    found = align(side("torch", (0, 1, 2)), side("mindspore", (2, 0, 1)))

    assert [names(found)[f"b{n}#0"] for n in range(3)] == ["branch0#0", "branch1#0", "branch2#0"]
    assert [names(found)[f"torch.relu#{n}"] for n in range(3)] == [f"mindspore.ops.relu#{n}" for n in (1, 2, 0)]
    assert alone(found) == ([], [])


def test_calls_repeated_a_different_number_of_times():
    """A loop that runs five times here and four times there: what follows is not shifted."""

    def side(framework: str, times: int):
        made = Maker(framework)
        x = made.given(noise(4, WIDTH))
        for _ in range(times):
            x = made.call("torch.tanh" if framework == "torch" else "mindspore.ops.Tanh", [x], np.tanh(x.array))
        w = weight(0)
        y = made.layer("head", "Linear" if framework == "torch" else "Dense", x, x.array @ w.T, "", weight=w)
        made.call("torch.relu" if framework == "torch" else "mindspore.ops.ReLU", [y], relu(y.array))
        return made.side()

    found = align(side("torch", 5), side("mindspore", 4))

    assert names(found)["head#0"] == "head#0"
    assert names(found)["torch.relu#0"] == "mindspore.ops.ReLU#0"
    assert [names(found)[f"torch.tanh#{n}"] for n in range(4)] == [f"mindspore.ops.Tanh#{n}" for n in range(4)]
    assert alone(found) == (["torch.tanh#4"], [])


def test_a_dropout_that_is_off_is_skipped():
    def side(framework: str, dropout: bool):
        made = Maker(framework)
        x = made.given(noise(4, WIDTH))
        y = made.call("torch.relu", [x], relu(x.array))
        if dropout:
            y = made.call("torch.nn.functional.dropout", [y], y.array)
        made.call("torch.square", [y], y.array**2)
        return made.side()

    found = align(side("torch", True), side("mindspore", False))

    assert names(found) == {"torch.relu#0": "torch.relu#0", "torch.square#0": "torch.square#0"}
    assert alone(found, skipped=True) == (["torch.nn.functional.dropout#0"], [])


def test_a_dropout_that_is_on_is_not():
    """What follows it differs, and is compared together with it, up to where both sides have the same layer."""

    def side(framework: str, keep: np.ndarray | None):
        made = Maker(framework)
        x = made.given(noise(4, WIDTH))
        if keep is not None:
            x = made.call("torch.nn.functional.dropout", [x], x.array * keep)
        x = made.call("torch.square", [x], x.array**2)
        made.layer("head", "Linear", x, x.array @ weight(0).T, "", weight=weight(0))
        return made.side()

    found = align(side("torch", noise(4, WIDTH, seed=3) > 0), side("mindspore", None))

    assert names(found) == {"torch.nn.functional.dropout#0 + torch.square#0": "torch.square#0", "head#0": "head#0"}


def test_networks_with_nothing_in_common():
    found = align(mlp(), convnet())

    assert not found.matches
    assert len(found.only_left) == len(mlp().calls)
    assert len(found.only_right) == len(convnet().calls)
    assert all(item.because for item in (*found.only_left, *found.only_right))


def test_empty_sides():
    empty = Maker("torch").side()

    assert align(empty, empty).matches == ()
    found = align(mlp(), empty)
    assert {item.because for item in found.only_left} == {"the other side has no calls at all"}
    assert not any(item.skipped for item in found.only_left)


def test_kernels_of_the_backward_pass():
    """At level op: aten names beside MindSpore's, in phase backward."""
    made, other = Maker("torch", phase=Phase.BACKWARD), Maker("mindspore", phase=Phase.BACKWARD)
    for maker, kernels in (
        (made, ("aten.threshold_backward.default", "aten.mm.default", "aten.sum.dim_IntList")),
        (other, ("ReluGrad", "MatMul", "SumExt")),
    ):
        x = maker.given(noise(4, WIDTH))
        for number, kernel in enumerate(kernels):
            x = maker.call(kernel, [x], noise(4, WIDTH, seed=20 + number))
    found = align(made.side(), other.side())

    assert names(found) == {
        "aten.threshold_backward.default#0": "ReluGrad#0",
        "aten.mm.default#0": "MatMul#0",
        "aten.sum.dim_IntList#0": "SumExt#0",
    }


def test_a_layer_that_only_one_side_has_does_not_take_its_neighbours_place():
    """Of three equal layers one is missing on the right: the parameters say which."""
    made = Maker("mindspore")
    x = made.given(noise(4, WIDTH))
    for number in (0, 2):
        w = weight(number)
        x = made.layer(f"dense{number}", "Dense", x, x.array @ w.T, "", weight=w)
    left = Maker("torch")
    x = left.given(noise(4, WIDTH))
    for number in range(3):
        w = weight(number)
        x = left.layer(f"fc{number}", "Linear", x, x.array @ w.T, "", weight=w)
    found = align(left.side(), made.side())

    assert names(found) == {"fc0#0": "dense0#0", "fc2#0": "dense2#0"}
    assert alone(found)[0] == ["fc1#0"]


def diverged(framework: str, off: float, layer) -> object:
    """A first layer that differs by `off`, then what `layer` makes: no value agrees any more, parameters do."""
    made = Maker(framework)
    x = made.given(noise(4, WIDTH))
    y = made.call("torch.tanh" if framework == "torch" else "mindspore.ops.Tanh", [x], np.tanh(x.array) + off)
    layer(made, y)
    return made.side()


def test_running_statistics_are_not_what_a_norm_is_known_by():
    """MindSpore has them among its parameters, and first; all four are of one size."""
    scale, shift, mean, variance = (noise(WIDTH, seed=60 + n) for n in range(4))

    def left(made: Maker, x) -> None:
        made.layer("bn", "BatchNorm1d", x, x.array * scale + shift, weight=scale, bias=shift)

    def right(made: Maker, x) -> None:
        held = {"moving_mean": mean, "moving_variance": variance, "gamma": scale, "beta": shift}
        made.layer("norm", "BatchNorm1d", x, x.array * scale + shift, **held)

    found = align(diverged("torch", 0.0, left), diverged("mindspore", 0.5, right))

    assert names(found)["bn#0"] == "norm#0"


def test_a_convolution_over_points_is_a_linear_layer_with_its_weight():
    """They are called differently and their inputs differ by now; the weight is one."""
    w = weight(0)

    def left(made: Maker, x) -> None:
        made.layer("squeeze", "Conv2d", x, x.array @ w.T, weight=w.reshape(WIDTH, WIDTH, 1, 1))

    def right(made: Maker, x) -> None:
        made.layer("reduce", "Dense", x, x.array @ w.T, weight=w)

    found = align(diverged("torch", 0.0, left), diverged("mindspore", 0.5, right))

    assert names(found)["squeeze#0"] == "reduce#0"


def test_what_could_be_either_of_two_goes_where_its_tensors_go():
    """One relu beside two, and nothing is known of values: the one that feeds the same layer is its partner."""

    def side(framework: str, times: int):
        made = Maker(framework, known=False)
        x = made.given(noise(4, WIDTH))
        for _ in range(times):
            x = made.call("torch.relu" if framework == "torch" else "mindspore.ops.ReLU", [x], relu(x.array))
        kind = "Linear" if framework == "torch" else "Dense"
        made.layer("head", kind, x, x.array @ weight(0).T, "", weight=weight(0))
        return made.side()

    found = align(side("torch", 2), side("mindspore", 1))

    assert names(found)["torch.relu#1"] == "mindspore.ops.ReLU#0"
    assert alone(found)[0] == ["torch.relu#0"]


def test_updates_are_paired_though_none_of_their_tensors_is_the_same():
    """From the second step on: each framework has a state of its own, and the gradients are apart by rounding."""
    sides = []
    for number, (framework, name) in enumerate((("torch", "torch.optim.SGD.step"), ("mindspore", "mindspore.nn.SGD"))):
        made = Maker(framework)
        x = made.given(noise(4, 8))
        made.call(f"{framework}.tanh", [x], np.tanh(noise(4, 8)))
        made.phase = Phase.UPDATE
        gradient = made.given(noise(8, seed=10 + number))
        made.call(name, [made.given(noise(8, seed=20 + number))], noise(8, seed=30 + number), gradients=gradient)
        sides.append(made.side())
    found = align(*sides)
    assert names(found)["torch.optim.SGD.step#0"] == "mindspore.nn.SGD#0"
    assert alone(found) == ([], [])


def test_a_random_tensor_may_be_taken_by_a_layer_that_is_compared_as_a_whole():
    """The right side got it from elsewhere; the convolution inside the layer has no partner of its own."""
    image, kernel = noise(2, 8), noise(8, 8, seed=1)
    made, other = Maker("torch"), Maker("mindspore")
    x = made.call("torch.randn", [], image)
    made.layer("conv", "Conv2d", x, image @ kernel, "torch.nn.functional.conv2d", weight=kernel)
    y = other.given(image)
    with other.module("stem", "Conv2d", [y], weight=kernel) as stem:
        half = other.call("mindspore.ops.first_half", [y, *stem.held.values()], image @ kernel - 1)
        stem.gives(other.call("mindspore.ops.second_half", [half], image @ kernel))
    found = align(made.side(), other.side())
    assert alone(found, skipped=False) == ([], [])


@pytest.mark.parametrize("taken", [False, True])
def test_what_the_kernel_of_a_batch_norm_leaves_unwritten_is_not_compared(taken):
    """Two runs of one program on a CPU: what was in the memory before differs."""
    sides = []
    for seed in (1, 2):
        made = Maker("mindspore")
        x = made.given(noise(4, 8))
        results = noise(4, 8, seed=9), noise(8, seed=seed), noise(8, seed=seed + 5), noise(8, seed=8), noise(8, seed=7)
        given = made.call("mindspore.ops.BatchNorm", [x], results)
        made.call("mindspore.ops.neg", [given[1] if taken else given[0]], -noise(4, 8, seed=9))
        sides.append(made.side())
    (match,) = (item for item in align(*sides).matches if item.left[0].site.name == "mindspore.ops.BatchNorm")
    outputs = [pair.left_slot for pair in match.tensors if pair.part is Part.OUTPUT]
    assert outputs == (["0", "1", "3", "4"] if taken else ["0", "3", "4"])


def test_runs_without_a_value_in_common_are_paired_by_operation_shape_and_order():
    """Other data, and weights that no record shows: nothing but its place speaks for a pair."""

    def chain(framework, names, seed):
        made = Maker(framework)
        value = made.given(noise(4, 8, seed=seed))
        for number, (name, width) in enumerate(zip(names, (8, 6, 6), strict=True)):
            value = made.call(name, [value], noise(4, width, seed=seed + number + 1))
        return made.side()

    left = chain("torch", ["torch.relu", "torch.nn.functional.linear", "torch.tanh"], 10)
    right = chain("mindspore", ["mindspore.ops.relu", "mindspore.ops.dense", "mindspore.ops.tanh"], 90)
    found = align(left, right)
    assert names(found) == {
        "torch.relu#0": "mindspore.ops.relu#0",
        "torch.nn.functional.linear#0": "mindspore.ops.dense#0",
        "torch.tanh#0": "mindspore.ops.tanh#0",
    }
