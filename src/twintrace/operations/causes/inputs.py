"""Operands in each other's places, other values in their place, and constants of the other side.

exchanged_inputs(search)     candidates: "two operands are exchanged"
other_inputs(search)         candidates: "the right takes the result of a where the left takes the result of b"
other_leaves(search)         candidates: tables and constants that no recorded call made
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...model.pairs import Layout
from ...model.records import Call
from ..candidates import Candidate, Cause, with_substitute
from ..meanings import Operand, told
from ..sides import Bound, name_of, outputs_of
from ..traits import traits_of

if TYPE_CHECKING:
    from .search import Search

_INPUTS = 8
"""Inputs up to which each is tried in the place of another: an optimizer has hundreds."""
_ORDERED = 4
"""Inputs up to which all orders are tried: 24 of four."""
_EXCHANGE = "exchange the two operands on the right"


def exchanged_inputs(search: Search) -> Iterator[Candidate]:
    """Inputs of one shape in each other's places: two exchanged, or all of them in another order."""
    known = [number for number in search.slices[1].edge if number in search.bound]
    if len(known) > _INPUTS:
        return
    alike: dict[object, list[int]] = {}
    for number in known:
        alike.setdefault(search.recomputation.values[1].spec(number), []).append(number)
    for numbers in alike.values():
        for i, one in enumerate(numbers):
            for two in numbers[i + 1 :]:
                cause = Cause("two operands are exchanged", setting="operands", advice=_EXCHANGE)
                yield from _reordered(search, cause, (one, two), (two, one))
    for numbers in alike.values():
        for order in itertools.permutations(numbers) if 2 < len(numbers) <= _ORDERED else ():
            if all(one != two for one, two in zip(numbers, order, strict=True)):
                text = f"{len(numbers)} operands are in another order"
                yield from _reordered(
                    search,
                    Cause(text, setting="operands", advice="give them in the left's order on the right"),
                    numbers,
                    order,
                )


def exchanged_transposed(search: Search) -> Iterator[Candidate]:
    """Two inputs in each other's places, of which one lies the other way: keys are transposed before a product."""
    known = [number for number in search.slices[1].edge if number in search.bound]
    value = search.recomputation.from_left(search.bound)
    shapes = {number: search.recomputation.values[1].spec(number).shape for number in known}
    for one, two in itertools.combinations(known if len(known) <= _INPUTS else (), 2):
        shape = shapes[two]
        if len(shape) < 2 or shapes[one] != (*shape[:-2], shape[-1], shape[-2]):
            continue
        changed = list(search.right)
        for number, other in ((one, two), (two, one)):
            turned = search.recomputation.constant(value(other).transpose(-1, -2))
            changed = with_substitute(changed, number, Operand(turned))
        cause = Cause("two operands are exchanged", setting="operands", advice=_EXCHANGE)
        yield Candidate(cause, right=changed)


def _reordered(search: Search, cause: Cause, numbers: Sequence[int], order: Sequence[int]) -> Iterator[Candidate]:
    """The right with some of its inputs in other places, if these are different values."""
    if len({search.bound[number].left for number in numbers}) == len(numbers):
        moved = {number: search.bound[other] for number, other in zip(numbers, order, strict=True)}
        yield Candidate(cause, bound={**search.bound, **moved})


