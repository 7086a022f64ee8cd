"""Two runs of one program that do independent things in another order; and what has one name and does something else."""

from dataclasses import replace

import numpy as np
import pytest
from nets import WIDTH, weight
from sides import Maker, alone, names, noise

from twintrace.align import align
from twintrace.model.pairs import Bearing
from twintrace.model.sites import Kind, Phase


def branches(order, *, off: float = 0.0, kind: Kind = Kind.OP, extra: bool = False):
    """Two layers and what follows each, in some order; then their sum, and kernels that go back the same way."""
    made = Maker("torch")
    x = made.given(noise(4, WIDTH))
    ends = {}
    for number in order:
        w = made.parameter(weight(number))
        y = made.call("aten.mm.default", [x, w], x.array @ w.array + off * noise(4, WIDTH, seed=number), kind=kind)
        ends[number] = made.call("aten.tanh.default", [y], np.tanh(y.array), kind=kind)
    if extra:
        ends[1] = made.call("aten.neg.default", [ends[1]], -ends[1].array, kind=kind)
    total = made.call("aten.mul.Tensor", [ends[0], ends[1]], ends[0].array * ends[1].array, kind=kind)
    made.phase = Phase.BACKWARD
    for number in reversed(order):
        g = made.call("aten.mul.Tensor", [total, ends[1 - number]], total.array * ends[1 - number].array, kind=kind)
        made.call("aten.tanh_backward.default", [g, ends[number]], g.array * (1 - ends[number].array ** 2), kind=kind)
    return made.side()


@pytest.mark.parametrize("off", [0.0, 0.3])
def test_branches_in_another_order_are_paired_by_flow(off):
    """Also where no value is equal: weights say which is which."""
    found = align(branches([0, 1]), branches([1, 0], off=off))

    assert (
        names(found)
        == {
            "aten.mm.default#0": "aten.mm.default#1",
            "aten.mm.default#1": "aten.mm.default#0",
            "aten.tanh.default#0": "aten.tanh.default#1",
            "aten.tanh.default#1": "aten.tanh.default#0",
            "aten.mul.Tensor#0": "aten.mul.Tensor#1",
            "aten.mul.Tensor#1": "aten.mul.Tensor#0",
            "aten.tanh_backward.default#0": "aten.tanh_backward.default#1",
            "aten.tanh_backward.default#1": "aten.tanh_backward.default#0",
        }
        or names(found) == _expected()
    )
    assert alone(found) == ([], [])


def _expected() -> dict[str, str]:
    """Forward and backward products are counted apart: the one of the forward pass keeps its number."""
    both = {"mm.default", "tanh.default", "tanh_backward.default"}
    found = {f"aten.{name}#{n}": f"aten.{name}#{1 - n}" for name in both for n in (0, 1)}
    return found | {"aten.mul.Tensor#0": "aten.mul.Tensor#1", "aten.mul.Tensor#1": "aten.mul.Tensor#0"}


def inside(side, model: str):
    """The same, its products made in modules below `model`: a layer for each weight."""
    calls = []
    for call in side.calls:
        weights = [
            leaf.id
            for leaf in call.args
            if side.tensor(leaf.id).requires_grad and side.tensor(leaf.id).producer is None
        ]
        path = f"{model}.layer{side.tensor(weights[0]).fingerprint}" if weights else ""
        calls.append(replace(call, site=replace(call.site, path=path)))
    return replace(side, calls=calls)


def test_branches_in_another_order_are_paired_by_flow_in_modules_of_other_names():
    """Nothing but the weights tells which layer is which; what comes after them has one name in one place."""
    found = align(inside(branches([0, 1]), "net"), inside(branches([1, 0]), "model.net"))

    assert names(found) == _expected()
    assert alone(found) == ([], [])


