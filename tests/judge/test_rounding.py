"""What rounding explains, held against real rounding: f32 beside f64, in orders of summation that frameworks use."""

from __future__ import annotations

import numpy as np
import pytest

from tests.judge.evidence import evidence, tensor
from twintrace.judge.policies import relative_error
from twintrace.judge.rounding import allowance, reduction_length, unit
from twintrace.model.tensors import DTYPES, UNITS, Spec, Tensor
from twintrace.operations import Traits, traits_named

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
