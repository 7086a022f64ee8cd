"""How far two tensors are known to hold the same values, where some of their statistics are not known."""

import pytest

from twintrace.align.values import alike, in_other_places, tolerance
from twintrace.model.tensors import Spec, Statistics, Tensor


def made(low, high, mean, norm, *, nan=0, rough=False):
    facts = {"statistics": "of another tool"} if rough else {}
    return Tensor(0, Spec("f32", (8,)), statistics=Statistics(low, high, mean, norm, nan, 0, 0, 0), facts=facts)


WHOLE = made(-1.0, 2.0, 0.5, 3.0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (WHOLE, 1),
        (made(-1.0, 2.0, None, None), 1),
        (made(-1.0, 2.5, None, None), -1),
        (made(-1.0, 2.0, 0.6, None), -1),
        (made(-1.0, 2.0, 0.5, 3.0, nan=1), -1),
        (made(-1.0, 2.0, 0.5, 3.0, nan=1, rough=True), 1),
    ],
)
def test_what_is_not_known_does_not_count(other, expected):
    assert alike(WHOLE, other) == alike(other, WHOLE) == expected


def typed(dtype, *, norm=10.0, order=None, high=2.0):
    return Tensor(0, Spec(dtype, (8,)), statistics=Statistics(-1.0, high, 0.5, norm, 0, 0, 0, 0, order))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("f32", "f32", 2e-4),
        ("f16", "f16", 4e-3),
        ("f16", "f32", 4e-3),
        ("bf16", "f16", 3e-2),
        ("bf16", "bf16", 3e-2),
    ],
)
def test_the_coarser_type_decides_how_far_statistics_may_lie_apart(left, right, expected):
    assert tolerance(typed(left), typed(right)) == tolerance(typed(right), typed(left)) == expected


def test_the_same_statistics_in_other_places_are_told_by_their_order():
    here, there = typed("f32", order=(1.0, -2.0)), typed("f32", order=(3.0, -2.0))
    assert alike(here, there) == 1
    assert in_other_places(here, there)
    assert not in_other_places(here, here)
    assert not in_other_places(here, typed("f32"))  # nothing is known of the order


@pytest.mark.parametrize(
    ("dtype", "times", "moved"),
    [("f32", 0.5, True), ("f16", 0.12, False), ("f16", 0.15, True), ("bf16", 0.9, False), ("bf16", 1.1, True)],
)
def test_rounding_moves_the_sums_of_the_order_too(dtype, times, moved):
    """The weights of these sums have a mean square of 1/9: rounding of bf16 moves them by a third of what it moves the norm."""
    gap = times * 3e-2 / 3 * 10.0
    assert in_other_places(typed(dtype, order=(1.0, 2.0)), typed(dtype, order=(1.0 + gap, 2.0))) is moved
