"""Relations of two tensors that no recorded call made."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from twintrace.model.records import Call  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.tensors import Spec, Tensor  # noqa: E402
from twintrace.operations.evaluation import Values  # noqa: E402
from twintrace.operations.leaves import trend  # noqa: E402
from twintrace.operations.recomputation import Recomputation  # noqa: E402
from twintrace.operations.sides import Side  # noqa: E402

pytestmark = pytest.mark.needs_torch
W = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def both(left, right, dtype=None):
    """Two tensors with the number 1, `weight` of the module `layer`; `left` and `right` may be more, by name."""
    sides, values = [], []
    for arrays in (left, right):
        arrays = arrays if isinstance(arrays, dict) else {"layer": arrays}
        known = dict(enumerate(arrays.values(), 1))
        kind = dtype or ("i64" if known[1].dtype.kind == "i" else "f32")
        tensors = {
            number: Tensor(number, Spec(kind, array.shape), fingerprint=array.tobytes().hex())
            for number, array in known.items()
        }
        calls = [
            Call(number, Site(Kind.MODULE, name, 0), None, (), {}, None, parameters={"weight": number})
            for number, name in enumerate(arrays, 1)
        ]
        sides.append(Side("torch", calls, tensors.__getitem__))
        values.append(Values(known.get, lambda number, tensors=tensors: tensors[number].spec))
    return Recomputation((sides[0], sides[1]), (values[0], values[1]))


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (W, W.T.copy(), "the right's is the left's, transposed"),
        (W.reshape(2, 2, 6), W.reshape(2, 2, 6).swapaxes(1, 2).copy(), "the right's is the left's, transposed"),
        (W, W * 2, "the right's is 2 times the left's"),
        (W, W / 3, "the right's is 0.333333 times the left's"),
        (W, -W, "the right's is -1 times the left's"),
        (W, W * 0, "the right's is all zeros"),
        (W * 0, W, "the left's is all zeros"),
        (LABELS, np.roll(LABELS, 1), "the right's is the left's, moved by one along axis 0"),
        (LABELS, np.roll(LABELS, -1), "the right's is the left's, moved by one along axis 0"),
        (W, np.roll(W, 1, 1), "the right's is the left's, moved by one along axis 1"),
        (W, W[::-1].copy(), "both have the same values, in another order"),
        (W, W + 1, ""),
        (W, W[:2].copy(), ""),
    ],
    ids=lambda value: value.replace("the ", "") if isinstance(value, str) else "",
)  # fmt: skip
def test_relations(left, right, text):
    assert both(left, right).recorded.relation(1, 1) == text


def test_a_conversion_of_the_type_may_lie_between():
    """A weight that was scaled and rounded to bf16 is still the same weight."""
    rounded = (torch.from_numpy(W) * 3).bfloat16().float().numpy()
    assert both(W, rounded, "bf16").recorded.relation(1, 1).endswith("times the left's")
    assert both(W, rounded).recorded.relation(1, 1) == ""


def test_the_weight_of_another_layer_is_named():
    left, right = {"layer": W, "other": W * W}, {"layer": W * W, "other": W * W}
    assert both(left, right).recorded.relation(1, 1) == "the right has here what the left has as other.weight"


def test_the_same_name_is_no_other_layer():
    left, right = {"layer": W, "other": W}, {"layer": W * 2, "other": W}
    assert both(left, right).recorded.relation(2, 2) != "the right has here what the left has as layer.weight"


@pytest.mark.parametrize(
    ("left", "right", "part"),
    [
        (W, W[:2].copy(), True),
        (W[1::2].copy(), W, True),
        (W, W[:, 3:].copy(), True),
        (W, W[:2] + np.float32(1), False),
        (W, W[:1].copy(), False),  # one row alone tells nothing
        (W, W, False),
        (W, W[:2].T.copy(), False),
    ],
)
def test_a_weight_of_which_the_other_is_a_part(left, right, part):
    assert both(left, right).recorded.is_part(1, 1) is part


MANY = torch.randn(96, 64, generator=torch.Generator().manual_seed(3))
HALF = 2.0**-8


def nearest(values):
    return values.bfloat16().double()


def test_a_factor_shows_in_weights_that_are_within_a_few_units_each():
    found = trend(nearest(MANY), nearest(MANY * 1.005), HALF)
    assert not found.rounding
    assert found.text == "the right's is 1.00499 times the left's, but for rounding"


def test_a_factor_shows_in_one_row():
    changed = MANY.clone()
    changed[5] *= 1.01
    assert "at 5 of axis 0, but for rounding (1 of 96 there)" in trend(nearest(MANY), nearest(changed), HALF).text


def test_one_direction_shows():
    above = torch.nextafter(torch.nextafter(MANY, torch.tensor(9.0)), torch.tensor(9.0))
    assert "above the left's" in trend(MANY.double(), above.double(), 2.0**-24).text


@pytest.mark.parametrize("right", ["truncated", "nearest"])
def test_another_way_of_rounding_is_told_as_such(right):
    bits = MANY.numpy().view(np.uint32) & np.uint32(0xFFFF0000)
    truncated = torch.from_numpy(bits.view(np.float32)).double()
    one, two = (nearest(MANY), truncated) if right == "truncated" else (truncated, nearest(MANY))
    side, other = ("right", "left") if right == "truncated" else ("left", "right")
    found = trend(one, two, HALF)
    assert found.rounding
    assert found.text == f"the {side}'s values are rounded toward zero, the {other}'s to the nearest"


@pytest.mark.parametrize(
    ("left", "right", "unit"),
    [
        (nearest(MANY), nearest(MANY * (1 + 1e-3 * MANY.flip(0))), HALF),  # as often up as down
        (MANY.double(), MANY.double() * (1 + 5e-8), 2.0**-24),  # a factor that was rounded to float32
        (nearest(MANY[0, :30]), nearest(MANY[0, :30] * 1.01), HALF),  # too few to tell
    ],
)
def test_roundings_have_nothing_in_common(left, right, unit):
    assert trend(left, right, unit) is None


@pytest.mark.parametrize(("steps", "text"), [(2, "the right's is 2 times the left's"), (3, "")])
def test_values_of_one_conversion_are_four_units_apart_at_most(steps, text):
    """A step of float32 is two units."""
    left = 1 + np.random.default_rng(1).random((4, 6)).astype(np.float32) / 1024
    right = 2 * left
    right[1, 2] += np.float32(steps * 2.0**-22)
    found = both(left, right)
    assert found.recorded.relation(1, 1) == text


@pytest.mark.parametrize(("count", "seen"), [(36, False), (60, True)])
def test_so_few_differences_have_nothing_in_common(count, seen):
    """Six standard errors: the sum of 36 equal differences has six."""
    one = 1 + torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float().double()
    two = one.clone()
    two[:count] += 2.0**-23
    assert (trend(one, two, 2.0**-24) is not None) is seen
