"""Tell how one tensor lies on another where shapes leave a choice: from where it comes, or from the values themselves.

    left [2, 8, 8]    right [2, 8, 8]     as it is, or axes 0, 2, 1: keys as long as they are wide, transposed on one side

In this order, as far as it goes:

    the same bits                    as it is
    paired before                    as it lay there
    the flow of data                 both sides made it, by reshapes and transposes alone, of tensors that were paired before: what
                                     those calls did to the places is done to numbers of places, and compared
    the values, where they are kept  each order of axes is tried on a sample of the elements
    shapes                           what frameworks usually do (`layouts.py`)

Values are read one pair at a time, and only where more than one order of axes fits the shapes and nothing else has told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from ..model.pairs import Layout
from ..model.values import Nest
from ..operations.families import SHAPING
from .layouts import AS_IT_IS, fits, layout_between
from .pairing import Pairing
from .trees import CallTree
from .units import operation
from .values import alike, numel, tolerance

_Array = np.ndarray[Any, Any]
Values = Callable[[int], Any]
_SAMPLE = 4096
"""Elements that an order of axes is tried on. Two unrelated normal numbers are within the tolerance of 16 bits in less than 10 % of
all places, so a wrong order of axes never passes on this many; fewer would do, and cost as much to read."""
_MOST_AXES = 6  # all orders of more axes are too many to try
_MOST_PLACES = 1 << 22  # of a tensor whose places are followed through reshapes and transposes: 32 MB of numbers
_STEPS = 16  # reshapes and transposes in a row


class Arranger:
    """Finds layouts for pairs of tensors, and remembers them."""

    def __init__(self, pairing: Pairing, values: tuple[Values, Values]) -> None:
        self._pairing, self._values = pairing, values
        self._known: dict[tuple[int, int], Layout] = {}
        self.read = 0  # pairs of tensors whose values were read

    def known(self, left: int, right: int) -> Layout | None:
        """The layout in which these two were paired before."""
        return self._known.get((left, right))

    def remember(self, left: int, right: int, layout: Layout) -> None:
        """These two are a pair, and lie so."""
        self._known.setdefault((left, right), layout)

    def between(self, left: int, right: int, what: str = "", *, inherited: bool = False) -> Layout | None:
        """The layout of the right tensor on the left one; None where nothing tells.

        `inherited`: they come out of one operation into which everything went as it is.
        """
        trees = self._pairing.trees
        one, two = trees[0].tensor(left), trees[1].tensor(right)
        usual = layout_between(one, two, what)
        if numel(one) != numel(two):
            return usual
        same = one.fingerprint is not None and one.fingerprint == two.fingerprint and one.spec == two.spec
        orders = () if same else _orders(one.spec.shape, two.spec.shape)
        if same or (usual is not None and len(orders) < 2):
            return usual
        known = self._known.get((left, right))
        if known is not None and fits(one, two, known):
            return known
        followed = self._followed(left, right, orders)
        if followed is not None:
            return followed
        if inherited and one.spec.shape == two.spec.shape:
            return AS_IT_IS
        return self._tried(left, right, usual, orders)

    def confirmed(self, left: int, right: int, what: str = "") -> Layout | None:
        """The layout of the right tensor on the left one, if bits, the flow of data or the values say so; shapes alone do not."""
        trees = self._pairing.trees
        one, two = trees[0].tensor(left), trees[1].tensor(right)
        usual = layout_between(one, two, what)
        if one.fingerprint is not None and one.fingerprint == two.fingerprint and one.spec.dtype == two.spec.dtype:
            return usual
        known = self._known.get((left, right))
        if known is not None and fits(one, two, known):
            return known
        orders = _orders(one.spec.shape, two.spec.shape)
        if usual is not None and usual not in orders:
            orders = (usual, *orders)
        return self._followed(left, right, orders) or self._fitting(left, right, usual, orders)

    # --- by values ------------------------------------------------------------------------------------------------

    def agrees(self, left: int, right: int, layout: Layout) -> bool | None:
        """Do the values lie so? None where they are other values, or were not kept."""
        tensors = self._pairing.trees[0].tensor(left), self._pairing.trees[1].tensor(right)
        if alike(*tensors) < 0 or self._values[0](left) is None or self._values[1](right) is None:
            return None
        return self._fitting(left, right, layout, (layout,)) is not None

    def is_permuted(self, left: int, right: int) -> bool:
        """Is a transpose among the reshapes and transposes that made one of them?"""
        return any(
            operation(self._pairing.trees[which].calls[index]) == "permute"
            for which, tensor in enumerate((left, right))
            for _, calls in self._way(which, tensor)
            for index in calls
        )

    def _tried(self, left: int, right: int, usual: Layout | None, orders: tuple[Layout, ...]) -> Layout | None:
        return self._fitting(left, right, usual, orders) or usual

    def _fitting(self, left: int, right: int, usual: Layout | None, orders: tuple[Layout, ...]) -> Layout | None:
        """The first order of axes in which the values agree; None where there is none, or no values."""
        trees = self._pairing.trees
        tensors = trees[0].tensor(left), trees[1].tensor(right)
        if not orders or alike(*tensors) < 0:
            return None  # not the same elements, in whatever order
        arrays = self._values[0](left), self._values[1](right)
        if arrays[0] is None or arrays[1] is None:
            return None
        self.read += 1
        flat = np.asarray(arrays[0]).reshape(-1)
        places = np.unique(np.linspace(0, flat.size - 1, _SAMPLE).astype(np.int64))
        ours = _widened(flat[places])
        scale = float(np.abs(ours[np.isfinite(ours)]).max(initial=0.0))
        index = np.unravel_index(places, tensors[0].spec.shape)
        first = [layout for layout in orders if layout == usual]
        for layout in (*first, *(layout for layout in orders if layout != usual)):
            theirs = _widened(_picked(np.asarray(arrays[1]), layout, index, tensors[0].spec.shape))
            if _agree(ours, theirs, 2 * tolerance(*tensors) * scale):
                return layout
        return None

    # --- by the flow of data --------------------------------------------------------------------------------------

    def _followed(self, left: int, right: int, orders: tuple[Layout, ...]) -> Layout | None:
        """From the nearest tensors that were paired before, through the reshapes and transposes of both sides."""
        trees = self._pairing.trees
        shape = trees[0].tensor(left).spec.shape
        if not orders or int(np.prod(shape)) > _MOST_PLACES:
            return None
        ways = list(self._way(0, left)), list(self._way(1, right))
        for one, ours in ways[0]:
            for two, theirs in ways[1]:
                known = self._known.get((one, two))
                if known is None or (one, two) == (left, right):
                    continue
                shapes = trees[0].tensor(one).spec.shape, trees[1].tensor(two).spec.shape
                start = np.arange(int(np.prod(shapes[1]))).reshape(shapes[1])
                laid = _laid(start, known, shapes[0])
                places = None if laid is None else _moved(trees[0], laid, ours)
                there = _moved(trees[1], start, theirs)
                if places is None or there is None:
                    continue
                for layout in (AS_IT_IS, *orders):
                    found = _laid(there, layout, shape)
                    if found is not None and found.shape == places.shape and bool((found == places).all()):
                        return layout
        return None

    def _way(self, which: int, tensor: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """This tensor and those that it was made of by reshapes and transposes; each with the calls from there to here."""
        tree, makers = self._pairing.trees[which], self._pairing.flow(which).makers
        calls: tuple[int, ...] = ()
        for _ in range(_STEPS):
            yield tensor, calls
            made = makers.get(tensor, ())
            inner = [index for index in made if not tree.children[index]]
            if not inner or operation(tree.calls[inner[-1]]) not in SHAPING or not tree.inputs(inner[-1]):
                return
            calls = (inner[-1], *calls)
            tensor = tree.inputs(inner[-1])[0].tensor


@lru_cache(maxsize=65536)
def _orders(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[Layout, ...]:
    """All ways to lay a right tensor of the second shape on a left one of the first, by the order of its axes."""
    return tuple(_all_orders(one, two))


def _all_orders(one: tuple[int, ...], two: tuple[int, ...]) -> Iterator[Layout]:
    long = [axis for axis, size in enumerate(two) if size != 1]
    short = [axis for axis, size in enumerate(two) if size == 1]
    ours = tuple(size for size in one if size != 1)
    if len(long) != len(ours) or len(long) > _MOST_AXES or sorted(ours) != sorted(two[axis] for axis in long):
        return
    for axes in permutations(long):
        if tuple(two[axis] for axis in axes) != ours:
            continue
        if list(axes) == long:
            yield AS_IT_IS if one == two else Layout(None, True)
            continue
        if one == two:  # axes of one element stay where they are
            free = iter(axes)
            yield Layout(tuple(axis if size == 1 else next(free) for axis, size in enumerate(two)))
        else:
            order = (*axes, *short)
            yield Layout(order, tuple(two[axis] for axis in order) != one)


def _laid(array: _Array, layout: Layout, shape: tuple[int, ...]) -> _Array | None:
    if layout.axes is not None:
        array = array.transpose(layout.axes)
    if layout.reshaped:
        array = array.reshape(shape)
    return array if array.shape == shape else None


def _picked(array: _Array, layout: Layout, index: tuple[_Array, ...], shape: tuple[int, ...]) -> _Array:
    """These places of the laid out array, without laying all of it out."""
    turned = array if layout.axes is None else array.transpose(layout.axes)
    if turned.shape == shape:
        picked: _Array = turned[index] if shape else turned.reshape(-1)
        return picked
    places = np.ravel_multi_index(index, shape)
    return np.asarray(turned[np.unravel_index(places, turned.shape)])


def _widened(values: _Array) -> _Array:
    return values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)


def _agree(one: _Array, two: _Array, bound: float) -> bool:
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(two)):
        return False
    return bool((np.abs(one[finite] - two[finite]) <= bound).all())


def _moved(tree: CallTree, places: _Array, calls: tuple[int, ...]) -> _Array | None:
    """Array of places after these calls; None where that is not known."""
    for index in calls:
        call = tree.calls[index]
        shape = tree.tensor(tree.outputs(index)[0].tensor).spec.shape if tree.outputs(index) else None
        if shape is None:
            return None
        if operation(call) == "permute":
            axes = _axes(call.site.name, (*call.args[1:], *call.kwargs.values()), places.ndim)
            if axes is None:
                return None
            places = places.transpose(axes)
        elif places.size == int(np.prod(shape)):
            places = places.reshape(shape)
        if places.shape != shape:
            return None
    return places


def _axes(name: str, arguments: tuple[object, ...], rank: int) -> tuple[int, ...] | None:
    """The order of axes that a transpose asks for: two axes to exchange, or all of them in their order."""
    numbers: list[int] = []
    for value in arguments:
        items = [item for _, item in value.items] if isinstance(value, Nest) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            return None
        numbers += [item % rank for item in items if isinstance(item, int)]
    last = name.rpartition(".")[2].strip("_").lower()
    if not numbers:
        if last in ("t", "h", "transpose"):
            return tuple(range(rank))[::-1]
        return (*range(rank - 2), rank - 1, rank - 2) if last in ("mt", "mh", "adjoint") and rank >= 2 else None
    if last in ("movedim", "moveaxis"):
        return None
    swaps = last.startswith("swap") or (last == "transpose" and not name.startswith("mindspore"))
    if sorted(numbers) == [*range(rank)] and not swaps:
        return tuple(numbers)
    if len(numbers) != 2:
        return tuple(numbers) if sorted(numbers) == [*range(rank)] else None
    order = list(range(rank))
    order[numbers[0]], order[numbers[1]] = order[numbers[1]], order[numbers[0]]
    return tuple(order)
