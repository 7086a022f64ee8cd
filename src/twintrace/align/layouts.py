"""Layouts that lay one tensor on another: from the shapes, and from values in another order.

    left [4, 3, 3, 3]    right [4, 3, 3, 3]      as it is
    left [8, 16]         right [16, 8]           axes 1, 0
    left [2, 4, 6, 6]    right [2, 6, 6, 4]      axes 0, 3, 1, 2        the right one has its channels last
    left [16, 4, 3]      right [16, 4, 1, 3]     reshaped
    left [8, 8]          right [8, 8]            axes 1, 0: the same values, and not in the same order

Where the shapes allow several, the layouts that frameworks use come first; among the others the one that moves least.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from ..model.pairs import Layout
from ..model.tensors import Tensor, in_another_order, same_values
from .values import alike, numel

AS_IT_IS = Layout()
# Axes of the right tensor in the order of the left one: what frameworks are known to do.
_USUAL: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((1, 0),),
    3: ((0, 2, 1), (1, 0, 2), (2, 1, 0)),
    4: ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 0, 1), (2, 3, 1, 0), (1, 0, 2, 3)),
    5: ((0, 4, 1, 2, 3), (0, 2, 3, 4, 1), (4, 3, 0, 1, 2), (2, 3, 4, 1, 0)),
}
# Around matrix products it is the last two axes that are exchanged, and heads with positions; nobody has channels there.
_PRODUCTS = frozenset(("matmul", "scaled_dot_product_attention", "multi_head_attention", "softmax", "einsum", "linear"))
_USUAL_OF_PRODUCTS: dict[int, tuple[tuple[int, ...], ...]] = _USUAL | {4: ((0, 1, 3, 2), (0, 2, 1, 3), *_USUAL[4])}
_MOST_AXES = 6  # all orders of more axes are too many to try, and nobody has seen one


def layout_between(left: Tensor, right: Tensor, operation: str = "") -> Layout | None:
    """The layout of the right tensor on the left one; None where there is none, or where nothing tells which."""
    one, two = left.spec.shape, right.spec.shape
    if one == two:
        axes = _reordered(left, right)
        return AS_IT_IS if axes is None else Layout(axes)
    if numel(left) != numel(right):
        return None
    if not numel(left):
        return Layout(None, True)
    if left.fingerprint is not None and left.fingerprint == right.fingerprint:
        return Layout(None, True)
    # Axes of one element may stand anywhere: they are looked at last.
    long = [axis for axis, size in enumerate(two) if size != 1]
    short = [axis for axis, size in enumerate(two) if size == 1]
    ours, theirs = tuple(size for size in one if size != 1), tuple(two[axis] for axis in long)
    if ours == theirs:
        return Layout(None, True)
    usual = _USUAL_OF_PRODUCTS if operation in _PRODUCTS else _USUAL
    axes = next(_orders(ours, theirs, usual), None)
    if axes is not None:
        order = (*(long[axis] for axis in axes), *short)
        return Layout(order, tuple(two[axis] for axis in order) != one)
    return Layout(None, True) if _is_folded(ours, theirs) or _is_folded(theirs, ours) else None


def _is_folded(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    """Is the second shape the first with neighbouring axes folded into one? `[8, 5, 10]` and `[40, 10]`, not `[50, 8]`."""
    sizes = list(two)
    for size in one:
        if not sizes or sizes[0] % size:
            return False
        sizes[0] //= size
        if sizes[0] == 1:
            sizes.pop(0)
    return not sizes


def fits(left: Tensor, right: Tensor, layout: Layout) -> bool:
    """Does this layout lay the right tensor on the left one?"""
    one, two = left.spec.shape, right.spec.shape
    if layout.axes is not None:
        if len(layout.axes) != len(two):
            return False
        two = tuple(two[axis] for axis in layout.axes)
    return one == two or (layout.reshaped and numel(left) == numel(right))


def _reordered(left: Tensor, right: Tensor) -> tuple[int, ...] | None:
    """A square matrix with the very same values in another order is taken to be transposed."""
    one, two = left.statistics, right.statistics
    if (
        len(left.spec.shape) != 2
        or left.spec.shape[0] != left.spec.shape[1]
        or left.spec.shape[0] < 2
        or one is None
        or two is None
        or not _other_places(left, right)
        or left.producer is not None
        or right.producer is not None
        or left.spec.dtype != right.spec.dtype
    ):
        return None
    return (1, 0) if same_values(one, two, numel(left)) and alike(left, right) == 1 else None


def _other_places(left: Tensor, right: Tensor) -> bool:
    """Do bits, or where there are none the sums over weighted places, say that the values are not in the same order?"""
    if left.fingerprint is None or right.fingerprint is None:
        assert left.statistics is not None
        assert right.statistics is not None
        return in_another_order(left.statistics, right.statistics) is True
    return left.fingerprint != right.fingerprint


def _orders(
    one: tuple[int, ...], two: tuple[int, ...], usual: dict[int, tuple[tuple[int, ...], ...]]
) -> Iterator[tuple[int, ...]]:
    if len(one) != len(two) or len(one) > _MOST_AXES or sorted(one) != sorted(two):
        return
    for axes in (*usual.get(len(one), ()), *permutations(range(len(one)))):
        if tuple(two[axis] for axis in axes) == one:
            yield axes


def mirrored(layout: Layout, left: Tensor, right: Tensor) -> Layout:
    """The layout of the left tensor on the right one, given that of the right one on the left."""
    if layout.axes is None:
        return layout
    if layout.reshaped:  # another shape between the two: the way back is not the inverse
        return layout_between(right, left) or layout
    return Layout(tuple(layout.axes.index(axis) for axis in range(len(layout.axes))))
