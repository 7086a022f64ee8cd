"""What one step leaves to the next: single values by their bits, weights by their names."""

from __future__ import annotations

import numpy as np
import pytest

from tests.judge.evidence import evidence, tensor
from twintrace.judge.carried import CarriedBounds, Weight, identities, identity, moved, uncertainty

X = np.random.default_rng(3).normal(size=(30, 20)).astype(np.float32)


def test_a_value_is_known_again_by_its_bits_or_by_its_statistics():
    assert identity(tensor(X, 1)) == identity(tensor(X.copy(), 2))
    assert identity(tensor(X, 1)) != identity(tensor(-X, 1))
    bare = [tensor(array, fingerprint=False) for array in (X, X.copy(), 2 * X, X.reshape(20, 30))]
    assert identity(bare[0]) == identity(bare[1])
    assert identity(bare[0]) not in {identity(bare[2]), identity(bare[3])}


def test_a_value_that_a_step_has_left_may_be_as_far_apart_as_it_was_then():
    pair = evidence(X, X * np.float32(1.1), numbers=(1, 2))
    later = evidence(X.copy(), X * np.float32(1.1), numbers=(7, 8))
    assert CarriedBounds(values={identities(pair): 0.1}).of_value(later) == 0.1
    assert CarriedBounds(values={identities(pair): 0.1}).of_value(evidence(X, X)) == 0.0


def test_the_elements_that_are_noise_make_it_uncertain_however_small_they_are():
    """A third of it is rounding, the whole is exact."""
    left = np.concatenate([X.ravel(), 1e-9 * X.ravel()[:300]])
    right = np.concatenate([X.ravel(), -1e-9 * X.ravel()[:300]]).astype(np.float32)
    assert uncertainty(evidence(left, right)) == pytest.approx(2 / np.sqrt(3), rel=1e-6)
    assert uncertainty(evidence(left, left)) == 0.0
    assert uncertainty(evidence(X, X * np.float32(1 + 1e-6))) < 1e-5


def test_without_values_the_elements_are_taken_to_be_of_all_sizes():
    pair = evidence(X, X * np.float32(1 + 1e-4), values=False)
    assert 0.01 < uncertainty(pair) < 0.03
    assert uncertainty(evidence(X, -X, values=False)) <= 2.0
    assert uncertainty(evidence(X[0], X[0] * np.float32(1 + 1e-6), values=False)) == 1.0  # a bias, and parts of it


@pytest.mark.parametrize("step", [1e-1, 1e-3])
def test_how_far_a_weight_has_moved(step):
    """By the ends, where everything has moved as far; of one that was zero it is all."""
    signs = np.sign(np.random.default_rng(4).normal(size=X.shape)).astype(np.float32)
    after = X + np.float32(step) * signs
    assert moved(tensor(X), tensor(after)) == pytest.approx(step, rel=0.2)
    assert moved(tensor(np.zeros_like(X)), tensor(after)) == 1.0
    assert moved(tensor(X), tensor(X)) == 0.0


def test_a_weight_is_as_uncertain_as_its_gradient_where_it_has_moved():
    before = CarriedBounds(weights={"k.bias": Weight(tensor(X), 1e-6, 0.5), "q.bias": Weight(tensor(X), 1e-6, 0.01)})
    after = tensor(X + np.float32(0.01))
    assert before.of_weight("k.bias", tensor(X)) == 1e-6
    assert before.of_weight("q.bias", after) == pytest.approx(0.01 * 0.01, rel=0.1)
    assert before.of_weight("k.bias", after) == pytest.approx(
        4 * 0.5 * 0.01, rel=0.1
    )  # noise: the ends may have moved least
    assert before.of_weight("another", tensor(X)) is None


@pytest.mark.parametrize(("uncertain", "factor"), [(0.09, 1.0), (0.11, 4.0)])
def test_a_gradient_is_noise_from_a_tenth_on(uncertain, factor):
    before = CarriedBounds(weights={"bias": Weight(tensor(X), 0.0, uncertain)})
    share = moved(tensor(X), tensor(X + np.float32(0.01)))
    assert before.of_weight("bias", tensor(X + np.float32(0.01))) == pytest.approx(factor * uncertain * share)
