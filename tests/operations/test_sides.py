"""Gradients that come back to a value, of calls that were made up."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from twintrace.model.records import Call, Config, Gradient, Role  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.tensors import Spec, Tensor  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.operations.evaluation import Values  # noqa: E402
from twintrace.operations.recomputation import Recomputation, operand_unit  # noqa: E402
from twintrace.operations.sides import Side  # noqa: E402

pytestmark = pytest.mark.needs_torch


def call(number, name, taken, made, sent=None):
    """`made = name(taken)`, which sent a gradient back or took part in no backward pass."""
    gradients = () if sent is None else (Gradient(Role.INPUT, "0", sent, number),)
    site = Site(Kind.API, f"torch.Tensor.{name}", number)
    return Call(number, site, None, (TensorRef(taken),), {}, TensorRef(made), gradients=gradients, order=number)


def side(calls, bits=None, dtypes=None):
    """A side whose tensors have these fingerprints; all others have their own."""
    bits, dtypes = bits or {}, dtypes or {}

    def tensor(number):
        return Tensor(number, Spec(dtypes.get(number, "f32"), (4,)), fingerprint=bits.get(number, f"own {number}"))

    found = Side("torch", calls, tensor)
    found.index_gradients()
    return found


def gradients(found, number):
    return sorted(gradient for _, gradient in found.contributions(number))


def test_all_who_took_a_value_send_back_to_it():
    calls = [
        call(1, "exp", 10, 11),
        call(2, "tanh", 11, 12, 90),
        call(3, "sin", 11, 13, 91),
        call(4, "cos", 12, 14, 92),
    ]
    assert gradients(side(calls), 11) == [90, 91]


def test_a_cast_to_the_same_type_hands_a_value_on():
    """Tensor 12 has the bits of 11, and the cast no gradient of its own: what comes back to 12 belongs to 11."""
    calls = [call(1, "exp", 10, 11), call(2, "to", 11, 12), call(3, "tanh", 12, 13, 90), call(4, "sin", 11, 14, 91)]
    assert gradients(side(calls, {11: "same", 12: "same"}), 11) == [90, 91]


def test_a_cast_that_sends_a_gradient_back_does_not_hand_on():
    calls = [call(1, "exp", 10, 11), call(2, "to", 11, 12, 92), call(3, "tanh", 12, 13, 90)]
    assert gradients(side(calls, {11: "same", 12: "same"}), 11) == [92]


def test_a_call_that_changes_the_bits_does_not_hand_on():
    calls = [call(1, "exp", 10, 11), call(2, "to", 11, 12), call(3, "tanh", 12, 13, 90)]
    assert gradients(side(calls), 11) == []


def test_a_copy_that_came_about_unseen_is_the_same_value():
    """No recorded call made tensor 21; it has the bits of 11, as what a hook wraps has."""
    calls = [call(1, "exp", 10, 11), call(2, "tanh", 21, 12, 90), call(3, "sin", 11, 13, 91)]
    found = side(calls, {11: "same", 21: "same"})
    assert gradients(found, 11) == gradients(found, 21) == [90, 91]


def test_a_copy_of_what_was_made_inside_a_layer_is_what_the_layer_hands_out():
    """A layer makes 11 and hands out 12; tensor 21 has their bits, and no recorded call made it."""
    inner = Call(2, Site(Kind.API, "torch.exp", 0), 1, (TensorRef(10),), {}, TensorRef(11), order=1)
    settings = Config("act", "ReLU", {"torch_class": "torch.nn.modules.activation.ReLU"})
    site = Site(Kind.MODULE, "act", 0, type="ReLU")
    outer = Call(1, site, None, (TensorRef(10),), {}, TensorRef(12), config=settings, order=2)
    calls = [inner, outer, call(3, "tanh", 21, 13, 90), call(4, "sin", 12, 14, 91)]
    found = side(calls, {11: "same", 12: "same", 21: "same"})
    assert gradients(found, 12) == [90, 91]


@pytest.mark.parametrize(("bits", "expected"), [({12: "same", 13: "same"}, 12), ({}, 13)])
def test_a_write_in_place_that_returns_another_object_makes_one_value(bits, expected):
    """MindSpore's `index_add_` returns 12 and has written to 13: they are one value if they have the same bits."""
    call = Call(
        1,
        Site(Kind.API, "mindspore.Tensor.index_add_", 0),
        None,
        (TensorRef(10), 0, TensorRef(11), TensorRef(20)),
        {},
        TensorRef(12),
        mutates=("0",),
        after={"0": 13},
        order=1,
    )
    made = side([call], bits, {11: "i64"})
    assert (made.origin(13), made.origin(12)) == (expected, 12)


