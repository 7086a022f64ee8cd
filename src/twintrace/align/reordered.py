"""Check the pairs that names gave against the flow of data, and put right what stands in another order.

    left     a = relu(fc1(x))    b = relu(fc2(x))        relu#0 of the left takes what fc1 made; relu#0 of the right what fc2 made:
    right    b = relu(fc2(x))    a = relu(fc1(x))        fc1 and fc1 belong together, so relu#0 belongs to relu#1

A pair is *consistent* if what its two calls take was made by calls that are a pair as well, or by none. Where all pairs are, as
between two runs of one program nearly always, nothing more is done. Otherwise calls are known by their name and by what they
take, from the leaves (data, parameters) on: as in a proof that two terms are equal, with names for function symbols. A place that
only one side has tells nothing: modules that are called differently compute the same, and what comes after them is known by that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from functools import cached_property

from ..model.records import Call
from ..model.sites import Kind, Phase
from ..model.values import TensorRef, leaves
from ..operations.families import SHAPING
from .features import values_of
from .named import Named, line_of
from .trees import CallTree, Slot
from .units import operation
from .values import alike

_ROUNDS = 8
"""Each round pairs what has become known by the round before; a name in a new place, or a call that one side alone makes, costs
one. After that, names decide."""
_UNKNOWN = -1


def in_order_of_flow(
    left: CallTree,
    right: CallTree,
    pairs: Sequence[Named],
    elsewhere: Callable[[int, int], bool] = lambda one, two: False,
) -> list[Named]:
    """The pairs, and others instead of those that the flow of data contradicts; none where only the name speaks for a pair.

    `elsewhere`: do two calls put out other values than each other, which the other side has in another place?
    """
    origins = _origins(left, right)
    pairs = [pair for pair in pairs if not _has_no_rank_in_common(left, right, pair)]
    partner = {one: two for one, two, _ in pairs}
    doubtful = [pair for pair in pairs if not _consistent(origins, partner, pair.left, pair.right)]
    if not doubtful:
        return list(pairs)
    better = _known_by_flow(origins, partner)
    fewer = len(doubtful) - _contradictions(origins, better)
    if fewer >= 0 and _agree_better(left, right, partner, better, clearly=not fewer):
        sure = {pair.left: pair.sure for pair in pairs if better.get(pair.left) == pair.right}
        pairs = sorted(Named(one, two, sure.get(one, False)) for one, two in better.items())
        partner = better
    while True:  # what only such a pair speaks for is none either
        unfounded = {
            pair
            for pair in pairs
            if not _consistent(origins, partner, pair.left, pair.right)
            and _gives_other_values(left, right, pair)
            and (
                _is_known_by_name_alone(origins, partner, pair)
                or any(_is_given_elsewhere(origins, which, pair) for which in (0, 1))
                or (_is_kernel_of_backward(left.calls[pair.left]) and elsewhere(pair.left, pair.right))
            )
        }
        if not unfounded:
            return list(pairs)
        pairs = [pair for pair in pairs if pair not in unfounded]
        partner = {pair.left: pair.right for pair in pairs}


class _Origins:
    """Origins of the tensors of one side."""

    def __init__(self, tree: CallTree) -> None:
        self.tree = tree
        self.other: _Origins | None = None
        self._slots: dict[int, dict[int, str]] = {}

    def of(self, tensor: int) -> tuple[int, str]:
        """The position of the call that made it, and as which result; -1 and its mark if no recorded call did."""
        maker = self._maker(tensor)
        if maker == _UNKNOWN:
            return maker, self._mark(tensor)
        outputs = self.tree.outputs(maker)
        if len(outputs) == 1:
            return maker, outputs[0].slot
        slots = self._slots.get(maker)
        if slots is None:
            slots = self._slots[maker] = {slot.tensor: slot.slot for slot in self.tree.outputs(maker)}
        return maker, slots.get(tensor, "")

    def _maker(self, tensor: int) -> int:
        producer = self.tree.tensor(tensor).producer
        return _UNKNOWN if producer is None else self.tree.position.get(producer, _UNKNOWN)

    def _mark(self, leaf: int) -> str:
        """Bits of a leaf, if the other side has a leaf with these; else its place: weights that have become others keep theirs."""
        bits = self.tree.tensor(leaf).fingerprint
        if bits is not None and self.other is not None and bits in self.other.bits:
            return bits
        return self.places.get(leaf, "")

    @cached_property
    def places(self) -> dict[int, str]:
        """Module and slot in which each leaf is taken first."""
        found: dict[int, str] = {}
        for index, call in enumerate(self.tree.calls):
            for item in self.tree.inputs(index):
                if item.tensor not in found and self._maker(item.tensor) == _UNKNOWN:
                    found[item.tensor] = f"{call.site.path}:{item.slot} {self.tree.tensor(item.tensor).spec}"
        return found

    @cached_property
    def given(self) -> frozenset[Hashable]:
        """Bits that the calls of each name put out."""
        tree = self.tree
        return frozenset(
            (call.site.name, bits)
            for index, call in enumerate(tree.calls)
            if (bits := values_of(tree, index, "out")) is not None
        )

    @cached_property
    def bits(self) -> frozenset[str | None]:
        """Fingerprints of the leaves."""
        return frozenset(self.tree.tensor(leaf).fingerprint for leaf in self.places)


def _origins(left: CallTree, right: CallTree) -> tuple[_Origins, _Origins]:
    one, two = _Origins(left), _Origins(right)
    one.other, two.other = two, one
    return one, two


def _consistent(origins: tuple[_Origins, _Origins], partner: dict[int, int], one: int, two: int) -> bool:
    into = origins[0].tree.inputs(one), origins[1].tree.inputs(two)
    for ours, theirs in zip(*into, strict=False):
        made, there = origins[0].of(ours.tensor), origins[1].of(theirs.tensor)
        if made[0] == _UNKNOWN and there[0] == _UNKNOWN:
            continue  # other data or parameters are a difference, not another call
        if made[0] == one and there[0] == two:
            continue  # what it wrote to in place
        if made[1] != there[1] or partner.get(made[0]) != there[0]:
            return False
    return True


def _same_origin(
    origins: tuple[_Origins, _Origins], partner: dict[int, int], left: Slot, right: Slot, leaves_count: bool
) -> bool:
    """Do two operands come from the same place: from calls that are a pair, or as leaves with the same values? Weights of one size
    have alike statistics in 16 bits: where the other side has the very same bits, these alone are its partner.
    """
    made, there = origins[0].of(left.tensor), origins[1].of(right.tensor)
    if made[0] == _UNKNOWN or there[0] == _UNKNOWN:
        tensors = origins[0].tree.tensor(left.tensor), origins[1].tree.tensor(right.tensor)
        if not leaves_count or made[0] != there[0]:
            return leaves_count and alike(*tensors) > 0
        bits = tensors[0].fingerprint, tensors[1].fingerprint
        known = bits[0] in origins[1].bits or bits[1] in origins[0].bits
        return bits[0] == bits[1] if known and None not in bits else alike(*tensors) > 0
    return made[1] == there[1] and partner.get(made[0]) == there[0]


def _contradictions(origins: tuple[_Origins, _Origins], partner: dict[int, int]) -> int:
    return sum(not _consistent(origins, partner, one, two) for one, two in partner.items())


def _agree_better(
    left: CallTree, right: CallTree, before: dict[int, int], after: dict[int, int], *, clearly: bool
) -> bool:
    """Are there as many pairs as before with the same bits out, and as many from the same line? A call that is missing on one side
    would make the flow shift all those of its name after it. `clearly`: and more that take the same numbers, or give the same bits.
    """

    def agreeing(partner: dict[int, int]) -> tuple[int, int, int]:
        changed = [(one, two) for one, two in partner.items() if before.get(one) != after.get(one)]
        return (
            sum(values_of(left, one, "out") == values_of(right, two, "out") is not None for one, two in changed),
            sum(line_of(left.calls[one]) == line_of(right.calls[two]) for one, two in changed),
            sum(_constants(left, one) == _constants(right, two) for one, two in changed),
        )

    old, new = agreeing(before), agreeing(after)
    as_many = new[0] >= old[0] and new[1] >= old[1]
    return as_many and (not clearly or new[0] + new[2] > old[0] + old[2])


def _known_by_flow(origins: tuple[_Origins, _Origins], named: dict[int, int]) -> dict[int, int]:
    """Calls with the same name that take the same, in order; what is not known so keeps its partner, if that is left over."""
    left, right = origins[0].tree, origins[1].tree
    places = {call.site.path for call in left.calls} & {call.site.path for call in right.calls}
    there: dict[Hashable, list[int]] = {}
    for index in range(len(right)):
        there.setdefault(_key(origins[1], index, None, places), []).append(index)
    several = {key for key, own in there.items() if len({_constants(right, index) for index in own}) > 1}
    for waiting in there.values():
        waiting.reverse()
    siblings: dict[Hashable, list[int]] = {}
    for index in range(len(left)):
        siblings.setdefault(_place(left, index, places), []).append(index)
    found: dict[int, int] = {}
    taken: set[int] = set()
    for last in (*[False] * _ROUNDS, True):
        before = len(found)
        for index in range(len(left)):
            if index in found:
                continue
            key = _key(origins[0], index, found, places)
            waiting = there.get(key, [])
            while waiting and waiting[-1] in taken:
                waiting.pop()
            if not waiting:
                continue
            chosen = waiting[-1]
            if key in several:
                same = [other for other in siblings[_place(left, index, places)] if other not in found]
                same = [other for other in same if _key(origins[0], other, found, places) == key]
                free = [other for other in reversed(waiting) if other not in taken]
                chosen = _by_constants(left, right, index, same, free)[0]
            found[index] = chosen
            taken.add(chosen)
        kept = {one: two for one, two in named.items() if one not in found and two not in taken}
        open_ = kept.keys(), set(kept.values())
        for one, two in kept.items():
            up = left.parent[one], right.parent[two]
            inside = up[0] < 0 or up[1] < 0 or found.get(up[0], kept.get(up[0])) == up[1]
            if inside and (last or not any(map(_waits, origins, (one, two), open_))):
                found[one] = two
                taken.add(two)
        if len(found) == before:
            break
    return found | _left_over(left, right, named, found, taken)


def _by_constants(
    left: CallTree, right: CallTree, index: int, siblings: Sequence[int], waiting: Sequence[int]
) -> Sequence[int]:
    """Calls that take the same tensors as one of the left: those with its numbers; else those with numbers that no sibling of it
    has (`which == 3` beside `which == 2`, in another order).
    """
    numbers = {other: _constants(right, other) for other in waiting}
    own = _constants(left, index)
    claimed = {_constants(left, other) for other in siblings} - {own}
    return (
        [other for other in waiting if numbers[other] == own]
        or [other for other in waiting if numbers[other] not in claimed]
        or waiting
    )


def _constants(tree: CallTree, index: int) -> Hashable:
    """Arguments of a call that are no tensors, by slot."""
    call = tree.calls[index]
    given = [(str(position), value) for position, value in enumerate(call.args)]
    given += [(f"kw.{name}", value) for name, value in call.kwargs.items()]
    return tuple(
        (slot, repr(leaf))
        for name, value in given
        for slot, leaf in leaves(value, name)
        if not isinstance(leaf, TensorRef)
    )


def _left_over(
    left: CallTree, right: CallTree, named: dict[int, int], found: dict[int, int], taken: set[int]
) -> dict[int, int]:
    """Of calls that names had paired, and whose partners the flow gave to others: as many of a name on both sides, in order."""
    groups: dict[Hashable, tuple[list[int], list[int]]] = {}
    for which, tree, indices in ((0, left, named.keys() - found.keys()), (1, right, set(named.values()) - taken)):
        for index in sorted(indices):
            up = tree.parent[index]
            inside = up if which or up < 0 else found.get(up)
            key = _place(tree, index, {tree.calls[index].site.path}), inside
            groups.setdefault(key, ([], []))[which].append(index)
    return {
        one: two
        for ours, theirs in groups.values()
        if len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True)
    }


def _waits(origins: _Origins, index: int, named: Set[int]) -> bool:
    """Does a call take the result of one that is known by nothing but its name so far? Once that is settled, flow may tell."""
    makers = (origins.of(item.tensor)[0] for item in origins.tree.inputs(index))
    return any(maker in named and maker != index for maker in makers)


def _place(tree: CallTree, index: int, places: Set[str]) -> Hashable:
    """A call's name, and the module that it is in, if that is one of `places`."""
    site = tree.calls[index].site
    return site.phase, site.kind, site.name, site.path if site.path in places else None


