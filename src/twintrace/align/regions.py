"""Find where one side does in one call, or in other calls, what the other does in several.

    left     q, k, v ─▶ attention ─────────────────────────────────▶ proj
    right    q, k, v ─▶ matmul ─▶ div ─▶ softmax ─▶ dropout ─▶ matmul ─▶ proj
                        └─────────────── one region ────────────────┘

A region is made of calls without a partner that give each other tensors which the other side does not have. Two regions
belong together if they put out the same tensors (by value, or because the same calls take them) and take the same ones.

Once two runs have parted, no results agree, and what would take them has no partner either. There, calls that hold the same
parameters are the beginning of a region (`linear` beside `MatMul` and `BiasAdd`), and what follows it is found from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..model.sites import Kind, Phase
from .layouts import layout_between
from .pairing import Link, Pairing
from .tensors import Mapper
from .units import is_parameter, operation
from .values import numel

_LARGE = 12
"""More calls than this on a side are a region only if their results have equal values."""


_LARGEST = 400
"""A recurrent layer that one side has written out may be long; a region of more calls than this says nothing to anybody."""


class Regions:
    """Regions of the free units of a pairing."""

    def __init__(self, pairing: Pairing, mapper: Mapper, units: tuple[set[int], set[int]]) -> None:
        self._pairing, self._mapper, self._units = pairing, mapper, units
        self._values = self._visible(0), self._visible(1)
        self._held: set[int] = set()

    def bind(self) -> None:
        """Bind the regions that belong together."""
        sides = self._components(0), self._components(1)
        results = [[set(self._results(which, members)) for members in sides[which]] for which in (0, 1)]
        makers: dict[int, list[int]] = {}
        by_class: dict[int, list[tuple[int, int]]] = {}
        for number, tensors in enumerate(results[1]):
            for tensor in tensors:
                makers.setdefault(tensor, []).append(number)
                by_class.setdefault(self._pairing.classes.of(1, tensor), []).append((number, tensor))
        links: list[tuple[int, int, bool]] = []
        for number, tensors in enumerate(results[0]):
            for tensor in tensors:
                value = self._pairing.classes.of(0, tensor)
                if value >= 0:
                    links += [
                        (number, other, True)
                        for other, there in by_class.get(value, ())
                        if not self._pairing.is_shuffled(tensor, there)
                    ]
                partner = self._mapper.partner(0, tensor)
                if partner is not None:
                    links += [(number, other, False) for other in makers.get(partner, ())]
        for ours, theirs, equal in _groups(links):
            left, right = [i for n in ours for i in sides[0][n]], [j for n in theirs for j in sides[1][n]]
            if self._can_be_bound(0, left) and self._can_be_bound(1, right):  # not yet grown into by another
                self._bind(left, right, equal)

    def _bind(self, left: list[int], right: list[int], equal: bool) -> None:
        left, right = self._grown(left, right)
        if not (self._can_be_bound(0, left) and self._can_be_bound(1, right) and self._takes_the_same(left, right)):
            return
        if len(left) == len(right) == 1 and self._are_other_layers(left[0], right[0]):
            return
        if not equal and max(len(left), len(right)) > _LARGE:
            return
        because = (
            "takes and gives the same tensors"
            if len(left) == len(right) == 1
            else f"{_calls(left)} and {_calls(right)} between the same tensors"
        )
        self._pairing.bind(Link(tuple(sorted(left)), tuple(sorted(right)), because, 0.85 if equal else 0.5))

    # --- by what goes in ------------------------------------------------------------------------------------------

    def bind_ends(self) -> None:
        """Bind what is left over and takes just the same tensors, when it is the only such thing on both sides.

        That is how attention, fused and written out, is found where nothing comes after it that is known to belong together.
        """
        sides = self._components(0), self._components(1)
        takes = [[self._flowing_keys(which, members) for members in sides[which]] for which in (0, 1)]
        values = [[self._flowing_values(which, members) for members in sides[which]] for which in (0, 1)]
        for ours, key, own in zip(sides[0], takes[0], values[0], strict=True):
            if not key or takes[0].count(key) != 1 or takes[1].count(key) != 1:
                continue
            if own and values[0].count(own) != values[1].count(own):
                continue  # one layer that holds two, and the two that take the same
            theirs = sides[1][takes[1].index(key)]
            if not self._pairing.is_of_flow(0, ours[0]) or not self._pairing.is_of_flow(1, theirs[0]):
                continue
            left, right = self._without_tail([*ours], [*theirs])
            if max(len(left), len(right)) > _LARGE or not left or not right:
                continue
            sizes = [
                sorted(numel(self._pairing.trees[which].tensor(t)) for t in self._results(which, members))
                for which, members in ((0, left), (1, right))
            ]
            if len(sizes[0]) == len(sizes[1]) == 1 and (sizes[0] == sizes[1] or len(left) == len(right) == 1):
                self._bind(left, right, False)

    def _flowing_keys(self, which: int, members: list[int]) -> frozenset[int]:
        """Inputs of these calls that are no masks, in numbers of the right side; empty if anything has no partner."""
        found = set()
        for tensor in self._arguments(which, members)[0]:
            tensor = self._pairing.source(which, tensor)
            if self._pairing.flows(which, tensor):
                partner = tensor if which else self._mapper.partner(0, tensor)
                if partner is None or (which and self._mapper.partner(1, tensor) is None):
                    return frozenset()
                found.add(partner if which else self._pairing.source(1, partner))
        return frozenset(found)

    def _flowing_values(self, which: int, members: list[int]) -> frozenset[int]:
        """Numbers of the values of these inputs, as far as both sides have them."""
        tensors = [self._pairing.source(which, tensor) for tensor in self._arguments(which, members)[0]]
        values = [self._pairing.classes.of(which, tensor) for tensor in tensors if self._pairing.flows(which, tensor)]
        return frozenset(value for value in values if self._pairing.classes.shared(value))

    def _without_tail(self, left: list[int], right: list[int]) -> tuple[list[int], list[int]]:
        """Both without what does the same at their ends: that is found from what they put out."""
        while len(left) > 1 and len(right) > 1:
            ends = max(left), max(right)
            calls = [self._pairing.trees[which].calls[end] for which, end in enumerate(ends)]
            inside = self._inner_arguments(0, left, ends[0]), self._inner_arguments(1, right, ends[1])
            if operation(calls[0]) != operation(calls[1]) or len(inside[0]) != 1 or len(inside[1]) != 1:
                break
            sizes = [numel(self._pairing.trees[which].tensor(*inside[which])) for which in (0, 1)]
            if sizes[0] != sizes[1]:
                break
            left.remove(ends[0])
            right.remove(ends[1])
        return left, right

    def _inner_arguments(self, which: int, members: list[int], end: int) -> set[int]:
        """Operands that the last of these calls takes from the others."""
        makers = self._pairing.flow(which).makers
        inside = {*members}
        return {
            slot.tensor
            for slot in self._pairing.trees[which].inputs(end)
            if any(maker in inside for maker in makers.get(slot.tensor, ()))
        }

    # --- by parameters --------------------------------------------------------------------------------------------

    def bind_holders(self, follow: Callable[[Link], None]) -> None:
        """Bind the regions that hold the same parameters and take the same tensors, though nothing that they put out is equal.

        From each of them `follow` looks for more before the next is tried: what comes next takes what this one puts out.
        """
        self._held = self._held_values(0) | self._held_values(1)
        holders = self._holders(0), self._holders(1)
        seeds = [
            pair
            for value, ours in holders[0].items()
            if len(ours) == len(holders[1].get(value, ()))
            for pair in zip(ours, holders[1][value], strict=True)
        ]
        for left, right in sorted(seeds):
            region = self._holding_the_same(left, right)
            if region is not None:
                ones, twos = region
                because = "the same parameters"
                if len(ones) > 1 or len(twos) > 1:
                    because = f"{_calls(ones)} and {_calls(twos)} with {because}, between the same tensors"
                self._pairing.bind(Link(tuple(sorted(ones)), tuple(sorted(twos)), because, 0.8))
                follow(self._pairing.links[-1])

    def _held_values(self, which: int) -> set[int]:
        """The values that calls without a partner hold."""
        pairing, tree = self._pairing, self._pairing.trees[which]
        return {
            value
            for index in self._units[which]
            if pairing.is_free(which, index)
            for slot in tree.inputs(index)
            if (value := pairing.classes.of(which, slot.tensor)) >= 0 and is_parameter(tree, index, slot)
        }

    def _holders(self, which: int) -> dict[int, list[int]]:
        """Calls without a partner, by the largest parameter that they hold; those whose results the other side has are left out."""
        pairing, tree = self._pairing, self._pairing.trees[which]
        found: dict[int, list[int]] = {}
        for index in sorted(self._units[which]):
            if not pairing.is_free(which, index) or tree.calls[index].site.phase is not Phase.FORWARD:
                continue
            held = [slot.tensor for slot in tree.inputs(index) if pairing.classes.of(which, slot.tensor) in self._held]
            if (
                held
                and not pairing.hands_on(which, index)
                and not any(map(pairing.classes.shared, pairing.gives(which, index)))
            ):
                largest = max(held, key=lambda tensor: numel(tree.tensor(tensor)))
                found.setdefault(pairing.classes.of(which, largest), []).append(index)
        return found

    def _holding_the_same(self, left: int, right: int) -> tuple[list[int], list[int]] | None:
        """The regions around two calls that hold the same parameter, if they hold and take the same as a whole."""
        members = [left], [right]
        while any(lacking := (self._lacking(0, members), self._lacking(1, members))):
            fresh = [self._next_holder(which, members[which], lacking[which]) for which in (0, 1)]
            if fresh == [None, None] or max(map(len, members)) >= _LARGE:
                return None
            for which, index in enumerate(fresh):
                if index is not None:
                    members[which].append(index)
        ones, twos = self._grown(*members, most=_LARGE)
        members = ones, twos
        if max(map(len, members)) > _LARGE or not all(self._can_be_bound(which, members[which]) for which in (0, 1)):
            return None
        if self._lacking(0, members) or self._lacking(1, members):
            return None
        takes = self._arguments(0, ones), self._arguments(1, twos)
        keys = [{self._pairing.key(which, tensor) for tensor in takes[which][1]} for which in (0, 1)]
        if any(
            self._pairing.key(which, tensor) not in keys[1 - which]
            for which in (0, 1)
            for tensor in self._unmet(which, takes)
        ):
            return None
        results = [list(self._results(which, members[which])) for which in (0, 1)]
        sizes = [[numel(self._pairing.trees[which].tensor(tensor)) for tensor in results[which]] for which in (0, 1)]
        if len(sizes[0]) != 1 or sizes[0] != sizes[1]:
            return None
        if any(self._pairing.classes.shared(self._pairing.classes.of(which, results[which][0])) for which in (0, 1)):
            return None
        return None if len(ones) == len(twos) == 1 and self._are_other_layers(left, right) else members

    def _lacking(self, which: int, members: tuple[list[int], list[int]]) -> set[object]:
        """Values that the other side's region holds and this one does not take."""
        other, tree = 1 - which, self._pairing.trees[1 - which]
        held = {
            self._pairing.key(other, slot.tensor)
            for index in members[other]
            for slot in tree.inputs(index)
            if self._pairing.classes.of(other, slot.tensor) in self._held or is_parameter(tree, index, slot)
        }
        return held - {self._pairing.key(which, tensor) for tensor in self._arguments(which, members[which])[1]}

    def _next_holder(self, which: int, members: list[int], lacking: set[object]) -> int | None:
        """The one call without a partner that takes a result of these, cast and reshaped or not, and a tensor that they lack."""
        pairing, tree = self._pairing, self._pairing.trees[which]
        waiting = list(self._results(which, members))
        seen, found = set(waiting), set()
        while waiting:
            for index in pairing.flow(which).users.get(waiting.pop(), ()):
                if index in members or index not in self._units[which] or not pairing.is_free(which, index):
                    continue
                if any(self._pairing.key(which, slot.tensor) in lacking for slot in tree.inputs(index)):
                    found.add(index)
                elif pairing.hands_on(which, index):
                    fresh = {slot.tensor for slot in tree.outputs(index)} - seen
                    seen |= fresh
                    waiting.extend(fresh)
        return found.pop() if len(found) == 1 else None

    # --- what a region is -----------------------------------------------------------------------------------------

    def _are_other_layers(self, left: int, right: int) -> bool:
        """Two modules of different kinds: what they do alike is inside them, and will be found there."""
        calls = self._pairing.trees[0].calls[left], self._pairing.trees[1].calls[right]
        inside = self._pairing.trees[0].children[left] and self._pairing.trees[1].children[right]
        modules = all(call.site.kind is Kind.MODULE for call in calls)
        if operation(calls[0]) == operation(calls[1]):
            return False
        return (bool(inside) and modules) or not self._can_be_laid(left, right)

    def _can_be_laid(self, left: int, right: int) -> bool:
        """Is it known how what comes out of one lies on what comes out of the other?"""
        trees = self._pairing.trees
        given = trees[0].outputs(left)[:1], trees[1].outputs(right)[:1]
        if not given[0] or not given[1]:
            return True
        first = trees[0].tensor(given[0][0].tensor), trees[1].tensor(given[1][0].tensor)
        return layout_between(*first) is not None

    def _can_be_bound(self, which: int, members: list[int]) -> bool:
        phases = {self._pairing.trees[which].calls[index].site.phase for index in members}
        return (
            len(phases) == 1
            and all(self._pairing.is_free(which, index) for index in members)
            and any(not self._pairing.hands_on(which, index) for index in members)
        )

    def _components(self, which: int) -> list[list[int]]:
        """Free units that are connected by tensors without a counterpart."""
        pairing = self._pairing
        free = [index for index in sorted(self._units[which]) if pairing.is_free(which, index)]
        leader = {index: index for index in free}

        def find(index: int) -> int:
            while leader[index] != index:
                leader[index] = leader[leader[index]]
                index = leader[index]
            return index

        flow = pairing.flow(which)
        for index in free:
            for slot in pairing.trees[which].outputs(index):
                if self._has_counterpart(which, slot.tensor):
                    continue
                for user in flow.users.get(slot.tensor, ()):
                    if user in leader and self._is_one_kind(which, index, slot.tensor, user):
                        leader[find(user)] = find(index)
        groups: dict[int, list[int]] = {}
        for index in free:
            groups.setdefault(find(index), []).append(index)
        return [members for members in groups.values() if any(not pairing.hands_on(which, index) for index in members)]

    def _is_one_kind(self, which: int, maker: int, tensor: int, user: int) -> bool:
        """May this tensor bind its maker to a user?

        A mask, which all layers take, does not; nor does what was saved in the forward pass for a kernel of the backward pass.
        """
        calls = self._pairing.trees[which].calls
        if calls[maker].site.phase is not calls[user].site.phase:
            return False
        return self._comes_of_data(which, tensor) or not self._pairing.is_of_flow(which, user)

    def _comes_of_data(self, which: int, tensor: int) -> bool:
        return self._pairing.flows(which, tensor) or self._pairing.decides(which, tensor)

    def _has_counterpart(self, which: int, tensor: int) -> bool:
        return (
            self._pairing.classes.of(which, tensor) in self._values[1 - which]
            or self._mapper.partner(which, tensor) is not None
        )

    def _visible(self, which: int) -> set[int]:
        """The values that go between units: what happens inside one is not seen."""
        pairing = self._pairing
        found: set[int] = set()
        for index in self._units[which]:
            found |= pairing.takes(which, index)
            found |= pairing.gives(which, index)
        return found

    def _results(self, which: int, members: Iterable[int]) -> Iterator[int]:
        """Tensors that leave the region: taken by others, or by nobody."""
        inside = set(members)
        users = self._pairing.flow(which).users
        seen: set[int] = set()
        for index in members:
            for slot in self._pairing.trees[which].outputs(index):
                takers = users.get(slot.tensor, ())
                if slot.tensor not in seen and (not takers or any(user not in inside for user in takers)):
                    seen.add(slot.tensor)
                    yield slot.tensor

    def _arguments(self, which: int, members: Iterable[int]) -> tuple[set[int], set[int]]:
        """Tensors that come into the region from elsewhere: those that are no parameters, and all of them."""
        inside = set(members)
        makers = self._pairing.flow(which).makers
        tree = self._pairing.trees[which]
        slots = [
            (index, slot)
            for index in members
            for slot in tree.inputs(index)
            if not any(maker in inside for maker in makers.get(slot.tensor, ()))
        ]
        given = {slot.tensor for index, slot in slots if not is_parameter(tree, index, slot)}
        return given, {slot.tensor for _, slot in slots}

    def _takes_the_same(self, left: list[int], right: list[int]) -> bool:
        """Is most of what goes into one region what goes into the other?"""
        takes = self._arguments(0, left), self._arguments(1, right)
        unmet = [
            [tensor for tensor in self._unmet(which, takes) if not self._is_saved(which, members, tensor)]
            for which, members in ((0, left), (1, right))
        ]
        given = [takes[which][0] - ({*self._unmet(which, takes)} - {*unmet[which]}) for which in (0, 1)]
        if any(self._pairing.flows(which, tensor) for which in (0, 1) for tensor in given[which]):
            given = [{tensor for tensor in given[which] if self._pairing.flows(which, tensor)} for which in (0, 1)]
            unmet = [[tensor for tensor in unmet[which] if self._pairing.flows(which, tensor)] for which in (0, 1)]
        if not given[0] or not given[1]:
            return not given[0] and not given[1]
        common = [len(given[which]) - len(unmet[which]) for which in (0, 1)]
        return all(0 < 2 * common[which] >= len(given[which]) for which in (0, 1))

    def _is_saved(self, which: int, members: list[int], tensor: int) -> bool:
        """Was it made in the forward pass, by a region that belongs to one of the other side, and saved for these calls of the
        backward pass? Each way of computing the one saves what it needs for the other: a workspace, the gates of every step.
        """
        pairing, calls = self._pairing, self._pairing.trees[which].calls
        links = [
            link
            for maker in pairing.flow(which).makers.get(tensor, ())
            if calls[maker].site.phase is not calls[members[0]].site.phase
            and (link := pairing.link(which, maker)) is not None
        ]
        return any(max(len(link.left), len(link.right)) > 1 for link in links)

    def _unmet(self, which: int, takes: tuple[tuple[set[int], set[int]], tuple[set[int], set[int]]]) -> list[int]:
        """Inputs of this side's region that the other's does not have. One that no call made may be a parameter: not every tool
        knows which of the tensors that it records are. What a call made of a parameter, its transpose, is not that parameter.
        """
        makers = self._pairing.flow(which).makers
        theirs = takes[1 - which]
        numbers = [{self._pairing.classes.of(1 - which, tensor) for tensor in tensors} - {-1} for tensors in theirs]
        return [
            tensor
            for tensor in sorted(takes[which][0])
            if self._pairing.classes.of(which, tensor) not in numbers[tensor not in makers]
            and self._mapper.partner(which, tensor) not in theirs[tensor not in makers]
        ]

    def _grown(self, left: list[int], right: list[int], most: int = _LARGEST) -> tuple[list[int], list[int]]:
        """The regions with the free calls of their phase before them that made what the other does not take."""
        members = [*left], [*right]
        phase = self._pairing.trees[0].calls[left[0]].site.phase
        of_flow = [any(self._pairing.is_of_flow(which, index) for index in members[which]) for which in (0, 1)]
        while max(map(len, members)) < most:
            takes = self._arguments(0, members[0]), self._arguments(1, members[1])
            before = [
                {
                    maker
                    for tensor in self._unmet(which, takes)
                    for maker in self._pairing.flow(which).makers.get(tensor, ())
                    if maker in self._units[which]
                    and self._pairing.is_free(which, maker)
                    and self._pairing.trees[which].calls[maker].site.phase is phase
                    and (self._comes_of_data(which, tensor) or not of_flow[which])
                }
                - set(members[which])
                for which in (0, 1)
            ]
            if not any(before):
                break
            for which in (0, 1):
                members[which].extend(sorted(before[which]))
        return members


def _calls(members: list[int]) -> str:
    return f"{len(members)} call{'s' * (len(members) > 1)}"


def _groups(links: list[tuple[int, int, bool]]) -> list[tuple[list[int], list[int], bool]]:
    """Regions of both sides that are linked with each other, directly or by others; and whether by values."""
    leader: dict[tuple[int, int], tuple[int, int]] = {}

    def find(node: tuple[int, int]) -> tuple[int, int]:
        leader.setdefault(node, node)
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    by_value: dict[tuple[int, int], bool] = {}
    for one, two, _ in links:
        leader[find((1, two))] = find((0, one))
    for one, _, equal in links:
        by_value[find((0, one))] = by_value.get(find((0, one)), False) or equal
    groups: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for node in sorted(leader):
        groups.setdefault(find(node), ([], []))[node[0]].append(node[1])
    return [(ours, theirs, by_value[top]) for top, (ours, theirs) in groups.items()]
