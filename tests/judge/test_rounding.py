"""What rounding explains, held against real rounding: f32 beside f64, in orders of summation that frameworks use."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from tests.judge.evidence import evidence, tensor
from twintrace.judge.gradient_rounding import GradientRounding
from twintrace.judge.policies import relative_error
from twintrace.judge.rounding import Backward, allowance, backward_cancellation, cancellation, reduction_length, unit
from twintrace.model.tensors import DTYPES, UNITS, Spec, Tensor
from twintrace.operations import Traits, traits_named
from twintrace.store.digest import digest

CONTRACTS = Traits(contracts=True)


def sequential(a, b):
    """One term after the other, each sum rounded: the worst order that there is."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + np.outer(a[:, k], b[k])
    return total


@pytest.mark.parametrize("length", [8, 64, 1024])
@pytest.mark.parametrize("order", [sequential, np.matmul])
def test_a_product_of_matrices_is_within_the_bound_and_not_far_below(length, order):
    draw = np.random.default_rng(length)
    a, b = draw.normal(size=(16, length)).astype(np.float32), draw.normal(size=(length, 16)).astype(np.float32)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    error = relative_error(evidence(exact, order(a, b)))
    allowed = allowance(tensor(exact), tensor(exact), [tensor(a), tensor(b)], CONTRACTS, incoming=0.0).bound
    assert error < allowed / 2
    assert allowed < 200 * max(error, UNITS["f32"] / 8)


@pytest.mark.parametrize(("wrong", "seen"), [(1e-7, False), (1e-4, True)])
def test_an_epsilon_that_is_wrong_is_seen_when_it_matters(wrong, seen):
    """Of values with a variance of 1e-2, an epsilon of 1e-4 in place of 1e-7 is far beyond rounding."""
    x = (0.1 * np.random.default_rng(0).normal(size=(8, 64))).astype(np.float32)

    def norm(eps):
        centred = x.astype(np.float64) - x.mean(-1, keepdims=True)
        return (centred / np.sqrt(centred.var(-1, keepdims=True) + eps)).astype(np.float32)

    found = evidence(norm(1.01e-7), norm(wrong))
    kind = traits_named("torch.nn.functional.layer_norm")
    allowed = allowance(found.left, found.right, [tensor(x)], kind, incoming=0.0).bound
    assert (relative_error(found) > allowed) is seen


def test_a_mask_makes_no_softmax_uncertain():
    scores = np.random.default_rng(2).normal(size=(8, 8)).astype(np.float32)
    scores[:, 5:] = -1e9
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    result, kind = tensor(weights.astype(np.float32)), traits_named("torch.Tensor.softmax")
    assert allowance(result, result, [tensor(scores)], kind, incoming=1e-7).bound < 1e-2


def test_cancellation_is_allowed_for():
    draw = np.random.default_rng(1)
    x = (1000 + draw.normal(size=(64, 64))).astype(np.float32)
    y = (x + draw.normal(size=x.shape)).astype(np.float32)
    noisy = (x * (1 + 1e-7 * draw.normal(size=x.shape))).astype(np.float32)
    found = evidence(x - y, noisy - y)
    apart = relative_error(evidence(x, noisy))
    sources = [tensor(x), tensor(y)]
    kind = traits_named("torch.Tensor.sub")
    assert relative_error(found) < allowance(found.left, found.right, sources, kind, incoming=apart).bound
    assert relative_error(found) > allowance(found.left, found.right, sources, Traits(), incoming=apart).bound
    assert relative_error(found) > allowance(found.left, found.right, sources, kind, incoming=apart, tainted=True).bound


@pytest.mark.parametrize(
    ("result", "sources", "length"),
    [((4, 8), [(4, 32), (32, 8)], 32), ((4, 1), [(4, 100)], 100), ((4, 8), [(4, 8)], 1), ((0,), [(0,)], 1)],
)
def test_the_length_of_a_sum_is_in_the_shapes(result, sources, length):
    tensors = [Tensor(0, Spec("f32", shape)) for shape in sources]
    assert reduction_length(Tensor(0, Spec("f32", result)), tensors, CONTRACTS) == pytest.approx(length)


