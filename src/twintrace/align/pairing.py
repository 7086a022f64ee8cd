"""The pairs found so far, each with its reason; and the flow of data on both sides.

    pairing.pair(3, 5, "same parameters", 0.95)      calls by position
    pairing.partner(0, 3)                            5
    pairing.flow[0].makers[17]                       the calls that put out tensor 17 of the left side, the innermost last
    pairing.flow[1].users[9]                         the calls that take tensor 9 of the right side

`which` is 0 for the left side and 1 for the right one throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from ..model.pairs import Part
from ..model.sites import Kind
from ..operations.families import SHAPING
from .classes import Classes
from .producers import Flow, flow_of, flowing
from .trees import CallTree, Slot
from .units import hands_on, is_container, is_parameter, main_parameter, operation
from .values import in_other_places, is_constant, numel

_PRODUCTS = frozenset(("linear", "matmul", "conv", "conv_transpose", "einsum", "embedding"))
_OF_TWO = frozenset(("mul", "add", "sub", "div"))
"""Different operations that may do the same with the same parameters."""
_WRAPPED = 4
"""A module with more functions inside than this is more than a wrapper."""


@dataclass(frozen=True)
class Link:
    """Calls that belong together, by position. One each as a rule."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    because: str
    confidence: float
    named: bool = False

    def side(self, which: int) -> tuple[int, ...]:
        """The calls of one side."""
        return self.right if which else self.left


