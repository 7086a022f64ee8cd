"""How one tensor must be turned to lie on another."""

import numpy as np
import pytest
from sides import Maker, noise

from twintrace.align.layouts import fits, layout_between, mirrored
from twintrace.model.pairs import Layout
from twintrace.model.tensors import Spec, Tensor


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


@pytest.mark.parametrize(("one", "two", "layout"), [
    ((0, 3), (0, 5), Layout(None, True)), ((2, 0), (0, 4), Layout(None, True)), ((0, 3), (0, 3), Layout()),
    ((0, 3), (4,), None), ((4,), (0, 3), None), ((6, 2), (3, 2), None),
])  # fmt: skip
def test_nothing_lies_on_nothing_and_on_nothing_else(one, two, layout):
    """No boxes, beside no boxes that are described by more numbers."""
    specs = [Tensor(number, Spec("f32", shape)) for number, shape in enumerate((one, two))]
    assert layout_between(*specs) == layout


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


def shaped(*shape):
    return Tensor(0, Spec("f32", shape))


@pytest.mark.parametrize(
    ("left", "right", "operation", "axes"),
    [
        ((4, 5, 4), (4, 4, 5), "", (0, 2, 1)),
        ((5, 4, 4), (4, 5, 4), "", (1, 0, 2)),
        ((5, 4, 4), (4, 4, 5), "", (2, 1, 0)),
        ((2, 4, 4, 6), (2, 4, 6, 4), "", (0, 3, 1, 2)),  # channels last
        ((2, 4, 4, 6), (2, 4, 6, 4), "matmul", (0, 1, 3, 2)),  # nobody has channels there
        ((2, 6, 4, 4), (2, 4, 6, 4), "", (0, 2, 3, 1)),
        ((2, 6, 4, 4), (2, 4, 6, 4), "softmax", (0, 2, 1, 3)),  # heads and positions
        ((4, 5, 6, 4), (4, 6, 5, 4), "", (0, 2, 1, 3)),
        ((4, 4, 5, 6), (4, 4, 6, 5), "", (0, 1, 3, 2)),
        ((8, 3, 3, 3), (3, 3, 3, 8), "", (3, 2, 0, 1)),  # a convolution's weight
        ((3, 3, 3, 8), (8, 3, 3, 3), "", (2, 3, 1, 0)),
        ((3, 8, 3, 3), (8, 3, 3, 3), "", (1, 0, 2, 3)),
        ((2, 4, 4, 4, 6), (2, 4, 4, 6, 4), "", (0, 4, 1, 2, 3)),
        ((2, 4, 4, 6, 4), (2, 4, 4, 4, 6), "", (0, 2, 3, 4, 1)),
        ((8, 3, 3, 3, 3), (3, 3, 3, 3, 8), "", (4, 3, 0, 1, 2)),
        ((3, 3, 3, 3, 8), (8, 3, 3, 3, 3), "", (2, 3, 4, 1, 0)),
        ((2, 3, 4, 5, 6, 7), (7, 2, 3, 4, 5, 6), "", (1, 2, 3, 4, 5, 0)),
        ((2, 3, 4, 5, 6, 7, 8), (8, 2, 3, 4, 5, 6, 7), "", None),  # too many orders to try
    ],
)
def test_of_several_orders_that_fit_the_one_that_frameworks_use(left, right, operation, axes):
    found = layout_between(shaped(*left), shaped(*right), operation)
    assert found == (None if axes is None else Layout(axes))


@pytest.mark.parametrize(
    ("left", "right", "layout", "expected"),
    [
        ((4, 5), (5, 4), Layout((1, 0)), True),
        ((4, 5), (5, 4), Layout(), False),
        ((4, 5), (4, 5), Layout((1, 0)), False),
        ((4, 5), (20,), Layout(None, True), True),
        ((4, 5), (21,), Layout(None, True), False),
        ((4, 5), (5, 4, 1), Layout((1, 0)), False),
        ((4, 5), (5, 4, 1), Layout((1, 0, 2), True), True),
    ],
)
def test_a_layout_fits_or_does_not(left, right, layout, expected):
    assert fits(shaped(*left), shaped(*right), layout) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [((8, 5, 10), (40, 10), True), ((40, 10), (8, 5, 10), True), ((8, 5, 10), (50, 8), False), ((8, 5, 10), (8, 50), True),
     ((8, 5, 10), (8, 10, 6), False), ((6, 4), (4, 3, 2), False)],
)  # fmt: skip
def test_neighbouring_axes_may_be_folded(left, right, expected):
    assert (layout_between(shaped(*left), shaped(*right)) == Layout(None, True)) is expected