@pytest.mark.parametrize("kind", ["extra", "other"])
def test_a_mistake_in_one_of_two_branches_leaves_the_backward_pass_in_order(kind):
    """What only a name tells waits until the flow has told what it can, and what is left over then goes in order."""

    def side(order, wrong):
        made = Maker("torch")
        x = made.given(noise(4, WIDTH))
        ends, weights = {}, {}
        for number in order:
            weights[number] = made.parameter(weight(number))
            y = made.call("aten.mm.default", [x, weights[number]], x.array @ weights[number].array, kind=Kind.OP)
            if wrong and number == 1 and kind == "extra":
                y = made.call("aten.neg.default", [y], -y.array, kind=Kind.OP)
            name = "aten.relu.default" if number else "aten.tanh.default"
            if wrong and number == 1 and kind == "other":
                name = "aten.abs.default"
            ends[number] = made.call(name, [y], np.tanh(y.array) * (1 + 0.1 * number + wrong), kind=Kind.OP)
        total = made.call("aten.mul.Tensor", [ends[0], ends[1]], ends[0].array * ends[1].array, kind=Kind.OP)
        made.phase = Phase.BACKWARD
        for number in reversed(order):
            name = ("aten.tanh_backward.default", "aten.threshold_backward.default")[number]
            if wrong and number == 1 and kind == "other":
                name = "aten.sgn.default"
            g = made.call(name, [total, ends[number]], total.array * (1 - ends[number].array ** 2), kind=Kind.OP)
            t = made.call("aten.t.default", [g], g.array.T, kind=Kind.OP)
            made.call("aten.sum.default", [t], t.array.sum(1), kind=Kind.OP)
        return made.side()

    found = names(align(side([0, 1], False), side([1, 0], True)))

    assert {name: found[name] for name in found if "sum" in name} == {
        f"aten.sum.default#{n}": f"aten.sum.default#{1 - n}" for n in (0, 1)
    }


def backwards(order, maker, size=4):
    """A layer, and kernels of its backward pass of which a record tells neither module nor line; `maker` made what they take."""
    made = Maker("torch")
    x, w = made.given(noise(4, WIDTH)), made.parameter(weight(0))
    y = made.call("aten.mm.default", [x, w], x.array @ w.array, kind=Kind.OP)
    made.call("aten.tanh.default", [y], np.tanh(y.array), kind=Kind.OP)
    made.phase = Phase.BACKWARD
    for number in order:
        g = made.call(maker, [y], noise(size, WIDTH, seed=7 + number), kind=Kind.OP)
        made.call("aten.sigmoid_backward.default", [g], noise(size, WIDTH, seed=17 + number), kind=Kind.OP)
    g = made.call(maker, [y], noise(size, WIDTH, seed=size), kind=Kind.OP)
    h = made.call("aten.mm.default", [g, w], g.array @ w.array, kind=Kind.OP)
    made.call("aten.t.default", [h], h.array.T, kind=Kind.OP)
    return made.side()


def test_kernels_in_another_order_whose_makers_are_not_known_are_no_pair_by_their_name():
    found = align(backwards([0, 1], "aten.mul.Tensor"), backwards([1, 0], "aten.div.Tensor"))

    kernels = [match for match in found.matches if match.left[0].site.name == "aten.sigmoid_backward.default"]
    assert [(match.left[0].site.call, match.right[0].site.call) for match in kernels] == [(0, 1), (1, 0)]


def test_kernels_of_other_shapes_with_only_a_weight_in_common_are_no_pair_by_their_name():
    """One side has the gradients of all steps at once; nor is there a pair of which only such a pair speaks."""
    found = align(backwards([0, 1], "aten.mul.Tensor", 12), backwards([0, 1], "aten.div.Tensor", 3))

    backward = [match for match in found.matches if match.left[0].site.phase is Phase.BACKWARD]
    assert not [match.because for match in backward if match.because.startswith(("same name", "same address"))]


def test_an_extra_call_does_not_make_the_rest_another_order():
    found = align(branches([0, 1]), branches([0, 1], extra=True))

    assert all(left == right for left, right in names(found).items())
    assert alone(found) == ([], ["aten.neg.default#0"])


def test_a_cast_of_other_shapes_is_no_partner_by_name():
    """`to` stands once on both sides, and is given tensors of other shapes by calls that are no pair."""

    def side(other: bool):
        made = Maker("torch")
        x = made.given(noise(2, 5, WIDTH))
        y = made.call("torch.tanh", [x], np.tanh(x.array))
        if other:
            places = made.call("torch.cumsum", [made.given(noise(5))], np.arange(5, dtype=np.float32))
        else:
            places = made.call("torch.arange", [5], np.arange(5).reshape(1, 5, 1))
        places = made.call("torch.to", [places], places.array.astype(np.float32))
        z = made.call("torch.add", [y, places], y.array + np.arange(5, dtype=np.float32)[:, None])
        made.call("torch.relu", [z], np.maximum(z.array, 0))
        return made.side()

    found = align(side(False), side(True))
    (match,) = (match for match in found.matches if match.left[0].site.name == "torch.to")

    assert [str(pair.layout) for pair in match.tensors] == [
        "reshaped",
        "reshaped",
    ]  # paired by their values, not by name


def experts(order, *, trained: float = 0.0):
    """Each expert's result by its weight, which `== number` picks, in some order; weights that training has changed."""
    made = Maker("torch")
    x, chosen = made.given(noise(4, WIDTH)), made.given(np.array([0, 1, 2, 1]))
    for number in order:
        picked = made.call("torch.Tensor.__eq__", [chosen, number], chosen.array == number)
        w = weight(number) * (1 + trained)
        part = made.layer(f"experts.{number}", "Linear", x, x.array @ w, weight=w)
        made.call("torch.Tensor.mul", [part, picked], part.array * picked.array[:, None])
    return made.side()