class Pairing:
    """Two trees and the links between them."""

    def __init__(
        self, left: CallTree, right: CallTree, complete: Callable[[Pairing, Link], Link] = lambda pairing, link: link
    ) -> None:
        self.trees = left, right
        self.complete = complete
        self.links: list[Link] = []
        self.left_out: tuple[set[int], set[int]] = set(), set()
        self.wrappers: tuple[set[int], set[int]] = set(), set()
        self._link: tuple[dict[int, Link], dict[int, Link]] = {}, {}
        self._flow: list[Flow | None] = [None, None]
        self._classes: Classes | None = None
        self._flowing: list[tuple[set[int], set[int]] | None] = [None, None]
        self._given: tuple[Counter[int], Counter[int]] | None = None
        """Calls that put out each value."""
        self._gives: tuple[dict[int, frozenset[int]], dict[int, frozenset[int]]] = {}, {}
        self._takes: tuple[dict[int, frozenset[int]], dict[int, frozenset[int]]] = {}, {}
        self._hands_on: tuple[dict[int, bool], dict[int, bool]] = {}, {}

    # --- links --------------------------------------------------------------------------------------------------

    def pair(self, left: int, right: int, because: str, confidence: float, *, named: bool = False) -> None:
        """These two belong together."""
        self.bind(Link((left,), (right,), because, confidence, named))

    def bind(self, link: Link, *, as_it_is: bool = False) -> None:
        """These calls belong together; none of them may belong to others already.

        Beside functions, a module that only wraps a function or a few gives its place to them. `as_it_is`: what completes one
        side of it (`completions.py`) is not looked for.
        """
        kinds = [{self.trees[which].calls[index].site.kind for index in link.side(which)} for which in (0, 1)]
        if not link.named and (Kind.MODULE in kinds[0]) != (Kind.MODULE in kinds[1]):
            link = replace(link, left=self._unwrapped(0, link.left), right=self._unwrapped(1, link.right))
        link = link if as_it_is else self.complete(self, link)
        self.links.append(link)
        for which in (0, 1):
            for index in link.side(which):
                assert index not in self._link[which]
                self._link[which][index] = link

    def part(self, links: Iterable[Link]) -> None:
        """These calls do not belong together after all."""
        gone = {id(link) for link in links}
        self.links = [link for link in self.links if id(link) not in gone]
        for known in self._link:
            for index in [index for index, link in known.items() if id(link) in gone]:
                del known[index]

    def _unwrapped(self, which: int, members: tuple[int, ...]) -> tuple[int, ...]:
        found: list[int] = []
        for index in members:
            inner = self._inside(which, index)
            if inner:
                self.wrappers[which].add(index)
            found.extend(inner or [index])
        return tuple(sorted(found))

    def _inside(self, which: int, index: int) -> list[int]:
        """The function that a module hands its arguments and takes its result from; or all its functions, if they are few."""
        tree = self.trees[which]
        inside = tree.children[index]
        free = all(self.is_free(which, child) and not tree.children[child] for child in inside)
        functions = all(tree.calls[child].site.kind is not Kind.MODULE for child in inside)
        if not inside or not free or not functions:
            return []
        gives = {slot.tensor for slot in tree.outputs(index)}
        takes = {slot.tensor for slot in tree.inputs(index) if slot.part is Part.INPUT}
        for child in reversed(inside):
            ours = {slot.tensor for slot in tree.inputs(child)}
            if takes <= ours and gives == {slot.tensor for slot in tree.outputs(child)}:
                return [child]
        working = [child for child in inside if tree.outputs(child)]
        return working if len(working) <= _WRAPPED else []

    def link(self, which: int, index: int) -> Link | None:
        """The link that a call belongs to."""
        return self._link[which].get(index)

    def is_free(self, which: int, index: int) -> bool:
        """Has it no partner yet, and may it have one?"""
        return not (index in self._link[which] or index in self.left_out[which] or index in self.wrappers[which])

    def has_free(self, which: int) -> bool:
        """May any call of this side still have a partner?"""
        settled = len(self._link[which]) + len(self.left_out[which]) + len(self.wrappers[which])
        return settled < len(self.trees[which])

    def partner(self, which: int, index: int) -> int | None:
        """The call that belongs to it, where it is one."""
        link = self._link[which].get(index)
        if link is None or len(link.left) != 1 or len(link.right) != 1:
            return None
        return link.side(1 - which)[0]

    # --- flow ---------------------------------------------------------------------------------------------------

    def flow(self, which: int) -> Flow:
        """Makers and users of the tensors of one side."""
        found = self._flow[which]
        if found is None:
            found = self._flow[which] = flow_of(self.trees[which])
        return found

    @property
    def classes(self) -> Classes:
        """Numbers for the values of both sides."""
        if self._classes is None:
            self._classes = Classes(*self.trees, (self._tensors(0), self._tensors(1)))
        return self._classes

    def _tensors(self, which: int) -> Iterable[int]:
        tree = self.trees[which]
        return (slot.tensor for index in range(len(tree)) for slot in tree.slots(index) if not slot.part.backward)

    def hands_on(self, which: int, index: int) -> bool:
        """Does this call only hand on what it is given?"""
        known = self._hands_on[which]
        if index not in known:
            known[index] = hands_on(self.trees[which], index, self.classes, which)
        return known[index]

    def flows(self, which: int, tensor: int) -> bool:
        """Does it come from data or parameters, rather than from positions, sizes and questions: is it no mask?"""
        return tensor in self._flow_of(which)[0]

    def decides(self, which: int, tensor: int) -> bool:
        """Is it an answer or an index that was computed of such values, as the experts that a router chooses?"""
        return tensor in self._flow_of(which)[1]

    def _flow_of(self, which: int) -> tuple[set[int], set[int]]:
        found = self._flowing[which]
        if found is None:
            found = self._flowing[which] = flowing(self.trees[which])
        return found

    def is_of_flow(self, which: int, index: int) -> bool:
        """Does a call put out anything that comes from data or parameters?"""
        return any(self.flows(which, slot.tensor) for slot in self.trees[which].outputs(index))

    def gives(self, which: int, index: int) -> frozenset[int]:
        """The numbers of the values that a call puts out, as far as they tell anything."""
        return self._numbers(which, index, self._gives[which], self.trees[which].outputs)

    def takes(self, which: int, index: int) -> frozenset[int]:
        """The numbers of the values that go into it."""
        return self._numbers(which, index, self._takes[which], self.trees[which].inputs)

    def _numbers(
        self, which: int, index: int, known: dict[int, frozenset[int]], slots: Callable[[int], Iterable[Slot]]
    ) -> frozenset[int]:
        found = known.get(index)
        if found is None:
            of = self.classes.of
            found = known[index] = frozenset([n for slot in slots(index) if (n := of(which, slot.tensor)) >= 0])
        return found

    def key(self, which: int, tensor: int) -> object:
        """Something that tells the values of a parameter: a bias of zeros is a bias of zeros as well."""
        value = self.classes.of(which, tensor)
        if value >= 0:
            return value
        known = self.trees[which].tensor(tensor)
        size, statistics = numel(known), known.statistics
        return (size, statistics.min) if statistics is not None and is_constant(statistics, size) else (which, tensor)

    def same_origin(self, left: int, right: int) -> bool:
        """Do two tensors hold the same values, or have calls that belong together made them?"""
        value = self.classes.of(0, left)
        if value >= 0 and value == self.classes.of(1, right):
            return True
        makers = [
            self.flow(which).makers.get(self.source(which, tensor), ()) for which, tensor in ((0, left), (1, right))
        ]
        links = [{id(self._link[which].get(index)) for index in makers[which]} - {id(None)} for which in (0, 1)]
        return bool(links[0] & links[1])

    def elsewhere(self, left: int, right: int) -> bool:
        """Do these calls put out other values than each other, which the other side has in another place?"""
        found = self.gives(0, left), self.gives(1, right)
        if found[0] & found[1]:
            return False
        known = all(found[which] or self._is_constant(which, index) for which, index in ((0, left), (1, right)))
        return known and any(self._has_place(which, value) for which in (0, 1) for value in found[which])

    def _has_place(self, which: int, value: int) -> bool:
        """True if the other side puts a value out in as many calls as this one: a table that one side makes in every layer, and the
        other in the first alone, has no place there for the rest.
        """
        if not self.classes.shared(value):
            return False
        if self._given is None:
            self._given = (self._counted(0), self._counted(1))
        return self._given[which][value] <= self._given[1 - which][value]

    def _counted(self, which: int) -> Counter[int]:
        tree = self.trees[which]
        innermost = (index for index in range(len(tree)) if not tree.children[index])
        return Counter(value for index in innermost for value in self.gives(which, index))

    def _is_constant(self, which: int, index: int) -> bool:
        """Is it known that all numbers that a call puts out are one and the same?"""
        tree = self.trees[which]
        given = [tree.tensor(slot.tensor) for slot in tree.outputs(index)]
        return bool(given) and all(t.statistics is not None and is_constant(t.statistics, numel(t)) for t in given)

    def conflict(self, left: int, right: int) -> bool:
        """Do the values say that these two are not the same step, although their operations or results are alike?

        They put out what the other side has elsewhere. Or each takes something that its partner does not, and the other side
        has it: a sum of other terms. Or they put out the same and take what only their own side has: runs that have parted
        do not meet again, so these two get there by different ways, and the ways are to be compared as a whole. Different
        operations must take just the same. A square is no product with something else.
        """
        if self.elsewhere(left, right) or self._takes_twice(0, left) != self._takes_twice(1, right):
            return True
        takes = self.takes(0, left), self.takes(1, right)
        only = takes[0] - takes[1], takes[1] - takes[0]
        if operation(self.trees[0].calls[left]) != operation(self.trees[1].calls[right]):
            if self.hands_on(0, left) or self._size(0, left) != self._size(1, right):
                return True
            return bool(only[0] or only[1]) and not self._same_product(left, right)
        if self._holds(0, left) or self._holds(1, right):  # (ab)c beside a(bc) has a result of another size
            return self._size(0, left) != self._size(1, right) and self._takes_others(left, right)
        if not only[0] or not only[1]:
            return False
        same = self.gives(0, left) & self.gives(1, right)
        return bool(same) or any(map(self.classes.shared, only[0] | only[1]))

    def _takes_others(self, left: int, right: int) -> bool:
        """True if each takes what its partner does not, of values on both sides. Weights of one size are told by bits."""
        taken: tuple[set[str | int], set[str | int]] = set(), set()
        for which, index in ((0, left), (1, right)):
            for slot in self.trees[which].inputs(index):
                bits, number = self.trees[which].tensor(slot.tensor).fingerprint, self.classes.of(which, slot.tensor)
                if bits is not None and all(bits in tree.operand_bits for tree in self.trees):
                    taken[which].add(bits)
                elif number >= 0:
                    taken[which].add(number)
        only = taken[0] - taken[1], taken[1] - taken[0]
        return all(only) and all(isinstance(value, str) or self.classes.shared(value) for value in only[0] | only[1])

    def is_shuffled(self, left: int, right: int) -> bool:
        """True if tensors of one shape have alike statistics and other values in their places: two outputs of norms, in 16 bits."""
        ours, theirs = self.trees[0].tensor(left), self.trees[1].tensor(right)
        return ours.spec.shape == theirs.spec.shape and in_other_places(ours, theirs)

    def _takes_twice(self, which: int, index: int) -> bool:
        """Does it combine one value with itself, and with nothing else?"""
        tree = self.trees[which]
        if operation(tree.calls[index]) not in _OF_TWO:
            return False
        taken = [slot.tensor for slot in tree.inputs(index) if slot.part is Part.INPUT]
        numbers = {self.classes.of(which, number) for number in taken}
        return len(taken) == 2 and (len(set(taken)) == 1 or (len(numbers) == 1 and min(numbers) >= 0))

    def _holds(self, which: int, index: int) -> bool:
        tree = self.trees[which]
        return any(is_parameter(tree, index, slot) for slot in tree.inputs(index))

    def _same_product(self, left: int, right: int) -> bool:
        """A convolution over single points and a linear layer are one, if they hold the same parameters.

        A norm, and the product with its weight at the end of a norm by hand, are not.
        """
        if not all(operation(s.calls[i]) in _PRODUCTS for s, i in zip(self.trees, (left, right), strict=True)):
            return False
        numbers = []
        for which, index in ((0, left), (1, right)):
            tree = self.trees[which]
            slot = main_parameter(tree, index, operation(tree.calls[index]))
            numbers.append(-1 if slot is None else self.classes.of(which, slot.tensor))
        return numbers[0] == numbers[1] >= 0

    def _size(self, which: int, index: int) -> int:
        tree = self.trees[which]
        return sum(prod(tree.tensor(slot.tensor).spec.shape) for slot in tree.outputs(index)[:1])

    def takers(self, which: int, tensor: int) -> set[Link | int]:
        """Consumers of a tensor, or of what casts, reshapes and the like make of it: links, and the positions of free calls."""
        tree, users = self.trees[which], self.flow(which).users
        found: set[Link | int] = set()
        waiting, seen = [tensor], {tensor}
        while waiting:
            for index in users.get(waiting.pop(), ()):
                if tree.children[index]:
                    continue  # what is inside it takes the tensor
                link = self._around(which, index)
                if link is None and self.hands_on(which, index):
                    fresh = {slot.tensor for slot in tree.outputs(index)} - seen
                    seen |= fresh
                    waiting.extend(fresh)
                else:
                    found.add(index if link is None else link)
        return found

    def _around(self, which: int, index: int) -> Link | None:
        """The link of a call, or of the operation around it."""
        up = index
        while up >= 0:
            link = self._link[which].get(up)
            if link is not None:
                return link if up == index or not is_container(self.trees[which], up) else None
            up = self.trees[which].parent[up]
        return None

    def reshaped(self, which: int, tensor: int) -> Iterator[tuple[int, ...]]:
        """The shapes that a tensor has before and after reshapes next to it."""
        tree, flow = self.trees[which], self.flow(which)
        for index in (*flow.makers.get(tensor, ()), *flow.users.get(tensor, ())[:8]):
            if operation(tree.calls[index]) == "reshape":
                for slot in (*tree.inputs(index), *tree.outputs(index)):
                    if slot.tensor != tensor:
                        yield tree.tensor(slot.tensor).spec.shape

    def is_supported(self, left: int, right: int) -> bool:
        """Does anything but its place speak for a pair whose values are known and differ: do they take the same, or what
        calls that belong together have made? So it is with all calls after two runs have parted. Where two runs have no value in
        common, weights and data included, there is nothing to speak for a pair but its place.
        """
        if not self.classes.any_shared:
            return True
        given = self.gives(0, left), self.gives(1, right)
        if not given[0] or not given[1] or given[0] & given[1]:
            return True
        takes: list[set[object]] = []
        for which, index in ((0, left), (1, right)):
            tree = self.trees[which]
            found: set[object] = set()
            for slot in tree.inputs(index):
                tensor = self.source(which, slot.tensor)
                found.add(("values", self.classes.of(which, tensor)))
                for maker in self.flow(which).makers.get(tensor, ()):
                    found.add(("link", self._link[which].get(maker)))
            takes.append(found - {("values", -1), ("link", None)})
        return bool(takes[0] & takes[1]) or not self.trees[0].inputs(left) or not self.trees[1].inputs(right)

    def root(self, which: int, tensor: int) -> int:
        """The tensor that this one is by other names: what casts, reshapes and the like were given, with partners or without."""
        tree, makers = self.trees[which], self.flow(which).makers
        for _ in range(64):
            made = makers.get(tensor)
            if not made or operation(tree.calls[made[-1]]) not in SHAPING or not tree.inputs(made[-1]):
                return tensor
            tensor = tree.inputs(made[-1])[0].tensor
        return tensor

    def source(self, which: int, tensor: int) -> int:
        """The tensor that this one was made of by casts, reshapes and the like that have no partner."""
        tree, makers = self.trees[which], self.flow(which).makers
        for _ in range(64):
            made = makers.get(tensor)
            if not made or not self.is_free(which, made[-1]) or not self.hands_on(which, made[-1]):
                return tensor
            into = tree.inputs(made[-1])
            if not into:
                return tensor
            tensor = into[0].tensor
        return tensor
