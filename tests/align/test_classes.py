"""Numbers for values: the same where two tensors hold the same, to rounding."""

import numpy as np
import pytest
from sides import Maker, noise

from twintrace.align.classes import Classes
from twintrace.align.trees import CallTree
from twintrace.align.values import alike


def both(left: np.ndarray, right: np.ndarray) -> tuple[int, int, int]:
    """Their two numbers, and what `alike` says."""
    sides = []
    for framework, array in (("torch", left), ("mindspore", right)):
        made = Maker(framework)
        made.given(array)
        sides.append((CallTree(made.side()), made.tensors[0]))
    classes = Classes(sides[0][0], sides[1][0], ([0], [0]))
    return classes.of(0, 0), classes.of(1, 0), alike(sides[0][1], sides[1][1])


X = noise(6, 8)


@pytest.mark.parametrize(
    ("right", "likeness"),
    [
        (X.copy(), 2),
        (np.ascontiguousarray(X.T), 1),
        (X.reshape(2, 24) * np.float32(1 + 1e-6), 1),
        (X.astype(np.float16), 1),
    ],
    ids=["equal", "turned", "rounded", "half"],
)
def test_the_same_values(right, likeness):
    one, two, found = both(X, right)

    assert one == two >= 0
    assert found == likeness


@pytest.mark.parametrize("right", [X * np.float32(1.01), X + np.float32(0.01), noise(6, 8, seed=1), X[:5]])
def test_other_values(right):
    one, two, found = both(X, right)

    assert one != two
    assert found == -1


@pytest.mark.parametrize("array", [np.zeros(8, np.float32), np.ones((3, 3), np.float32), np.float32(0.5), np.int64(7)])
def test_constants_tell_nothing(array):
    assert both(np.asarray(array), np.asarray(array)) == (-1, -1, 0)


def test_a_loss_tells_something():
    one, two, found = both(np.asarray(np.float32(2.6584992)), np.asarray(np.float32(2.6584997)))

    assert one == two >= 0
    assert found == 1


def test_what_has_no_statistics_is_unknown():
    made, other = Maker(known=False), Maker(known=False)
    made.given(X)
    other.given(X)

    assert Classes(CallTree(made.side()), CallTree(other.side()), ([0], [0])).of(0, 0) == -1
    assert alike(made.tensors[0], other.tensors[0]) == 0


def test_shared_says_whether_both_sides_have_it():
    left, right = Maker("torch"), Maker("mindspore")
    for made, seeds in ((left, (0, 1)), (right, (0, 2))):
        for seed in seeds:
            made.given(noise(6, 8, seed=seed))
    classes = Classes(CallTree(left.side()), CallTree(right.side()), ([0, 1], [0, 1]))

    assert classes.shared(classes.of(0, 0))
    assert not classes.shared(classes.of(0, 1))
    assert not classes.shared(classes.of(1, 1))