@pytest.mark.parametrize("trained", [0.0, 0.1])
def test_calls_with_the_same_operands_are_known_by_their_numbers(trained):
    found = align(experts([0, 1, 2]), experts([2, 0, 1], trained=trained))
    moved = {"0": "1", "1": "2", "2": "0"}

    assert {left: right for left, right in names(found).items() if "eq" in left or "mul" in left} == {
        f"torch.Tensor.{name}#{one}": f"torch.Tensor.{name}#{two}"
        for name in ("__eq__", "mul")
        for one, two in moved.items()
    }


def nested(order, maker):
    """Four results joined in twos, in some order; `maker` is what the other side calls the function that made them."""
    made = Maker("torch")
    x = made.given(noise(4, WIDTH))
    parts = []
    for number in range(4):
        w = made.parameter(weight(number))
        y = made.call("torch.matmul", [x, w], x.array @ w.array)
        parts.append(made.call(maker, [y], np.tanh(y.array)))

    def joined(one, two):
        return made.call("torch.cat", [[one, two]], np.concatenate([one.array, two.array], 1))

    if order == "from the right":
        joined(parts[0], joined(parts[1], joined(parts[2], parts[3])))
    else:
        joined(joined(parts[0], parts[1]), joined(parts[2], parts[3]))
    return made.side()


def test_a_call_whose_bits_another_of_its_name_has_is_no_pair_by_name():
    """Which makers belong together is not known yet; the bits that come out are."""
    found = align(nested("in twos", "torch.tanh"), nested("from the right", "torch.Tensor.tanh"))

    assert {left: right for left, right in names(found).items() if "cat" in left} == {
        "torch.cat#1": "torch.cat#0",
        "torch.cat#2": "torch.cat#2",
    }


def products(order, *, off=0.0):
    """Kernels of the backward pass of a product: the gradient times either operand, in some order."""
    made = Maker("torch")
    x = made.given(noise(4, WIDTH))
    w = made.parameter(weight(0))
    y = made.call("aten.mm.default", [x, w], x.array @ w.array + off * noise(4, WIDTH, seed=3), kind=Kind.OP)
    ends = [made.call(f"aten.tanh{'_' if off else ''}.default", [y], np.tanh(y.array), kind=Kind.OP)]
    ends += [made.call(f"aten.sin{'_' if off else ''}.default", [y], np.sin(3 * y.array), kind=Kind.OP)]
    made.call("aten.mul.Tensor", ends, ends[0].array * ends[1].array, kind=Kind.OP)
    made.phase = Phase.BACKWARD
    g = made.call("aten.expand.default", [made.given(noise(4, WIDTH, seed=9))], noise(4, WIDTH, seed=9), kind=Kind.OP)
    for number in order:
        made.call("aten.mul.Tensor", [g, ends[number]], g.array * ends[number].array, kind=Kind.OP)
    return made.side()


def test_kernels_of_the_backward_pass_with_each_others_values_are_no_pair_by_name():
    """The operands of a product were exchanged: one gradient goes into both kernels, and only values tell them apart."""
    found = align(products([0, 1]), products([1, 0], off=1e-7))

    backward = [match for match in found.matches if match.left[0].site.phase is Phase.BACKWARD]
    assert {
        (match.left[0].site.call, match.right[0].site.call) for match in backward if "mul" in match.left[0].site.name
    } == {
        (0, 1),
        (1, 0),
    }


def test_what_is_written_through_a_view_goes_into_what_the_view_is_of():
    """The recorder says who wrote; the tensor that is read afterwards came out of no call."""

    def side(written):
        made = Maker("torch")
        x = made.given(noise(4, WIDTH))
        y = made.call("torch.relu", [x], np.maximum(x.array, 0))
        whole = y.array.copy()
        whole[1] = 0
        if written:
            view = made.call("torch.Tensor.__getitem__", [y, 1], y.array[1])
            made.call("torch.Tensor.zero_", [view], np.zeros(WIDTH, np.float32))
            made.calls[-1] = replace(made.calls[-1], mutates=("0",))
            z = made._tensor(whole, made.calls[-1].id)
        else:
            z = made.call("torch.index_fill", [y, 0, 1, 0.0], whole)
        made.call("torch.tanh", [z], np.tanh(whole))
        return made.side()

    found = align(side(False), side(True))

    assert [item.bearing for item in found.only_right if "zero_" in item.call.site.name] == [Bearing.THROUGH]
