"""Values that two slices begin with, and those that stand for each other among them.

    from_same_values(sides, left, right, …)      both slices, made longer until they begin with the same values
    before_rounding(sides, left, right, known)   both slices, made longer by calls that could change nothing, for want of bits
    later_values(sides, left, right, bound)      values that one side takes as they were recorded, and the other recomputes
    with_equals(sides, left, right, bound)       the binding with more of what is one value on both sides

A value that is taken as it was recorded has its rounding; one that is recomputed has none. No tensor is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..model.pairs import Layout
from ..model.tensors import UNITS
from .optimizers import of_one_parameter
from .sides import Bound, Side, Slice
from .traits import traits_of

_CUTS = 64
"""Values at most that are passed over to find those that two slices both begin with."""

Sides = tuple[Side, Side]
Slices = tuple[Slice, Slice]


def from_same_values(
    sides: Sides,
    left: Slice,
    right: Slice,
    bound: Mapping[int, Bound],
    known: tuple[Collection[int], Collection[int]],
    passable: Callable[[int, int], bool],
) -> tuple[Slice, Slice]:
    """Two slices made longer until both begin with the same compared values, so that neither recomputes what the other takes as
    it was recorded, with its rounding: keys out of a cache here, those of all tokens there. As they were, if there is no such
    beginning, or a value that is not `passable(which, number)` lies before it, or something unseen made the result of one side
    (a compiled helper): its inputs were rounded in that run, and the other's would not be.
    """
    if any(not part.calls and sides[which].maker(part.tensor) is None for which, part in enumerate((left, right))):
        return left, right
    parts, stops = [left, right], [set(known[0]), set(known[1])]
    for _ in range(_CUTS):
        dropped = later_values(sides, parts[0], parts[1], bound)
        if not dropped:
            return parts[0], parts[1]
        if not all(passable(which, number) for which, number in dropped):
            break
        for which, number in dropped:
            stops[which].discard(number)
        parts = [sides[which].slice(part.tensor, stops[which]) for which, part in enumerate((left, right))]
        if any(part.failure for part in parts):
            break
    return left, right


def later_values(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> list[tuple[int, int]]:
    """Values, by side, with which two slices begin although the other recomputes them, so that the rounding of one side alone
    is in its result: those made of what the other begins with, or else the last one that the other does not begin with.
    """
    parts = left, right
    mine: dict[int, list[int]] = {number: [] for number in left.edge if sides[0].maker(number) is not None}
    for number, item in bound.items():
        if item.left in left.edge:
            mine.setdefault(item.left, []).append(number)
    theirs = {number: [bound[number].left] for number in right.edge if number in bound}
    edges = mine, theirs
    begun = (
        {bound[number].left for number in right.edge if number in bound},
        {number for number, item in bound.items() if item.left in left.edge},
    )
    for which in (0, 1):  # what is only moved between is the same beginning; what is written down has no rounding
        for number in [*edges[which]]:
            if is_constant(sides[which], number):
                del edges[which][number]
                continue
            sources = set() if number in begun[which] else moved_from(sides[which], number, begun[which])
            if sources:
                del edges[which][number]
            for other in [other for other, partners in edges[1 - which].items() if sources & set(partners)]:
                del edges[1 - which][other]
    lone = [
        [number for number, others in edges[which].items() if not set(others) & set(parts[1 - which].edge)]
        for which in (0, 1)
    ]
    found: dict[tuple[int, int], None] = {}
    for which in (0, 1):
        others = {item for number in lone[which] for item in edges[which][number]}
        for number in edges[1 - which] if others else ():
            if others & sides[1 - which].ancestors(number):
                found[1 - which, number] = None
                found.update(((which, item), None) for item in edges[1 - which][number])
    if found:
        return list(found)
    made = [
        (maker.order, which, number)
        for which in (0, 1)
        for number in lone[which]
        if (maker := sides[which].maker(number)) is not None
    ]
    return [max(made)[1:]] if made else []


def before_rounding(sides: Sides, left: Slice, right: Slice, known: tuple[Collection[int], Collection[int]]) -> Slices:
    """Two slices made longer by the calls that have left a value as it was because 16 bits hold no other: a second moment times
    0.999 in bf16 has the bits of the one that the other side's kernel begins with.
    """
    parts = [left, right]
    for which, part in enumerate((left, right)):
        coarse = [
            number for number in part.edge if UNITS.get(sides[which].tensor(number).spec.dtype, 0.0) > UNITS["f32"]
        ]
        unchanged = {number for number in coarse if _is_unchanged(sides[which], number)}
        if unchanged:
            longer = sides[which].slice(part.tensor, set(known[which]) - unchanged)
            parts[which] = part if longer.failure else longer
    return parts[0], parts[1]


def _is_unchanged(side: Side, number: int) -> bool:
    """True if a call that computes has given one of its operands back, bit by bit."""
    maker, bits = side.maker(number), side.tensor(number).fingerprint
    meaning = None if maker is None or bits is None else side.meaning(maker)
    if meaning is None or traits_of(meaning).moves or traits_of(meaning).casts:
        return False
    return any(side.tensor(operand.tensor).fingerprint == bits for _, operand in meaning.operands())


def is_constant(side: Side, number: int) -> bool:
    """True if no rounding is in a value: a call made it of no other tensor (zeros, positions), or it is made of integers and
    answers alone.
    """
    waiting, seen = [number], {number}
    while waiting:
        here = waiting.pop()
        call = side.maker(here)
        meaning = None if call is None else side.meaning(call)
        operands = set() if meaning is None else {operand.tensor for _, operand in meaning.operands()}
        made = meaning is not None and not operands and not traits_of(meaning).random
        if side.tensor(here).spec.dtype in UNITS and not (made and here == number):
            return False
        waiting += operands - seen
        seen |= operands
    return True


def moved_from(side: Side, number: int, begun: Collection[int]) -> set[int]:
    """Values among `begun` that one is moved from, or an answer about; none if a rounding lies between."""
    waiting, seen = [number], {number}
    while waiting:
        here = waiting.pop()
        if here in begun:
            continue
        call = side.maker(here)
        meaning = None if call is None else side.meaning(call)
        if meaning is None or (side.tensor(here).spec.dtype in UNITS and not traits_of(meaning).moves):
            return set()
        fresh = {operand.tensor for _, operand in meaning.operands()} - seen
        seen |= fresh
        waiting += fresh
    return seen & set(begun)


def with_equals(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> Mapping[int, Bound]:
    """The binding with what else is one value on both sides, although nothing has compared it yet."""
    return _with_equal_bits(sides, left, right, _with_one_parameter(sides, left, right, bound))


def _with_equal_bits(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> Mapping[int, Bound]:
    """The binding with the leaves that have the same bits on both sides: the weights of a layer are compared after the calls in
    it, and may not be a few units off until then.
    """
    mine = {(tensor.fingerprint, tensor.spec): number for number in left.edge if (tensor := sides[0].tensor(number))}
    found = dict(bound)
    for number in right.edge:
        tensor = sides[1].tensor(number)
        partner = mine.get((tensor.fingerprint, tensor.spec)) if tensor.fingerprint is not None else None
        if partner is not None:
            found.setdefault(number, Bound(partner, Layout()))
    return found


def _with_one_parameter(sides: Sides, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> Mapping[int, Bound]:
    """The binding with the gradients and the state of one parameter, which an optimizer has in the same place on both sides.

    Gradients that are noise (of a key's bias) have other statistics on each side, and were not paired.
    """
    if not left.calls or not right.calls:
        return bound
    one, two = sides[0].meaning(left.calls[-1]), sides[1].meaning(right.calls[-1])
    if one is None or two is None or one.operation != two.operation:
        return bound
    ours, theirs = of_one_parameter(one, left.tensor), of_one_parameter(two, right.tensor)
    if ours is one or theirs is two:
        return bound
    mine, found = dict(ours.operands()), dict(bound)
    for path, operand in theirs.operands():
        partner = mine.get(path)
        same = (
            partner is not None
            and sides[0].tensor(partner.tensor).spec.shape == sides[1].tensor(operand.tensor).spec.shape
        )
        if partner is not None and same:
            found.setdefault(operand.tensor, Bound(partner.tensor, Layout()))
    return found
