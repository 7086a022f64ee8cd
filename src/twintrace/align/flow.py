"""Pair calls by the flow of data: what takes the same tensors, or gives them to the same calls, and does the same.

    left     conv ─▶ relu ─▶ fc          conv and fc belong together on both sides, so the two relus between them do too,
    right    conv ─▶ ReLU ─▶ Dense       whatever they are called and wherever they stand in the record

Casts, reshapes and the like that only one side has are looked through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from ..model.pairs import Part, TensorPair
from ..model.records import Call
from ..model.sites import Kind
from ..operations.families import MAKING, MOVING, SHAPING
from .mappings import Mapping
from .pairing import Link, Pairing
from .tensors import Mapped, Mapper
from .trees import OUT, CallTree
from .units import is_operation, is_parameter, main_parameter, operation
from .values import is_constant, numel

_NEAR = 64  # users of one tensor that are looked at
_TURNS = 3  # times that links with tensors left over are visited again: each finds what the one before has made known


class Flowing:
    """Follows the data from pair to pair. `mapped` has the tensors of every link that was visited."""

    def __init__(self, pairing: Pairing, mapper: Mapper, units: tuple[set[int], set[int]], mapping: Mapping) -> None:
        self.mapping = mapping
        self._pairing, self._mapper, self.units = pairing, mapper, units
        self.shared_weights = False
        self.mapped: dict[int, Mapped] = {}
        self._last = False

    def follow(self) -> None:
        """Visit the links that are new, and those that follow from them, until nothing new is found."""
        self._visit(deque(link for link in self._pairing.links if id(link) not in self.mapped), self._near())

    def follow_again(self) -> None:
        """Once everything else is found: visit the links again that have tensors left over on both sides, and pair what is alone of
        its kind around them: also behind a slice or a concatenation without partner, and with another second operand (labels
        that are not shifted).
        """
        self._last = True
        for _ in range(_TURNS):
            before = len(self._pairing.links)
            for link in self._pairing.links:
                mapped = self.mapped.get(id(link))
                if mapped is None or (mapped.only_left and mapped.only_right) or self._borders_on_free(mapped):
                    self.mapped.pop(id(link), None)
            self.follow()
            if len(self._pairing.links) == before:
                break
        self._last = False

    def _borders_on_free(self, mapped: Mapped) -> bool:
        """Does a result of these go to a call without a partner, on both sides?"""
        pairing = self._pairing
        return any(
            all(
                any(
                    index in self.units[which] and pairing.is_free(which, index)
                    for index in pairing.flow(which).users.get(t, ())
                )
                for which, t in ((0, pair.left), (1, pair.right))
            )
            for pair in mapped.pairs
            if pair.part in OUT
        )

    def following(self) -> Callable[[Link], None]:
        """A function that does the same from one new link; the units are to stay as they are while it is used."""
        near = self._near()
        return lambda link: self._visit(deque((link,)), near)

    def _visit(self, waiting: deque[Link], near: tuple[set[int], set[int]]) -> None:
        while waiting:
            link = waiting.popleft()
            mapped = self.mapped[id(link)] = self._map(link)
            before = len(self._pairing.links)
            for pair in mapped.pairs:
                if pair.left in near[0] and pair.right in near[1] and not pair.part.backward:
                    self._forward(pair.left, pair.right)
                    self._backward(pair.left, pair.right)
            waiting.extend(self._pairing.links[before:])

    def _near(self) -> tuple[set[int], set[int]]:
        """The tensors that free units take or put out: from any others there is nothing to be found."""
        pairing = self._pairing
        ours, theirs = (
            {
                slot.tensor
                for index in self.units[which]
                if pairing.is_free(which, index)
                for slot in pairing.trees[which].slots(index)
                if not slot.part.backward
            }
            for which in (0, 1)
        )
        return ours, theirs

    def _map(self, link: Link) -> Mapped:
        trees = self._pairing.trees
        slots = [trees[which].edge(link.side(which), self._met_inside(which, link)) for which in (0, 1)]
        call = trees[0].calls[link.left[0]]
        asked = self.mapping.tensors
        forced = (asked.get(str(call.site)) or asked.get(call.site.name)) if asked else None
        other = trees[1].calls[link.right[0]]
        functions = call.site.name, other.site.name
        same = call.site.type == other.site.type if call.site.kind is Kind.MODULE else functions[0] == functions[1]
        what = operation(call)
        computes = (
            len(link.left) == len(link.right) == 1
            and what == operation(trees[1].calls[link.right[0]])
            and is_operation(call)
            and what not in SHAPING | MOVING
        )
        ends = call.parent is None and call.site.kind is Kind.MODULE
        mapped = self._mapper.map(
            slots[0],
            slots[1],
            what,
            named=link.named,
            forced=forced,
            functions=functions,
            computes=computes,
            ends=ends,
            same=same,
        )
        return mapped if not self.mapping.layouts else mapped._replace(pairs=tuple(self._laid(call, mapped)))

    def _met_inside(self, which: int, link: Link) -> Callable[[int], bool]:
        """Which results of this side does the other side's region have too? Where both are several calls deep, they may meet."""
        if len(link.left) == len(link.right) == 1 or link.named:
            return lambda tensor: False
        classes, tree = self._pairing.classes, self._pairing.trees[1 - which]
        made = {slot.tensor for index in link.side(1 - which) for slot in tree.outputs(index)}
        there = {classes.of(1 - which, tensor) for tensor in made} - {-1}
        there -= {
            classes.of(which, slot.tensor)
            for slot in self._pairing.trees[which].edge(link.side(which))
            if slot.part in OUT
        }
        return lambda tensor: classes.of(which, tensor) in there or self._mapper.expected[which].get(tensor) in made

    def _laid(self, call: Call, mapped: Mapped) -> Iterator[TensorPair]:
        """The pairs with the layouts that the mapping asks for."""
        for pair in mapped.pairs:
            owner = f"{call.site.name}." if call.site.name else ""
            layout = self.mapping.layouts.get(owner + pair.left_slot) if pair.part is Part.PARAMETER else None
            yield pair if layout is None else replace(pair, layout=layout, because="the mapping says so")

    def _forward(self, left: int, right: int) -> None:
        """Whatever takes these two tensors and is alone of its kind."""
        users = self._by_operation(0, left), self._by_operation(1, right)
        for what in users[0].keys() & users[1].keys():
            if len(users[0][what]) == len(users[1][what]) == 1:
                one, two = users[0][what][0], users[1][what][0]
                if self._begins_with_constant(0, one, left) == self._begins_with_constant(1, two, right):
                    self._pair(one, two, f"{what} of the same tensor", takes_the_same=True)

    def _begins_with_constant(self, which: int, index: int, tensor: int) -> bool:
        """Is the first operand a constant, and not this tensor? One side fills zeros where the mask is, the other its scores."""
        tree = self._pairing.trees[which]
        first = next((slot.tensor for slot in tree.inputs(index)), tensor)
        known = tree.tensor(first)
        return first != tensor and known.statistics is not None and is_constant(known.statistics, numel(known))

    def _by_operation(self, which: int, tensor: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        tree = self._pairing.trees[which]
        for index in dict.fromkeys(self._users(which, tensor)):
            what = operation(tree.calls[index])
            if what == "add" and any(is_parameter(tree, index, slot) for slot in tree.inputs(index)):
                what = "addition of a bias"
            found.setdefault(what, []).append(index)
        return found

    def _users(self, which: int, tensor: int) -> Iterator[int]:
        """Free units that take this tensor, or what casts, reshapes and the like have made of it."""
        pairing, tree = self._pairing, self._pairing.trees[which]
        waiting, seen = [tensor], {tensor}
        while waiting and len(seen) < _NEAR:
            for index in pairing.flow(which).users.get(waiting.pop(), ())[:_NEAR]:
                if index not in self.units[which] or not pairing.is_free(which, index):
                    continue
                if not pairing.hands_on(which, index) and not (
                    self._last and operation(tree.calls[index]) in MOVING and tree.inputs(index)[0].tensor in seen
                ):
                    yield index
                    continue
                fresh = {slot.tensor for slot in tree.outputs(index)} - seen
                seen |= fresh
                waiting.extend(fresh)

    def _backward(self, left: int, right: int) -> None:
        """Whatever made these two tensors."""
        makers = [self._maker(0, left), self._maker(1, right)]
        if None not in makers:
            one, two = makers
            assert one is not None
            assert two is not None
            if self._same_operation(one, two):
                self._pair(one, two, "made what the same call takes")

    def _maker(self, which: int, tensor: int) -> int | None:
        made = self._pairing.flow(which).makers.get(self._pairing.source(which, tensor), ())
        free = [i for i in made if i in self.units[which] and self._pairing.is_free(which, i)]
        return free[-1] if free and not self._pairing.hands_on(which, free[-1]) else None

    def _same_operation(self, left: int, right: int) -> bool:
        one, two = (operation(tree.calls[i]) for tree, i in zip(self._pairing.trees, (left, right), strict=True))
        return one == two

    def _pair(self, left: int, right: int, because: str, *, takes_the_same: bool = False) -> None:
        trees = self._pairing.trees
        if not (self._pairing.is_free(0, left) and self._pairing.is_free(1, right)):
            return
        if trees[0].calls[left].site.phase is not trees[1].calls[right].site.phase:
            return
        if self._other_weights(left, right):
            return
        if _size(trees[0], left) != _size(trees[1], right) and not self._may_differ_in_size(left, right):
            return
        only = self._last and takes_the_same and self._same_operation(left, right)
        if self._pairing.elsewhere(left, right) if only else self._pairing.conflict(left, right):
            return
        self._pairing.pair(left, right, because, 0.6 if self._last else 0.8)

    def _may_differ_in_size(self, left: int, right: int) -> bool:
        """Is it an operation whose settings decide the size of its result? Two slices of one tensor are two things."""
        call = self._pairing.trees[0].calls[left]
        return is_operation(call) and operation(call) not in MOVING | MAKING | SHAPING

    def _other_weights(self, left: int, right: int) -> bool:
        if not self.shared_weights:
            return False
        numbers = []
        for which, index in ((0, left), (1, right)):
            tree = self._pairing.trees[which]
            slot = main_parameter(tree, index, operation(tree.calls[index]))
            numbers.append(-1 if slot is None else self._pairing.classes.of(which, slot.tensor))
        return min(numbers) >= 0 and numbers[0] != numbers[1]


def _size(tree: CallTree, index: int) -> tuple[int, ...]:
    return tuple(prod(tree.tensor(slot.tensor).spec.shape) for slot in tree.outputs(index)[:1])
