"""Pair the modules that hold others: by what they take, what they give, and what they hold.

left      body (Sequential)  holds conv, norm, relu       in x, out y
right     stem (ConvBlock)   holds conv, bn, act          in x', out y'      y and y' belong together: so do body and stem
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from ..model.pairs import Part
from ..model.sites import Kind
from ..operations.families import CONTAINERS
from .pairing import Pairing
from .tensors import Mapper
from .trees import CallTree, Slot
from .units import is_operation, operation

_ENOUGH = 4.0


class Containers:
    """Pairs the free modules of a pairing, once what they hold is paired."""

    def __init__(self, pairing: Pairing, mapper: Mapper) -> None:
        self._pairing, self._mapper = pairing, mapper
        self._links = list(pairing.links)
        self._held = [self._holdings(0), self._holdings(1)]

    def pair(self) -> None:
        """The best candidates first, each module once."""
        ranked = sorted(self._candidates(), key=lambda item: (-item[0], item[1] + item[2], item[1]))
        for score, one, two in ranked:
            if score >= _ENOUGH and self._pairing.is_free(0, one) and self._pairing.is_free(1, two):
                self._pairing.pair(one, two, "takes and gives the same tensors", round(min(0.95, score / 12), 2))

    def _candidates(self) -> Iterator[tuple[float, int, int]]:
        there: dict[tuple[str, int], list[int]] = {}
        for index in self._free(1):
            for key in self._keys(1, index):
                there.setdefault(key, []).append(index)
        for one in self._free(0):
            others = dict.fromkeys(two for key in self._keys(0, one) for two in there.get(key, ())[:16])
            for two in others:
                score = self._score(one, two)
                if score is not None:
                    yield score, one, two

    def _free(self, which: int) -> Iterator[int]:
        for index, call in enumerate(self._pairing.trees[which].calls):
            if call.site.kind is Kind.MODULE and self._pairing.is_free(which, index):
                yield index

    def _keys(self, which: int, index: int) -> Iterator[tuple[str, int]]:
        """Features that it may share with its partner: the first and last call that it holds, its outputs."""
        held = self._held[which].get(index)
        if held:
            yield "first held", min(held)
            yield "last held", max(held)
        for slot in self._pairing.trees[which].outputs(index)[:4]:
            number = self._pairing.classes.of(which, slot.tensor)
            if number >= 0:
                yield "values", number
            partner = slot.tensor if which else self._mapper.partner(0, slot.tensor)
            if partner is not None:
                yield "tensor", partner

    def _score(self, left: int, right: int) -> float | None:
        trees = self._pairing.trees
        one, two = trees[0].calls[left], trees[1].calls[right]
        if one.site.phase is not two.site.phase:
            return None
        if self._pairing.elsewhere(left, right):
            return None
        ours, theirs = self._held[0].get(left, frozenset()), self._held[1].get(right, frozenset())
        common = len(ours & theirs)
        if ours and theirs and not common:
            return None
        same = operation(one) == operation(two)
        own = not (self._holds_modules(0, left) or self._holds_modules(1, right))
        if not same and own and all(is_operation(call) and operation(call) not in CONTAINERS for call in (one, two)):
            return None
        arguments = _arguments(trees[0], left), _arguments(trees[1], right)
        if self._elsewhere(*arguments):
            return None
        given = self._common(trees[0].outputs(left)[:4], trees[1].outputs(right)[:4])
        taken = self._common(*arguments)
        if not given and not taken:
            return None
        if common and not given and not any(map(self._is_whole, ours & theirs, repeat((left, right)))):
            return None  # each holds a part of what belongs together: one weight of queries, keys and values beside the queries'
        score = 3.0 * (given + taken)
        score += 4.0 * common / max(1, len(ours | theirs))
        score += 1.5 if same else 0.0
        score += 0.75 if one.site.name.rpartition(".")[2] == two.site.name.rpartition(".")[2] else 0.0
        partner_of_parent = self._pairing.partner(0, trees[0].parent[left])
        score += 0.5 if partner_of_parent is not None and partner_of_parent == trees[1].parent[right] else 0.0
        return score

    def _is_whole(self, number: int, modules: tuple[int, int]) -> bool:
        """True if all calls of a link are inside of these two modules."""
        link = self._links[number]
        return all(
            any(up == modules[which] for up in self._around(which, index))
            for which in (0, 1)
            for index in link.side(which)
        )

    def _around(self, which: int, index: int) -> Iterator[int]:
        parents = self._pairing.trees[which].parent
        while (index := parents[index]) >= 0:
            yield index

    def _holds_modules(self, which: int, index: int) -> bool:
        tree = self._pairing.trees[which]
        return any(tree.calls[child].site.kind is Kind.MODULE for child in tree.children[index])

    def _elsewhere(self, left: Sequence[Slot], right: Sequence[Slot]) -> bool:
        """Do they take nothing in common, although each side has what the other takes?"""
        classes = self._pairing.classes
        ours, theirs = ({classes.of(w, slot.tensor) for slot in side} - {-1} for w, side in ((0, left), (1, right)))
        return bool(ours and theirs) and not ours & theirs and any(map(classes.shared, ours | theirs))

    def _common(self, left: Sequence[Slot], right: Sequence[Slot]) -> float:
        """Which share of these tensors belongs together?"""
        ours, theirs = [slot.tensor for slot in left], [slot.tensor for slot in right]
        if not ours or not theirs:
            return 0.0
        numbers = {self._pairing.classes.of(1, tensor) for tensor in theirs} - {-1}
        found = sum(
            1 for t in ours if self._pairing.classes.of(0, t) in numbers or self._mapper.partner(0, t) in theirs
        )
        return found / max(len(ours), len(theirs))

    def _holdings(self, which: int) -> dict[int, frozenset[int]]:
        """The links of what each module holds, at any depth."""
        tree = self._pairing.trees[which]
        number = {id(link): count for count, link in enumerate(self._links)}
        found: dict[int, set[int]] = {}
        for index in range(len(tree) - 1, -1, -1):
            up = tree.parent[index]
            if up < 0:
                continue
            link = self._pairing.link(which, index)
            here = found.setdefault(up, set())
            if link is not None:
                here.add(number[id(link)])
            here |= found.get(index, set())
        return {index: frozenset(links) for index, links in found.items()}


def _arguments(tree: CallTree, index: int) -> list[Slot]:
    return [slot for slot in tree.inputs(index) if slot.part is Part.INPUT]