def recomputation(**arrays):
    """Gradients `g1`, `g2`, … by their numbers, on both sides."""
    known = {int(name[1:]): np.asarray(value, dtype=np.float32) for name, value in arrays.items()}
    values = Values(known.get, lambda number: Spec("f32", known[number].shape))
    return Recomputation((side([]), side([])), (values, values))


A, B, C = [1.0, 2.0, 3.0], [0.5, -1.0, 4.0], [7.0, 0.0, 1.0]


def plus(*parts):
    return np.sum(np.asarray(parts, dtype=np.float32), 0)


def test_summands_are_all_parts_if_these_add_up():
    assert recomputation(g1=plus(A, B, C), g2=A, g3=B, g4=C).recorded.summands(0, 1, [2, 3, 4]) == (2, 3, 4)


def test_summands_are_those_that_add_up():
    assert recomputation(g1=plus(A, C), g2=A, g3=B, g4=C).recorded.summands(0, 1, [2, 3, 4]) == (2, 4)


def test_as_many_summands_as_possible():
    """The two that cancel each other belong to the sum."""
    minus = [-value for value in B]
    assert recomputation(g1=A, g2=A, g3=B, g4=minus).recorded.summands(0, 1, [2, 3, 4]) == (2, 3, 4)


def test_no_summands_add_up():
    found = recomputation(g1=plus(A, A), g2=A, g3=B, g4=C)
    assert found.recorded.summands(0, 1, [2, 3, 4]) is None
    assert found.recorded.summands(0, 1, []) is None


def test_a_sum_is_known_up_to_the_rounding_of_adding():
    total = np.float32(plus(A, B))
    assert recomputation(g1=total * np.float32(1 + 2e-7), g2=A, g3=B).recorded.summands(0, 1, [2, 3]) == (2, 3)
    assert recomputation(g1=total * np.float32(1 + 1e-4), g2=A, g3=B).recorded.summands(0, 1, [2, 3]) is None


def test_no_selection_is_tried_among_many():
    """Nine parts or more are all of the sum or none: 511 selections would be tried."""
    arrays = {f"g{number}": [float(2**number), 1.0, float(number)] for number in range(2, 11)}
    some = plus(*[arrays[f"g{number}"] for number in range(2, 10)])
    every = plus(*arrays.values())
    numbers = list(range(2, 11))
    assert recomputation(g1=some, **arrays).recorded.summands(0, 1, numbers) is None
    assert recomputation(g1=every, **arrays).recorded.summands(0, 1, numbers) == tuple(numbers)
    assert recomputation(g1=some, **arrays).recorded.summands(0, 1, numbers[:8]) == tuple(numbers[:8])


def test_values_that_were_not_kept_have_no_summands():
    found = recomputation(g1=A, g2=A)
    left = Values(lambda number: None, found.values[0].spec)
    assert Recomputation(found.sides, (left, left)).recorded.summands(0, 1, [2]) is None


# --- makers and precision -----------------------------------------------------------------------------------------------


