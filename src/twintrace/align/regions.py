"""Find where one side does in one call, or in other calls, what the other does in several.

    left     q, k, v ─▶ attention ─────────────────────────────────▶ proj
    right    q, k, v ─▶ matmul ─▶ div ─▶ softmax ─▶ dropout ─▶ matmul ─▶ proj
                        └─────────────── one region ────────────────┘

A region is made of calls without a partner that give each other tensors which the other side does not have. Two regions
belong together if they put out the same tensors (by value, or because the same calls take them) and take the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .tensors import Mapper
from .units import inputs, is_parameter, outputs
from .webs import Bond, Web

_LARGE = 12
"""More calls than this on a side are a region only if their results have equal values."""


class Regions:
    """Regions of the free units of a web."""

    def __init__(self, web: Web, mapper: Mapper, units: tuple[set[int], set[int]]) -> None:
        self._web, self._mapper, self._units = web, mapper, units

    def bind(self) -> None:
        """Bind the regions that belong together."""
        sides = [self._components(0), self._components(1)]
        makers: dict[int, list[int]] = {}
        by_class: dict[int, list[int]] = {}
        for number, members in enumerate(sides[1]):
            for tensor in self._results(1, members):
                makers.setdefault(tensor, []).append(number)
                by_class.setdefault(self._web.classes.of(1, tensor), []).append(number)
        for members in sides[0]:
            self._find(members, sides[1], makers, by_class)

    def _find(
        self, members: list[int], others: list[list[int]], makers: dict[int, list[int]], by_class: dict[int, list[int]]
    ) -> None:
        linked: dict[int, bool] = {}
        for tensor in self._results(0, members):
            number = self._web.classes.of(0, tensor)
            for other in by_class.get(number, ()) if number >= 0 else ():
                linked[other] = True
            partner = self._mapper.partner(0, tensor)
            for other in makers.get(partner, ()) if partner is not None else ():
                linked.setdefault(other, False)
        chosen = [other for other in linked if self._can_be_bound(1, others[other])]
        if len(chosen) != 1 or not self._can_be_bound(0, members):
            return
        equal = linked[chosen[0]]
        theirs = others[chosen[0]]
        if not self._takes_the_same(members, theirs):
            return
        if not equal and max(len(members), len(theirs)) > _LARGE:
            return
        ours, theirs = sorted(members), sorted(theirs)
        because = (
            "takes and gives the same tensors"
            if len(ours) == len(theirs) == 1
            else f"{_calls(ours)} here, {_calls(theirs)} there, between the same tensors"
        )
        self._web.bind(Bond(tuple(ours), tuple(theirs), because, 0.85 if equal else 0.5))

    def _can_be_bound(self, which: int, members: list[int]) -> bool:
        phases = {self._web.strands[which].calls[index].site.phase for index in members}
        return (
            len(phases) == 1
            and all(self._web.is_free(which, index) for index in members)
            and any(not self._web.hands_on(which, index) for index in members)
        )

    def _components(self, which: int) -> list[list[int]]:
        """Free units that are connected by tensors without a counterpart."""
        web = self._web
        free = [index for index in sorted(self._units[which]) if web.is_free(which, index)]
        leader = {index: index for index in free}

        def find(index: int) -> int:
            while leader[index] != index:
                leader[index] = leader[leader[index]]
                index = leader[index]
            return index

        flow = web.flow(which)
        for index in free:
            for slot in outputs(web.strands[which], index):
                if self._has_counterpart(which, slot.tensor):
                    continue
                for user in flow.users.get(slot.tensor, ()):
                    if user in leader and user > index:
                        leader[find(user)] = find(index)
        groups: dict[int, list[int]] = {}
        for index in free:
            groups.setdefault(find(index), []).append(index)
        return [members for members in groups.values() if any(not web.hands_on(which, index) for index in members)]

    def _has_counterpart(self, which: int, tensor: int) -> bool:
        number = self._web.classes.of(which, tensor)
        return (number >= 0 and self._web.classes.shared(number)) or self._mapper.partner(which, tensor) is not None

    def _results(self, which: int, members: Iterable[int]) -> Iterator[int]:
        """Tensors that leave the region: taken by others, or by nobody."""
        inside = set(members)
        users = self._web.flow(which).users
        seen: set[int] = set()
        for index in members:
            for slot in outputs(self._web.strands[which], index):
                takers = users.get(slot.tensor, ())
                if slot.tensor not in seen and (not takers or any(user not in inside for user in takers)):
                    seen.add(slot.tensor)
                    yield slot.tensor

    def _arguments(self, which: int, members: Iterable[int]) -> set[int]:
        """Tensors that come into the region from elsewhere, without parameters."""
        inside = set(members)
        makers = self._web.flow(which).makers
        strand = self._web.strands[which]
        return {
            slot.tensor
            for index in members
            for slot in inputs(strand, index)
            if not is_parameter(strand, index, slot)
            and not any(maker in inside for maker in makers.get(slot.tensor, ()))
        }

    def _takes_the_same(self, left: list[int], right: list[int]) -> bool:
        """Is most of what goes into one region what goes into the other?"""
        ours, theirs = self._arguments(0, left), self._arguments(1, right)
        if not ours or not theirs:
            return not ours and not theirs
        web, mapper = self._web, self._mapper
        numbers = [{web.classes.of(w, t) for t in side} - {-1} for w, side in ((0, ours), (1, theirs))]
        common = [
            sum(1 for t in side if web.classes.of(w, t) in numbers[1 - w] or mapper.partner(w, t) in other)
            for w, side, other in ((0, ours, theirs), (1, theirs, ours))
        ]
        return 2 * common[0] >= len(ours) and 2 * common[1] >= len(theirs) and min(common) > 0


def _calls(members: list[int]) -> str:
    return f"{len(members)} call{'s' * (len(members) > 1)}"
