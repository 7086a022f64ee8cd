"""How far two tensors are known to hold the same values, where some of their statistics are not known."""

import pytest

from twintrace.align.values import alike
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