def nested(inner, outer):
    """Tensor 11 is the result of one call inside of another; tensor 10 is what both take."""
    calls = [
        Call(2, Site(Kind.API, inner, 0), 1, (TensorRef(10),), {}, TensorRef(11), order=1),
        Call(1, Site(Kind.API, outer, 0), None, (TensorRef(10),), {}, TensorRef(11), order=2),
    ]
    return side(calls)


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("torch.exp", "torch.tanh", 2),  # the innermost
        ("mine.exp", "torch.tanh", 1),  # the next around it whose meaning can be told
        ("mine.exp", "mine.tanh", 2),
    ],
)
def test_the_maker_of_a_value_is_the_innermost_call_that_means_something(inner, outer, expected):
    found = nested(inner, outer)
    assert found.maker(11).id == expected
    assert found.maker(10) is None
    assert found.around(found.maker(11)) is (found.calls[1] if expected == 2 else None)


@pytest.mark.parametrize(
    ("name", "settings", "unit"),
    [
        ("matmul", {}, 0.0),
        ("matmul", {"reduced_f32": ["onednn_matmul"]}, 2.0**-11),
        ("matmul", {"reduced_f32": ["onednn_matmul"], "float32_matmul": "medium"}, 2.0**-8),
        ("matmul", {"reduced_f32": ["matmul"]}, 0.0),  # of an accelerator; this is on the host
        ("matmul", {"reduced_f32": ["onednn_convolution"]}, 0.0),
        ("conv1d", {"reduced_f32": ["onednn_convolution"]}, 2.0**-11),
        ("matmul", {"reduced_f32": "onednn_matmul"}, 0.0),  # no list: written by another tool
    ],
)
@pytest.mark.parametrize("of_call", [True, False])
def test_the_unit_that_a_run_allowed_operands_to_be_rounded_to(name, settings, unit, of_call):
    """By settings of the call or else of the journal."""
    product = Call(
        1, Site(Kind.API, f"torch.{name}", 0), None, (TensorRef(10), TensorRef(11)), {}, TensorRef(12), order=1,
        precision=settings if of_call else {},
    )  # fmt: skip
    shape = (2, 2, 2)
    found = Side(
        "torch", [product], lambda number: Tensor(number, Spec("f32", shape)), precision={} if of_call else settings
    )
    assert operand_unit(found, product, found.meaning(product)) == unit


def test_a_slice_begins_with_what_was_made_of_numbers():
    """Those were not recorded: the tensor is taken as it is, and nothing fails for it."""
    made = Call(1, Site(Kind.API, "torch.tensor", 0), None, (), {}, TensorRef(10), order=1)
    unknown = Call(2, Site(Kind.API, "mine.exp", 0), None, (TensorRef(10),), {}, TensorRef(12), order=2)
    found = side([made, unknown, call(3, "tanh", 10, 11), call(4, "tanh", 12, 13)])
    part = found.slice(11, set())
    assert ([item.id for item in part.calls], part.edge, part.failure) == ([3], (10,), "")
    assert found.slice(13, set()).failure == "mine.exp is not among the operations that can be recomputed"


def test_a_slice_ends_at_values_that_were_compared_and_has_each_call_once():
    calls = [call(1, "exp", 10, 11), call(2, "tanh", 11, 12), call(3, "sin", 11, 13)]
    both = Call(
        4, Site(Kind.API, "torch.Tensor.add", 4), None, (TensorRef(12), TensorRef(13)), {}, TensorRef(14), order=4
    )
    found = side([*calls, both])
    whole, part = found.slice(14, set()), found.slice(14, {11, 14})
    assert ([item.id for item in whole.calls], whole.edge) == ([1, 2, 3, 4], (10,))
    assert ([item.id for item in part.calls], part.edge) == ([2, 3, 4], (11,))


def test_a_slice_begins_with_the_original_of_a_copy():
    """Tensor 21 came about unseen, with the bits of 11, which was compared."""
    calls = [call(1, "exp", 10, 11), call(2, "tanh", 21, 12)]
    part = side(calls, {11: "same", 21: "same"}).slice(12, {11})
    assert ([item.id for item in part.calls], part.edge, part.copies) == ([2], (11,), {21: 11})
