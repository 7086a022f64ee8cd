"""Two sides recomputed, of calls and values that were made up."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from twintrace.model.pairs import Layout  # noqa: E402
from twintrace.model.records import Call  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.tensors import Spec, Tensor  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.operations.causes import is_oversized  # noqa: E402
from twintrace.operations.differences import difference_of, hide_the_same, relative_difference  # noqa: E402
from twintrace.operations.evaluation import Values  # noqa: E402
from twintrace.operations.meanings import Operand  # noqa: E402
from twintrace.operations.recomputation import Recomputation  # noqa: E402
from twintrace.operations.recorded import Recorded  # noqa: E402
from twintrace.operations.sides import Bound, Side, Slice  # noqa: E402

pytestmark = pytest.mark.needs_torch
X, W, SCALED, RESULT = 1, 2, 3, 4


def one_side(factor, fingerprint, shape=(2, 4), dtype="bf16"):
    """`(x * w) * factor`: the input x was compared, the weight w has this fingerprint and was not."""

    def tensor(number):
        own = f"value {number} of a side with {factor}"
        return Tensor(number, Spec(dtype, shape), fingerprint=fingerprint if number == W else own)

    def product(number, left, right, made):
        site = Site(Kind.API, "torch.mul", number)
        return Call(number, site, None, (TensorRef(left), right), {}, TensorRef(made), order=number)

    side = Side("torch", [product(1, X, TensorRef(W), SCALED), product(2, SCALED, factor, RESULT)], tensor)
    weights = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return side, Values({X: np.ones(shape, np.float32), W: weights}.get, lambda number: tensor(number).spec)


@pytest.mark.parametrize(
    ("left", "right", "shape", "seen"),
    [
        ("the same bits", "the same bits", (2, 4), True),
        ("bits of the left", "bits of the right", (2, 4), False),
        ("the same bits", "the same bits", (4, 2), False),  # another layout: which element is which is not known
        (None, None, (2, 4), False),  # statistics alone were recorded
    ],
    ids=["equal bits", "other bits", "other shape", "no fingerprints"],
)
def test_weights_with_equal_bits_are_not_taken_to_be_a_few_units_off(left, right, shape, seen):
    """The weights of a layer are compared after the calls in it. Until then four units of bf16 for each would excuse a factor of
    1.01; those that have the same bits on both sides need no such excuse.
    """
    sides, values = zip(one_side(1.0, left), one_side(1.01, right, shape), strict=True)
    slices = [side.slice(RESULT, {X}) for side in sides]
    layout = Layout(reshaped=shape != (2, 4))
    found = Recomputation(sides, values).difference(*slices, {X: Bound(X, layout)}, layout)

    assert found.relative == pytest.approx(0.01)
    assert found.significant is seen


# --- changes that are too large to try -------------------------------------------------------------------------------


def product_of(positions, width):
    """Both sides of `keys @ values`, small out of long, and the same with its operands exchanged: all positions by all."""
    shapes = {X: (width, positions), W: (positions, width), RESULT: (width, width)}

    def tensor(number):
        return Tensor(number, Spec("f32", shapes[number]))

    call = Call(
        1, Site(Kind.API, "torch.matmul", 1), None, (TensorRef(X), TensorRef(W)), {}, TensorRef(RESULT), order=1
    )
    side = Side("torch", [call], tensor)
    values = Values(lambda number: np.ones(shapes[number], np.float32), lambda number: tensor(number).spec)
    (meaning,) = Recomputation((side, side), (values, values)).meanings(0, side.slice(RESULT, {X, W}))
    one, other = meaning.arguments["input"], meaning.arguments["other"]
    exchanged = replace(meaning, arguments={**meaning.arguments, "input": other, "other": one})
    return Recomputation((side, side), (values, values)), side.slice(RESULT, {X, W}), meaning, exchanged


@pytest.mark.parametrize(("positions", "tried"), [((1 << 12) - 1, True), (1 << 12, False)])
def test_another_number_of_elements_is_not_computed(positions, tried):
    """Small values are computed at once; of large ones the shapes are computed first."""
    recomputation, part, meaning, exchanged = product_of(positions, 64)
    assert not is_oversized(recomputation, 1, part, [meaning])
    assert is_oversized(recomputation, 1, part, [exchanged]) is not tried


@pytest.mark.parametrize(("width", "oversized"), [(1023, True), (1024, False)])
def test_a_change_that_makes_something_far_larger_is_not_computed(width, oversized):
    """Four times the largest recorded value: a product of 4,096 positions with themselves is four times 4,096 × 1,024."""
    positions = 1 << 12
    recomputation, part, meaning, exchanged = product_of(positions, width)
    scores = replace(exchanged, results={SCALED: 0})
    again = replace(meaning, operation="mul", arguments={"input": Operand(X), "other": 2.0}, results={RESULT: 0})
    sized = Slice(part.tensor, part.calls, part.edge)
    values = recomputation.values[1].spec
    recomputation.values[1].spec = lambda number: (
        Spec("f32", (width, positions)) if number == RESULT else values(number)
    )
    assert is_oversized(recomputation, 1, sized, [scores, again]) is oversized


# --- two results beside each other -----------------------------------------------------------------------------------


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


UNIT = 2.0**-24
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("f", "g", "tolerance", "significant"),
    [
        (1.0, 1.001, 0.0011, False),
        (1.0, 1.001, 0.0009, True),
        (1.0, 1.00008, INF, False),  # the slope of a logarithm at 0: a ten-thousandth is passed over
        (1.0, 1.00015, INF, True),
        (NAN, NAN, 0.0, False),
        (NAN, 1.0, INF, True),
        (1.0, NAN, INF, True),
        (INF, INF, 0.0, False),
        (INF, -INF, 0.0, True),
        (-3.4028235e38, -INF, 0.0, False),  # a mask is filled with the least number of float32, or with infinity
        (-INF, -3.4028235e38, 0.0, False),
        (-3.4028235e38, INF, 0.0, True),
        (-3.0e38, -INF, 0.0, True),
    ],
)
def test_differences_in_meaning(f, g, tolerance, significant):
    found = difference_of(f64(2.0, f), f64(2.0, g), f64(0.0, tolerance), UNIT)
    assert found.significant is significant


def test_a_difference_is_told_with_its_size_place_and_shapes():
    found = difference_of(f64(3.0, 4.0), f64(3.0, 4.5), f64(0.0, 0.0), UNIT)
    assert (found.relative, found.units, found.index, found.shapes) == (0.1, 0.1 / UNIT, (1,), None)
    other = difference_of(f64(3.0, 4.0), f64(3.0), f64(0.0), UNIT)
    assert (other.significant, other.relative, other.shapes) == (True, INF, ((2,), (1,)))
    nothing = difference_of(f64(), f64(), f64(), UNIT)
    assert (nothing.significant, nothing.relative) == (False, 0.0)


@pytest.mark.parametrize(
    ("f", "g", "relative"),
    [
        ((3.0, 4.0), (3.0, 5.0), 0.2),
        (
            (-1500.0, 1.0, 1.0),
            (-1500.0, 1.0, 1.2),
            0.2 / 2**0.5,
        ),  # beside what a mask has filled in nothing else counts
        ((-900.0, 1.0, 1.0), (-900.0, 1.0, 1.2), 0.2 / 900.0),  # no mask fills in less than a thousand times the rest
        ((-1500.0, 1.0, 1.0), (-1200.0, 1.0, 1.0), 0.2),
        ((INF, 3.0, 4.0), (INF, 3.0, 5.0), 0.2),
        ((INF, 3.0, 4.0), (-INF, 3.0, 4.0), INF),
        ((NAN, 3.0), (NAN, 3.0), 0.0),
        ((NAN, 3.0), (1.0, 3.0), INF),
        ((0.0, 0.0), (0.0, 1.0), INF),
        ((0.0, 0.0), (0.0, 0.0), 0.0),
    ],
)
def test_relative_differences(f, g, relative):
    assert relative_difference(f64(*f), f64(*g)) == pytest.approx(relative, rel=1e-5)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [(-1500.0, -1e9, True), (-INF, -1e4, True), (-500.0, -1e9, False), (1.0, 1.0, True), (1.0, 2.0, False)],
)
def test_values_that_hide_the_same_are_one_mask(one, two, same):
    assert hide_the_same(f64(0.0, one), f64(0.0, two)) is same
    assert hide_the_same(f64(0.0, two), f64(0.0, one)) is same
    assert not hide_the_same(f64(0.0, one), f64(one))


# --- gradients beside each other -------------------------------------------------------------------------------------


def gradients(**arrays):
    """Values of both sides by number: `left1=…, right2=…`."""
    values = []
    for name in ("left", "right"):
        known = {
            int(key.removeprefix(name)): np.asarray(value, np.float32)
            for key, value in arrays.items()
            if key.startswith(name)
        }
        values.append(Values(known.get, lambda number, known=known: Spec("f32", np.shape(known.get(number)))))
    side = Side("torch", [], lambda number: Tensor(number, Spec("f32", (1,)), fingerprint=str(number)))
    return Recorded((side, side), tuple(values))


@pytest.mark.parametrize(("units", "found"), [(100, 1.5), (150, None)])
def test_a_factor_of_all_elements_up_to_the_rounding_of_many_layers(units, found):
    """64 units of an element and as many of their size: 128 of an element that is as large as all."""
    one, two = np.ones(4096, np.float32), np.full(4096, 1.5, np.float32)
    two[7] *= np.float32(1 + units * UNIT)
    factor = gradients(left1=one, right2=two).factor((1, 2), Layout())
    assert factor == (found if found is None else pytest.approx(found, abs=1e-6))


def test_there_is_no_factor_of_zeros_of_other_shapes_or_of_what_is_not_finite():
    assert gradients(left1=[0.0, 0.0], right2=[1.0, 2.0]).factor((1, 2), Layout()) is None
    assert gradients(left1=[1.0, 2.0], right2=[1.0]).factor((1, 2), Layout()) is None
    assert gradients(left1=[1.0, INF], right2=[1.0, INF]).factor((1, 2), Layout()) is None


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.4, False), (0.6, True), (1.0, True)])
def test_a_part_is_missing_if_the_two_differ_by_half_of_it(share, found):
    own, part = np.array([3.0, 1.0, -2.0]), np.array([0.5, 0.25, 1.0])
    both = gradients(left1=own + share * part, right2=own, left3=part)
    assert both.is_the_difference(0, 1, 2, Layout(), [3]) is found
    assert both.is_the_difference(0, 1, 2, Layout(), []) is False
    assert both.is_the_difference(0, 1, 2, Layout(), [4]) is None  # not kept


@pytest.mark.parametrize(("units", "found"), [(180, (2, 3)), (212, None)])
def test_a_sum_may_be_off_by_sixteen_units_of_each_of_its_parts(units, found):
    """Sixteen for each of two parts and the sum, of an element (2) and of their size (2): 192."""
    total = np.full(4, 2.0, np.float32) + np.float32(units * UNIT)
    ones = np.ones(4, np.float32)
    assert gradients(left1=total, left2=ones, left3=ones).summands(0, 1, [2, 3]) == found


# --- tolerances of a difference in meaning ---------------------------------------------------------------------------


def test_leaves_that_were_not_compared_may_be_four_units_off_on_each_side():
    """Moved by up to four units each, which is 2 in the mean and 4 / √3 in the root mean square; four times both, on two sides."""
    sides, values = zip(one_side(1.0, "left", (64, 64)), one_side(1.0, "right", (64, 64)), strict=True)
    slices = [side.slice(RESULT, {X}) for side in sides]
    f, _, tolerance = Recomputation(sides, values).both(*slices, {X: Bound(X, Layout())}, Layout())
    size = float(f.pow(2).mean().sqrt())
    expected = 2 * 4 * 4 * 2.0**-8 * (float(f.abs().mean()) / 2 + size / 3**0.5)
    assert float(tolerance.mean()) == pytest.approx(expected, rel=0.05)


def test_one_call_on_each_side_is_compared_in_float64():
    """Two products in float32 are bounded by one unit each; float64 is finer by 2⁻²⁹, of which 64 are allowed."""
    sides, values = zip(one_side(1.0, "same", dtype="f32"), one_side(1.0, "same", dtype="f32"), strict=True)
    slices = [side.slice(SCALED, {X, W}) for side in sides]
    bound = {number: Bound(number, Layout()) for number in (X, W)}
    f, _, tolerance = Recomputation(sides, values).both(*slices, bound, Layout())
    assert torch.allclose(tolerance, 2 * UNIT * f.abs() * 64 * 2.0**-29, rtol=0.01, atol=0.0)


@pytest.mark.parametrize(("dtype", "unit"), [("f32", UNIT), ("bf16", 2.0**-8)])
def test_what_came_in_is_gone_below_eight_units_of_the_result(dtype, unit):
    """With equal operands nothing is left to be seen, unless what was inherited is known to be more."""
    side, values = one_side(1.0, "same", dtype=dtype)
    part = side.slice(RESULT, {X, W})
    recomputation = Recomputation((side, side), (values, values))
    assert recomputation.is_visible(10 * unit, part, {}) is True
    assert recomputation.is_visible(7 * unit, part, {}) is False
    assert recomputation.is_visible(None, part, {}) is False


def test_a_result_is_computed_of_what_was_recorded():
    side, values = one_side(3.0, "same", dtype="f32")
    known = {number: values(number).float().numpy() for number in (X, W)} | {SCALED: np.full((2, 4), 5.0, np.float32)}
    values = Values(known.get, values.spec)
    recomputation = Recomputation((side, side), (values, values))
    first, second = side.calls
    found, recorded = recomputation.computed(0, first, SCALED)
    assert torch.equal(found, values(W))
    assert torch.equal(recorded, values(SCALED))
    assert recomputation.computed(0, first, RESULT) is None  # it makes another value
    assert recomputation.computed(0, second, RESULT) is None  # which was not kept
    unknown = Call(9, Site(Kind.API, "mine.mul", 9), None, (TensorRef(X),), {}, TensorRef(SCALED), order=9)
    assert recomputation.computed(0, unknown, SCALED) is None