def test_every_float_has_a_unit_and_integers_have_none():
    assert {name for name in DTYPES if name[0] in "fcb" and name != "b8"} == set(UNITS)
    assert unit("f32", "bf16") == 2.0**-8
    assert unit("i64", "b8") == 0.0


def stated(rms: float, shape: tuple[int, ...] = (8,), dtype: str = "f32", **ends: float) -> Tensor:
    """A tensor of which statistics alone are known: its root mean square, and its ends if they are given."""
    count = int(np.prod(shape))
    known = digest(np.zeros(count, np.float32), "f32").statistics
    return Tensor(0, Spec(dtype, shape), statistics=replace(known, norm=rms * count**0.5, **ends))


U = UNITS["f32"]


@pytest.mark.parametrize(
    ("traits", "options", "bound"),
    [
        (Traits(), {}, 4.5 * U),
        (Traits(), {"calls": 9}, 3 * 4.5 * U),
        (Traits(steps=16), {"calls": 9}, 4 * 4.5 * U),
        (Traits(), {"incoming": 1e-3}, 4.5 * U + 4e-3),
        (Traits(), {"incoming": 1e-3, "tainted": True}, 4.5 * U),
        (Traits(approximates=True), {}, 4.5 * U + 256 * U),
        (Traits(cancels=True), {}, 10 * 4.5 * U),
        (Traits(cancels=True), {"steady": True}, 4.5 * U),
        (Traits(cancels=True), {"tainted": True}, 4.5 * U),
        (Traits(exponential=True), {}, 30 * 4.5 * U),  # the largest score
    ],
)
def test_parts_of_the_bound(traits, options, bound):
    """Of a result of size 1, of one source of size 10 with a largest magnitude of 30."""
    result, source = stated(1.0), stated(10.0, min=-30.0, max=20.0)
    found = allowance(result, result, [source], traits, **{"incoming": 0.0, **options})
    assert found.bound == pytest.approx(bound)


def test_what_has_16_bits_is_computed_in_f32_and_rounded_once():
    result = stated(1.0, dtype="bf16")
    found = allowance(result, result, [result], Traits(approximates=True), incoming=0.0)
    assert found.bound == pytest.approx(4.5 * UNITS["bf16"] + 256 * U)
    assert found.because == "bf16, a function computed by approximation"


@pytest.mark.parametrize(("size", "aligned"), [(0.0015, False), (0.0017, True)])
def test_errors_of_a_mean_point_the_same_way_where_they_drown_it(size, aligned):
    """A sum of 1024 in f16 has a rounding of 20 units of its own: 0.0098. Of terms of this size, sums cancel by 32 · 32 · size;
    if their errors point the same way, they add up to 32 times that: half of the result from a size of 0.0016 on.
    """
    result, source = stated(1.0, (1,), "f16"), stated(size * 32, (1024,), "f16")
    own, gain = 20 * UNITS["f16"], size * 32 * 32
    found = allowance(result, result, [source], Traits(sums=True, cancels=True), incoming=0.0)
    assert found.bound == pytest.approx(own * gain * (32 if aligned else 1))


