"""How far two tensors are known to hold the same values, where some of their statistics are not known."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from sides import Maker

from twintrace.align.evidence import is_repeated
from twintrace.align.values import Fill, alike, fill_of, in_other_places, tolerance
from twintrace.model.tensors import Spec, Statistics, Tensor
from twintrace.store.digest import digest


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


def held(array, *, fingerprint="bits", dtype="f32"):
    """A tensor with the statistics of these values."""
    array = np.ascontiguousarray(array, np.float32)
    return Tensor(0, Spec(dtype, array.shape), statistics=digest(array, "f32").statistics, fingerprint=fingerprint)


NOISE = np.random.default_rng(0).normal(size=(8, 8))
MASK = np.triu(np.full((8, 8), -1e4), 1)
CORNER = np.zeros((8, 8))
CORNER[7, 0] = 1.0


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (held(NOISE), held(NOISE), 2),
        (held(NOISE), held(NOISE, dtype="f16"), 1),  # the same bits of another type are other values
        (held(NOISE), held(NOISE.T, fingerprint="others"), 1),
        (held(NOISE), held(NOISE + 0.1, fingerprint="others"), -1),
        (held(NOISE), held(NOISE.reshape(-1)[:-1], fingerprint="others"), -1),
        (held(np.ones(4)), held(np.ones(4)), 0),  # as every second bias
        (held(np.ones(4)), held(np.ones(4), fingerprint="others"), 0),
        (held([0.5]), held([0.5]), 0),  # written in a program
        (held([0.5625]), held([0.5625]), 2),  # a loss: nobody writes four digits
        (WHOLE, replace(WHOLE, spec=Spec("f32", (9,))), -1),
        (held([0.5625]), Tensor(0, Spec("f32", (1,))), 0),
        (held(MASK), held(MASK, fingerprint="others"), 1),
        (held(MASK + np.tril(NOISE)), held(MASK + np.tril(2 * NOISE), fingerprint="others"), 0),  # scores: nothing is seen of them
        (held(MASK + np.tril(NOISE)), held(MASK, fingerprint="others"), -1),
    ],
)  # fmt: skip
def test_grades_of_evidence(left, right, expected):
    assert alike(left, right) == alike(right, left) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (MASK, Fill.PURE),
        (-MASK, Fill.PURE),
        (MASK + np.tril(NOISE), Fill.MIXED),
        (MASK + 95 * CORNER, Fill.MIXED),  # below a hundredth of the fill value
        (MASK + 150 * CORNER, Fill.NONE),
        (MASK + np.tril(np.full((8, 8), 95.0)), Fill.NONE),  # 36 of them: more than a hundredth of the sum of squares
        (MASK + np.tril(np.full((8, 8), -0.5), -1), Fill.MIXED),  # zeros on the diagonal alone
        (MASK / 9, Fill.PURE),
        (MASK / 11, Fill.NONE),  # activations may be as large as 900
        (NOISE, Fill.NONE),
        (
            MASK + np.triu(np.linspace(-3e3, 3e3, 64).reshape(8, 8), 1),
            Fill.NONE,
        ),  # many large numbers, and none that fills
    ],
)
def test_a_fill_value_decides_all_statistics(values, expected):
    assert fill_of(held(values).statistics, values.size) is expected


@pytest.mark.parametrize(("apart", "same"), [(1.5e-4, True), (3e-4, False)])
@pytest.mark.parametrize("which", ["min", "max", "mean", "norm"])
def test_each_statistic_may_be_apart_by_rounding(which, apart, same):
    """Of the largest element; of the norm, relative to itself."""
    known = held(NOISE, fingerprint="one")
    size = known.statistics.norm if which == "norm" else float(np.abs(NOISE).max())
    moved = replace(known.statistics, **{which: getattr(known.statistics, which) + apart * size})
    assert alike(known, replace(known, statistics=moved, fingerprint="two")) == (1 if same else -1)


def test_without_bits_the_same_statistics_stand_for_them():
    bare = functools.partial(held, fingerprint=None)
    assert alike(bare(NOISE), bare(NOISE)) == 2
    assert alike(bare(NOISE), held(NOISE)) == 2
    assert alike(held(NOISE, fingerprint="other"), held(NOISE)) == 1
    assert alike(bare(NOISE), bare(NOISE.T)) == alike(bare(NOISE), bare(NOISE * (1 + 1e-6))) == 1
    assert alike(bare(CORNER), bare(CORNER)) == 2
    assert alike(bare(np.ones(4)), bare(np.ones(4))) == 0


def test_what_is_not_finite_is_counted():
    values = [1.0, 2.0, 3.0, np.nan]
    assert alike(held(values, fingerprint="one"), held(values, fingerprint="two")) == 1
    for other in ([1.0, 2.0, 3.0, np.inf], [1.0, 2.0, 3.0, -np.inf], [np.nan, 1.0, 3.0, np.nan]):
        assert alike(held(values, fingerprint="one"), held(other, fingerprint="two")) == -1


@pytest.mark.parametrize(("small", "large", "repeated"), [
    ([[0.0, 1.0, -1.0]], [[0.0, 1.0, -1.0]] * 4, True), ([0.0, 2.0], [[0.0, 2.0]] * 3, True),
    ([[0.0, 1.0, -1.0]], [[1.0, 1.0, -1.0]] * 4, False), ([[0.0, 2.0]], [[0.5, 2.0]] * 4, False),
    ([[0.0, 1.0, -1.0]], [[0.0, 1.0], [-1.0, 0.0], [1.0, -1.0]], False),
])  # fmt: skip
def test_positions_for_each_of_a_batch_are_positions(small, large, repeated):
    tensors = []
    for rows in (small, large):
        made = Maker()
        tensors.append(made.tensors[made.given(np.array(rows, np.float32)).number])

    assert is_repeated(*tensors) is repeated
    assert is_repeated(*reversed(tensors)) is repeated