def _key(origins: _Origins, index: int, partner: dict[int, int] | None, places: Set[str]) -> Hashable:
    """A call's name and place, if both sides have that, and where what it takes comes from, in the numbers of the right side."""
    tree = origins.tree

    def number(position: int) -> int:
        return position if partner is None or position < 0 else partner.get(position, -2 - position)

    into = tuple(
        [
            (number(made), slot)
            for item in tree.inputs(index)
            for made, slot in (origins.of(item.tensor),)
            if made != index
        ]
    )
    return _place(tree, index, places), number(tree.parent[index]), into


def _has_no_rank_in_common(left: CallTree, right: CallTree, pair: Named) -> bool:
    """Has everything that goes in and comes out another number of axes there? A kernel that adds to counters in one run, and to
    moments in the other, has only its name in common with itself.
    """
    first = left.outputs(pair.left)[:1], right.outputs(pair.right)[:1]
    if first[0] and first[1]:  # as nearly always, what comes out first tells
        shapes = left.tensor(first[0][0].tensor).spec.shape, right.tensor(first[1][0].tensor).spec.shape
        if len(shapes[0]) == len(shapes[1]):
            return False
    ranks = []
    for tree, index in ((left, pair.left), (right, pair.right)):
        slots = (*tree.inputs(index), *tree.outputs(index))
        ranks.append({len(tree.tensor(slot.tensor).spec.shape) for slot in slots})
    return bool(ranks[0] and ranks[1]) and not ranks[0] & ranks[1]


