"""Whether a call without a partner matters: only if a result depends on it through something that is not compared."""

import numpy as np
import pytest
from nets import WIDTH, relu, softmax, weight
from sides import Maker, names, noise

from twintrace.align import align
from twintrace.model.pairs import Alone, Bearing

LINEAR = {"torch": "torch.nn.functional.linear", "mindspore": "mindspore.ops.Dense"}


class Writer(Maker):
    """A network with two layers, and something of one side's own between them."""

    def __init__(self, framework: str) -> None:
        super().__init__(framework)
        self.x = self.given(noise(4, WIDTH))

    def dense(self, number: int, x):
        name = f"fc{number}" if self.framework == "torch" else f"dense{number}"
        kind = "Linear" if self.framework == "torch" else "Dense"
        result = x.array @ weight(number).T
        return self.layer(name, kind, x, result, LINEAR[self.framework], weight=weight(number))


def network(framework: str, own=lambda made, y: y, last=lambda made, y: y):
    """`own` is done to the first layer's result, `last` after the second layer, outside of all modules."""
    made = Writer(framework)
    with made.module("", "Net", [made.x]) as net:
        y = net.gives(made.dense(1, own(made, made.dense(0, made.x))))
    last(made, y)
    return made.side()


def lone(own=lambda made, y: y, last=lambda made, y: y) -> list[Alone]:
    found = align(network("torch"), network("mindspore", own, last))
    mirrored = align(network("mindspore", own, last), network("torch"))
    assert found.only_right == mirrored.only_left
    return list(found.only_right)


def test_on_a_question_nothing_depends():
    def ask(made, y):
        made.call("mindspore.ops.all", [made.call("mindspore.ops.eq", [y, 1.0], y.array == 1.0)], np.array(False))
        return y

    found = lone(ask)

    assert [item.call.site.name for item in found] == ["mindspore.ops.eq", "mindspore.ops.all"]
    assert {item.bearing for item in found} == {Bearing.NONE}
    assert all(item.skipped for item in found)


def test_a_number_that_is_asked_for_outside_of_modules_is_no_result():
    """`item()` hands a value to Python; the tensor that it is recorded with is none of the run's results."""
    [found] = lone(last=lambda made, y: made.call("mindspore.Tensor.item", [y], np.array(y.array.flat[0])))

    assert (found.call.site.name, found.bearing, found.skipped) == ("mindspore.Tensor.item", Bearing.NONE, True)


def test_a_dead_end_inside_a_module_is_no_result():
    def look(made, y):
        made.call("mindspore.ops.norm", [y], np.linalg.norm(y.array, axis=-1))
        return y

    (found,) = lone(look)

    assert found.bearing is Bearing.NONE
    assert found.skipped


def test_a_number_that_is_computed_outside_of_modules_is_a_result():
    (found,) = lone(last=lambda made, y: made.call("mindspore.ops.norm", [y], np.linalg.norm(y.array, axis=-1)))

    assert found.bearing is Bearing.OPEN
    assert not found.skipped


def test_a_question_outside_of_modules_is_none():
    (found,) = lone(last=lambda made, y: made.call("mindspore.ops.any", [y], np.array(True)))

    assert found.bearing is Bearing.NONE
    assert found.skipped


def test_what_changes_the_values_on_their_way_counts():
    (found,) = lone(lambda made, y: made.call("mindspore.ops.tanh", [y], np.tanh(y.array)))

    assert found.bearing is Bearing.THROUGH
    assert not found.skipped
    assert len(found.takers) == 1


def scores(framework: str, mask, *, fill: float = -1e4):
    """Scores with a mask, each side's built in its own way; then a softmax."""
    made = Maker(framework)
    x = made.given(noise(5, 5))
    keep = np.tril(np.ones((5, 5), bool))
    y = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    z = mask(made, y, keep, np.where(keep, 0, fill).astype(np.float32))
    made.call(f"{framework}.softmax", [z], softmax(z.array))
    return made.side()


def filled(made, y, keep, bias):
    mask = made.call("torch.ones", [5, 5], np.ones((5, 5), bool))
    mask = made.call("torch.tril", [mask], keep)
    return made.call("torch.masked_fill", [y, mask, -1e4], np.where(keep, y.array, -1e4).astype(np.float32))


def added(made, y, keep, bias):
    places = made.call("mindspore.ops.arange", [5], np.arange(5))
    mask = made.call("mindspore.ops.where", [places], bias)
    return made.call("mindspore.ops.add", [y, mask], y.array + bias)


def test_a_mask_that_is_built_in_another_way_does_not_count():
    found = align(scores("torch", filled), scores("mindspore", added))

    assert all(item.skipped for item in (*found.only_left, *found.only_right))
    assert Bearing.THROUGH in {item.bearing for item in (*found.only_left, *found.only_right)}


def twice(framework: str, *, again: bool):
    made = Maker(framework)
    x = made.given(noise(4, WIDTH))
    y = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    z = made.call(f"{framework}.sigmoid", [y], 1 / (1 + np.exp(-y.array)))
    two = made.call(f"{framework}.sigmoid", [y], z.array) if again else z
    y = made.call(f"{framework}.mul", [y, z], y.array * z.array)
    made.call(f"{framework}.sub", [y, two], y.array - two.array)
    return made.side()


def test_a_value_that_is_computed_twice_does_not_count():
    found = align(twice("torch", again=False), twice("mindspore", again=True))
    (item,) = found.only_right

    assert item.bearing is Bearing.COMPARED
    assert item.skipped
    assert len(item.takers) == 1


@pytest.mark.parametrize("known", [True, False])
def test_the_other_side_without_calls_is_told(known):
    made = Maker("torch", known=known)
    made.call("torch.relu", [made.given(noise(3))], relu(noise(3)))
    found = align(made.side(), Maker("mindspore").side())

    assert [item.because for item in found.only_left] == ["the other side has no calls at all"]
    assert not found.only_left[0].skipped


def test_a_module_around_what_the_other_side_does_without_one_wraps_it():
    def side(wrapped):
        made = Maker("mindspore" if wrapped else "torch")
        x, w = made.given(noise(4, WIDTH)), weight(0)
        if wrapped:
            made.layer("fc", "Dense", x, x.array @ w.T, "mindspore.ops.dense", weight=w)
        else:
            made.call("torch.nn.functional.linear", [x, made.parameter(w)], x.array @ w.T)
        return made.side()

    found = align(side(False), side(True))

    assert names(found) == {"torch.nn.functional.linear#0": "mindspore.ops.dense#0"}
    assert [item.because for item in found.only_right] == ["it only wraps calls that are compared themselves"]
