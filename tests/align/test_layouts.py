"""How one tensor must be turned to lie on another."""

import numpy as np
import pytest
from sides import Maker, noise

from twintrace.align.layouts import fits, layout_between, mirrored
from twintrace.model.pairs import Layout


def tensor(array: np.ndarray, **kept: bool):
    made = Maker(**kept)
    return made.tensors[made.given(array).number]


def lay(array: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    turned = array if layout.axes is None else array.transpose(layout.axes)
    return turned.reshape(shape) if layout.reshaped else turned


CASES = [
    ((4, 3), (), "as it is"),
    ((8, 16), (1, 0), "axes 1, 0"),
    ((2, 4, 6, 7), (0, 2, 3, 1), "axes 0, 3, 1, 2"),
    ((2, 6, 7, 4), (0, 3, 1, 2), "axes 0, 2, 3, 1"),
    ((16, 5, 3, 2), (2, 3, 1, 0), "axes 3, 2, 0, 1"),
    ((2, 3, 5, 7, 11), (0, 2, 3, 4, 1), "axes 0, 4, 1, 2, 3"),
    ((5, 4, 3), (1, 0, 2), "axes 1, 0, 2"),
]


@pytest.mark.parametrize(("shape", "moved", "said"), CASES)
def test_permuted(shape, moved, said):
    left = noise(*shape)
    right = np.ascontiguousarray(left.transpose(moved)) if moved else left
    layout = layout_between(tensor(left), tensor(right))

    assert str(layout) == said
    assert np.array_equal(lay(right, layout, left.shape), left)
    back = mirrored(layout, tensor(left), tensor(right))
    assert np.array_equal(lay(left, back, right.shape), right)
    assert fits(tensor(left), tensor(right), layout)


def test_axes_of_one_element():
    left = noise(6, 12, 2)
    right = np.ascontiguousarray(left.transpose(0, 2, 1)).reshape(6, 1, 2, 12)
    layout = layout_between(tensor(left), tensor(right))

    assert np.array_equal(lay(right, layout, left.shape), left)
    back = mirrored(layout, tensor(left), tensor(right))
    assert np.array_equal(lay(left, back, right.shape), right)


def test_folded_axes_are_a_reshape():
    left = noise(8, 5, 10)

    assert layout_between(tensor(left), tensor(left.reshape(40, 10) * 1.0000001)) == Layout(None, True)


def test_the_same_bits_in_another_shape_are_a_reshape():
    left = noise(4, 6)

    assert layout_between(tensor(left), tensor(left.reshape(3, 8))) == Layout(None, True)


def test_what_nothing_tells_is_not_guessed():
    """[3, 16, 3, 3] in [27, 16]: images and places are one axis there, and channels another. No order of axes does that."""
    left = noise(3, 16, 3, 3)
    right = np.ascontiguousarray(left.transpose(0, 2, 3, 1)).reshape(27, 16)

    assert layout_between(tensor(left), tensor(right)) is None


def test_another_number_of_elements_does_not_go():
    assert layout_between(tensor(noise(4, 3)), tensor(noise(4, 4))) is None
    assert not fits(tensor(noise(4, 3)), tensor(noise(4, 4)), Layout())


@pytest.mark.parametrize("kept", [{}, {"marks": False, "ordered": True}], ids=["bits", "sums over places"])
def test_a_square_matrix_with_the_same_values_in_another_order_is_turned(kept):
    left = noise(6, 6)

    assert layout_between(tensor(left, **kept), tensor(np.ascontiguousarray(left.T), **kept)) == Layout((1, 0))
    assert layout_between(tensor(left, **kept), tensor(left.copy(), **kept)) == Layout()
    assert layout_between(tensor(left, **kept), tensor(left * np.float32(1.001), **kept)) == Layout()


def test_around_products_the_last_two_axes_are_exchanged():
    """[2, 4, 8, 4]: heads and width are as many, so shapes alone do not tell."""
    left = noise(2, 4, 8, 4)
    right = np.ascontiguousarray(left.transpose(0, 1, 3, 2))

    assert layout_between(tensor(left), tensor(right), "matmul") == Layout((0, 1, 3, 2))