def other_inputs(search: Search) -> Iterator[Candidate]:
    """An input of the right that is another value than the left's: keys where there were queries."""
    left, right = search.slices
    known = [number for number in right.edge if number in search.bound]
    if len(known) > _INPUTS or len(left.edge) > _INPUTS:
        return
    taken = {search.bound[number].left for number in known}
    partners = {bound.left for bound in search.bound.values()}
    for number in known:
        for mine in left.edge:
            same = search.recomputation.values[0].spec(mine).shape == search.recomputation.values[1].spec(number).shape
            if mine in taken or mine not in partners or not same:
                continue
            makers = _origin(search, 1, number), _origin(search, 0, mine)
            origins = [_told_origin(search, *each) for each in ((1, number, makers[0]), (0, mine, makers[1]))]
            one = origins[0] == origins[1] or _are_compared(search, *makers)
            parts = (_part(search, 1, number), _part(search, 0, mine)) if one else ("", "")
            theirs, ours = (f"{part}{origin}" for part, origin in zip(parts, origins, strict=True))
            text = f"the right takes {theirs} where the left takes {ours}: are the two exchanged?"
            bound = {**search.bound, number: replace(search.bound[number], left=mine)}
            yield Candidate(Cause(text, setting="operands", advice="take the same operand on the right"), bound=bound)


def other_leaves(search: Search) -> Iterator[Candidate]:
    """The left's tables and constants in place of the right's, which nothing paired: the sines of another base, cast."""
    taken = {bound.left for bound in search.bound.values()}
    leaves = [
        [number for number in part.edge if side.maker(number) is None]
        for side, part in zip(search.recomputation.sides, search.slices, strict=True)
    ]
    ours = [number for number in leaves[0] if number not in taken]
    theirs = [number for number in leaves[1] if number not in search.bound]
    if not ours or len(ours) != len(theirs) or len(ours) > _INPUTS:
        return
    specs = [[search.recomputation.values[w].spec(number) for number in own] for w, own in enumerate((ours, theirs))]
    if [spec.shape for spec in specs[0]] != [spec.shape for spec in specs[1]]:
        return
    given = {right: Bound(left, Layout()) for left, right in zip(ours, theirs, strict=True)}
    named = ", ".join(f"{one} | {two}" if one != two else str(one) for one, two in zip(*specs, strict=True))
    text = f"the two start from different constants, which no recorded call made: {named}"
    advice = "give both sides the same constants: how they are computed before is not recorded"
    yield Candidate(Cause(text, setting="constants", advice=advice), bound={**search.bound, **given})


def _part(search: Search, which: int, number: int) -> str:
    """Which part of a result a value is: one of several that a call made of it, or the elements at an index."""
    side = search.recomputation.sides[which]
    for _ in range(_INPUTS):
        maker = side.maker(number)
        meaning = side.meaning(maker) if maker is not None else None
        if meaning is None or not traits_of(meaning).moves:
            return ""
        key = meaning.results.get(number)
        if isinstance(key, int) and len(meaning.results) > 1:
            return f"part {key + 1} of {len(meaning.results)} of "
        if meaning.operation == "getitem":
            index = meaning.arguments.get("index")
            places = index if isinstance(index, tuple) else (index,)
            return f"[{', '.join(map(told, places))}] of "
        number = next((operand.tensor for _, operand in meaning.operands()), number)
    return ""


def _origin(search: Search, which: int, number: int) -> Call | None:
    """The call that made a value, before it was moved: the name of a layer says more than the transpose after it."""
    side = search.recomputation.sides[which]
    maker = side.maker(number)
    for _ in range(_INPUTS):
        meaning = side.meaning(maker) if maker is not None else None
        if maker is None or meaning is None or not traits_of(meaning).moves:
            break
        first = next((operand.tensor for _, operand in meaning.operands()), None)
        before = side.maker(first) if first is not None else None
        if before is None:
            break
        maker = before
    return maker


def _told_origin(search: Search, which: int, number: int, maker: Call | None) -> str:
    if maker is None:
        return f"{search.recomputation.values[which].spec(number)}, which no recorded call made"
    return f"the result of {name_of(maker)} in {maker.site.path or 'the model'}"


def _are_compared(search: Search, right: Call | None, left: Call | None) -> bool:
    """True if a result of one call was compared with one of the other."""
    if right is None or left is None:
        return False
    made = set(outputs_of(left).values())
    partners = (search.bound.get(number) for number in outputs_of(right).values())
    return any(partner is not None and partner.left in made for partner in partners)
