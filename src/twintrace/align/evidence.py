"""Evidence that two tensors of a pair of calls belong together, without opening either.

    evidence.score(one, two, …)         a number, and the words for it; nothing above zero: they are no pair
    evidence.belong_together(17, 9)     were they paired before, under these names or others?
    evidence.partner(0, 17)             the tensor of the other side that an earlier match paired with it

Strongest first: equal values, tensors that are known to belong together, names that mean the same, shapes, position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model.pairs import Layout
from ..model.tensors import Tensor
from .arrangements import Arranger
from .layouts import layout_between
from .trees import CallTree, Slot
from .values import alike, numel, scale_of, tolerance

BY_SHAPE = "the only ones of this shape"


class Evidence:
    """The tensors of both sides, and which of them are known to belong together."""

    def __init__(
        self,
        left: CallTree,
        right: CallTree,
        reshaped: Callable[[int, int], Iterable[tuple[int, ...]]],
        root: Callable[[int, int], int],
        arranger: Arranger,
    ) -> None:
        self._left, self._right, self._reshaped, self._root, self._arranger = left, right, reshaped, root, arranger
        self._partners: tuple[dict[int, int], dict[int, int]] = {}, {}

    def partner(self, which: int, tensor: int) -> int | None:
        """The tensor of the other side that this one was paired with in an earlier match, first of all."""
        return self._partners[which].get(tensor)

    def remember(self, left: int, right: int) -> None:
        """These two belong together, unless an earlier match said otherwise; so do the numbers with which they came out of a call,
        where they came in anew (a list of tensors that a kernel has written to).
        """
        ours, theirs = self._partners
        ours.setdefault(left, right)
        theirs.setdefault(right, left)
        if left in self._left.same:
            ours.setdefault(self._left.same[left], right)
        if right in self._right.same:
            theirs.setdefault(self._right.same[right], left)

    def score(
        self, left: Slot, right: Slot, meant: bool, operation: str, named: bool, level: bool
    ) -> tuple[float, str]:
        """The evidence for two tensors, and the words for it. Nothing above zero: they are not a pair."""
        one, two = self._left.tensor(left.tensor), self._right.tensor(right.tensor)
        same_slot = left.slot == right.slot and left.part == right.part
        because = "" if left.slot == right.slot else "another name for the same" if meant else BY_SHAPE
        score = (3.0 if meant else 0.0) + 0.5 * (left.part == right.part) + 0.5 * level
        if named and same_slot:
            return 20.0, ""
        if kind(one) != kind(two) and (_says_nothing(one) or _says_nothing(two)):
            return 0.0, ""  # a truth value inside of vmap is no partner of a number
        if is_unknown(one) or is_unknown(two):
            return (score if meant else 0.0), because
        if not named and one.spec.shape != two.spec.shape and numel(one) == numel(two):
            layout = layout_between(one, two, operation)
            if layout is None or (layout == Layout(None, True) and self._turned(left.tensor, right.tensor)):
                return 0.0, ""  # the same elements perhaps, and nothing tells in which order
        likeness = alike(one, two)
        known = self.belong_together(left.tensor, right.tensor)
        score += _shapes(one, two)
        if likeness > 0:
            score += 6.0 + likeness
            because = because if meant else "the same values"
        elif known:
            score += 5.0
            because = because if meant else "they belong together elsewhere too"
        elif likeness < 0:
            score -= 0.5
            if not meant or kind(one) != kind(two):  # a mask of true and false is not one of 0 and -1e9
                return 0.0, ""
            if not named and (self.partner(0, left.tensor) is not None or self.partner(1, right.tensor) is not None):
                return 0.0, ""  # other values, and at least one of them belongs to another
        return score, because

    def belong_together(self, left: int, right: int) -> bool:
        """Were they paired in an earlier match, or what they are by other names: before a cast, after a reshape that is none?"""
        partner, other = self.partner(0, left), self.partner(1, right)
        if partner == right:
            return True
        if partner is not None and self._root(1, partner) == self._root(1, right):
            return True
        return other is not None and self._root(0, other) == self._root(0, left)

    def _turned(self, left: int, right: int) -> bool:
        """Does a reshape next to one of them show the other's shape with its axes in another order, and not as it is?

        Where shapes do not tell, because there are as many heads as positions, or a transpose has been before, the values do.
        """
        shapes = _long(self._left.tensor(left).spec.shape), _long(self._right.tensor(right).spec.shape)
        near = [_long(s) for s in self._reshaped(0, left)], [_long(s) for s in self._reshaped(1, right)]
        for which in (0, 1):
            other = shapes[1 - which]
            if any(sorted(shape) == sorted(other) for shape in near[which]):
                if other not in near[which]:
                    return True
                doubtful = len(set(other)) < len(other)
                break
        else:
            doubtful = self._arranger.is_permuted(left, right)
        return doubtful and self._arranger.agrees(left, right, Layout(None, True)) is False

    def is_known(self, left: int, right: int) -> bool:
        """True if two operands belong together by what they hold, or by earlier matches."""
        return self.belong_together(left, right) or alike(self._left.tensor(left), self._right.tensor(right)) > 0


def _shapes(one: Tensor, two: Tensor) -> float:
    if one.spec.shape == two.spec.shape:
        return 2.0
    if sorted(one.spec.shape) == sorted(two.spec.shape):
        return 1.0
    if numel(one) == numel(two):
        return 0.25
    return -6.0


def is_repeated(one: Tensor, two: Tensor) -> bool:
    """Is one of them the other, repeated: positions for each of a batch, a mask for each head? They do the same."""
    small, large = sorted((one, two), key=numel)
    if not numel(small) or numel(large) % numel(small):
        return False
    shapes = small.spec.shape, large.spec.shape
    longer = (1,) * (len(shapes[1]) - len(shapes[0])) + shapes[0]
    if len(longer) != len(shapes[1]) or any(a not in (1, b) for a, b in zip(longer, shapes[1], strict=True)):
        return False
    first, second = small.statistics, large.statistics
    if first is None or second is None:
        return True
    if None in (first.mean, second.mean, first.min, second.min, first.max, second.max):
        return first.min is second.min
    bound = tolerance(one, two) * max(scale_of(first), scale_of(second))
    return all(
        abs(float(a or 0) - float(b or 0)) <= bound
        for a, b in ((first.min, second.min), (first.max, second.max), (first.mean, second.mean))
    )


def kind(tensor: Tensor) -> str:
    """Truth values, whole numbers, complex numbers or floating point numbers: bf16 is one of these, for all its first letter."""
    dtype = tensor.spec.dtype
    return "b" if dtype == "b8" else "i" if dtype[0] in "iu" else "c" if dtype[0] == "c" else "f"


def _says_nothing(tensor: Tensor) -> bool:
    return tensor.statistics is None and tensor.fingerprint is None


def is_unknown(tensor: Tensor) -> bool:
    return tensor.missing is not None and tensor.statistics is None and tensor.fingerprint is None


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
