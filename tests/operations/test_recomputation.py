"""Two sides recomputed, of calls and values that were made up."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from twintrace.model.pairs import Layout  # noqa: E402
from twintrace.model.records import Call  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.tensors import Spec, Tensor  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.operations.evaluation import Values  # noqa: E402
from twintrace.operations.recomputation import Bound, Recomputation  # noqa: E402
from twintrace.operations.sides import Side  # noqa: E402

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