def _is_known_by_name_alone(origins: tuple[_Origins, _Origins], partner: dict[int, int], pair: Named) -> bool:
    """Is it a cast or a reshape, which does nothing by itself; or a kernel of the backward pass, which has no line of its own, or a
    function with a result of another shape, of which no operand comes from where its partner's does? Of a pair that the flow
    contradicts. To a kernel, a weight in common is little where results have other shapes: one side has the gradients of all
    steps at once, the other those of each.
    """
    call = origins[0].tree.calls[pair.left]
    if operation(call) in SHAPING:
        return True
    trees = origins[0].tree, origins[1].tree
    as_large = _shapes(trees[0], pair.left) == _shapes(trees[1], pair.right)
    kernel = _is_kernel_of_backward(call)
    if not kernel and (as_large or call.site.phase is not Phase.FORWARD or call.site.kind is Kind.MODULE):
        return False
    into = trees[0].inputs(pair.left), trees[1].inputs(pair.right)
    return not any(_same_origin(origins, partner, *both, as_large or not kernel) for both in zip(*into, strict=False))


def _is_kernel_of_backward(call: Call) -> bool:
    return call.site.phase is Phase.BACKWARD and call.site.kind is Kind.OP


def _is_given_elsewhere(origins: tuple[_Origins, _Origins], which: int, pair: Named) -> bool:
    """Does another call of its name on the other side put out the very bits that this one puts out?"""
    tree, index = origins[which].tree, (pair.left, pair.right)[which]
    return (tree.calls[index].site.name, values_of(tree, index, "out")) in origins[1 - which].given


def _shapes(tree: CallTree, index: int) -> list[tuple[int, ...]]:
    return [tree.tensor(slot.tensor).spec.shape for slot in tree.outputs(index)]


def _gives_other_values(left: CallTree, right: CallTree, pair: Named) -> bool:
    """Are their results of other shapes, or not alike?"""
    if _shapes(left, pair.left) != _shapes(right, pair.right):
        return True
    given = zip(left.outputs(pair.left), right.outputs(pair.right), strict=True)
    return any(alike(left.tensor(one.tensor), right.tensor(two.tensor)) < 0 for one, two in given)