@pytest.mark.parametrize(
    ("traits", "sources", "gain"),
    [
        (Traits(cancels=True), [stated(3.0)], 3.0),
        (Traits(cancels=True, sums=True), [stated(3.0, (32,))], 6.0),  # four terms each
        (Traits(cancels=True), [stated(0.1)], 1.0),
        (Traits(cancels=True), [stated(5.0, dtype="i64"), stated(3.0)], 3.0),  # integers are exact
        (Traits(selects=True), [stated(2.0, (128,))], 8.0),  # all of the error is in the eighth that was taken
        (Traits(contracts=True), [stated(3.0, (2, 4)), stated(5.0, (4, 4))], 30.0),  # four products each
        (Traits(contracts=True), [stated(3.0)], 1.0),
        (Traits(exponential=True), [stated(3.0, min=-7.0, max=2.0)], 7.0),
        (Traits(exponential=True), [stated(1e9, min=-1e9, max=2.0)], 100.0),  # a mask
        (Traits(exponential=True, contracts=True), [stated(1e9, min=-1e9, max=1.0), stated(2.0, (1,), min=-2.0)], 210.0),
        (Traits(), [stated(3.0)], 1.0),
    ],
)  # fmt: skip
def test_cancellation_by_kind(traits, sources, gain):
    """Of a result of eight elements of size 1."""
    length = reduction_length(stated(1.0), sources, traits)
    assert cancellation(stated(1.0), stated(0.5), sources, traits, length) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("traits", "made_of", "gain"),
    [
        (Traits(), Backward([stated(2.0)], [], []), 1.0),
        (Traits(), Backward([stated(2.0, (32,))], [], []), 4.0),  # four gradients that are added up
        (Traits(), Backward([stated(0.1, (32,))], [], []), 1.0),
        (Traits(contracts=True), Backward([stated(2.0, (8, 4))], [stated(3.0, (4,))], []), 12.0),
        (Traits(cancels=True), Backward([stated(1.0)], [stated(2.0)], [stated(10.0)]), 5.0),  # a norm: ten of two
        (Traits(exponential=True), Backward([stated(3.0)], [], [stated(0.5)]), 3.0),
        (Traits(exponential=True), Backward([stated(3.0)], [], [stated(2.0)]), 6.0),
        (Traits(exponential=True), Backward([stated(1.0, ())], [stated(1.0, min=-9.0, max=1.0)], [stated(50.0, ())]), 10.0),
        (Traits(exponential=True), Backward([stated(1.0, ())], [stated(1.0, min=-9.0, max=1.0)], [stated(np.log(2), ())]), 20.0),
        (Traits(cancels=True), Backward([stated(0.0)], [], [stated(10.0)]), 1.0),
    ],
)  # fmt: skip
def test_cancellation_of_a_gradient_by_kind(traits, made_of, gain):
    """Of a gradient of eight elements of size 1."""
    assert backward_cancellation(stated(1.0), stated(0.5), made_of, traits) == pytest.approx(gain)


def test_the_reasons_of_a_bound_are_told():
    result, sources = stated(1.0, (2, 4)), [stated(3.0, (2, 16)), stated(5.0, (16, 4), "bf16")]
    kind = Traits(contracts=True, approximates=True)
    found = allowance(result, result, sources, kind, incoming=1e-3)
    assert (
        found.because
        == "f32, a function computed by approximation, sums of 16, what came in is 1.0e-03 apart, cancellation of 6.0e+01"
    )
    assert allowance(result, stated(1.0, (2, 4), "bf16"), [], Traits(), incoming=0.0).because == "bf16"


@pytest.mark.parametrize(("size", "covered"), [(1.5, True), (2.5, False)])
def test_a_gradient_of_rounding_alone_may_be_larger_than_its_difference(size, covered):
    """Of two that are nothing but rounding: 3 on the left, 2 on the right, and 1 is what was carried to here."""
    rounding = GradientRounding.__new__(GradientRounding)
    rounding._state = mock.Mock()
    rounding._state.recomputation.recorded.rms.return_value = size
    own = {"_is_audited": True, "_allowed": 0.0, "_carried": 1.0, "_left_over": 0.0, "_is_left_over": False}
    with contextlib.ExitStack() as stack:
        for name, value in own.items():
            stack.enter_context(mock.patch.object(GradientRounding, name, return_value=value))
        assert rounding.covers(0, mock.Mock(), 7) is covered
