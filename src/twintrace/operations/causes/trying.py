"""Changes tried one after the other, until one makes two slices compute the same: that is the cause, and the proof of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...model.pairs import Layout
from ...model.sites import Phase
from ..candidates import Candidate, Cause
from ..differences import HIDDEN, difference_of, relative_difference
from ..evaluation import DTYPES, SINGLE, NotRecomputable, run
from ..meanings import Meaning
from ..sides import Bound, Slice, outputs_of
from .calls import lone_calls, lone_modules, operations_of, opposite_sign, variants_of
from .inputs import exchanged_inputs, exchanged_transposed, other_inputs, other_leaves
from .masks import masks
from .paths import lone_paths, operand_paths
from .search import Search
from .settings import all_settings, factors, operands_of, settings_of, written_numbers

if TYPE_CHECKING:
    from ..recomputation import Recomputation

Tensor = torch.Tensor

_PROVEN = 1e-6
"""Relative difference that may be left when a cause explains it: constants that one side holds in float32, and recorded values in
float32 that the other side recomputes.
"""
_HELD_OTHERWISE = 1e-3
"""Share of a difference that may be left between optimizers of two frameworks, which hold 1 - β and epsilon in other precisions."""
_SHARE = 0.1
"""Share of a difference, at most, that may be left: one that is no larger than that of constants to begin with must go away."""
_FEW = 6
"""Calls of a slice up to which each is left out for a try, although the other side makes one of its kind."""
_LARGE = 1 << 18
"""Elements from which on the shapes of a changed calculation are computed before its values."""
_GROWTH = 4
"""Times the largest recorded value that a value of a changed calculation may have."""


def cause_of(
    recomputation: Recomputation,
    left: Slice,
    right: Slice,
    bound: Mapping[int, Bound],
    layout: Layout,
    paths: bool = False,
) -> Cause | None:
    """The change that makes the two sides compute the same; None if none of those tried does.

    `paths`: operands of the left in the right's calls are tried instead. That says where a difference is, not why.
    """
    try:
        f, g, _ = recomputation.both(left, right, bound, layout)
        search = Search(recomputation, left, right, bound)
    except NotRecomputable:
        return None
    visible = _without_hidden(f, g)
    masked = visible[1] is not g
    before = relative_difference(*visible)
    foreign = recomputation.sides[0].framework != recomputation.sides[1].framework and all(
        part.calls and part.calls[-1].site.phase is Phase.UPDATE for part in (left, right)
    )
    enough = min(_PROVEN, _SHARE * before)
    nearly = _HELD_OTHERWISE * before if foreign else 0.0
    for candidate in operand_paths(search) if paths else _candidates(search):
        changed, begun = (candidate.left, candidate.right), candidate.bound or bound
        if f.shape == g.shape and any(
            meanings is not None and is_oversized(recomputation, which, (left, right)[which], meanings)
            for which, meanings in enumerate(changed)
        ):
            continue
        try:
            after, other = recomputation.values_of_both(left, right, begun, layout, changed, f)
            now = relative_difference(after, _as_hidden(after, other) if masked else other)
            if now > max(enough, nearly):  # most candidates: their tolerance need not be computed
                continue
            after, other, limit = recomputation.both(left, right, begun, layout, changed)
        except NotRecomputable:
            continue
        other = _as_hidden(after, other) if masked else other
        rest = difference_of(after, other, limit, SINGLE)
        now = relative_difference(after, other)
        if not (now <= enough and not rest.significant) and not (foreign and now <= nearly):
            continue
        was = "shapes differ" if f.shape != g.shape else f"{before:.1e}"
        return replace(candidate.cause, proof=f"{was} → {now:.1e}")
    return None


def _candidates(search: Search) -> Iterator[Candidate]:
    """Everything worth trying, the likeliest first."""
    for one, two in search.pairs:
        for candidate in (*settings_of(search, one, two), *operands_of(search, one, two)):
            yield search.at(one, two, candidate)
    yield from all_settings(search)
    yield from factors(search)
    for which in (0, 1):
        yield from lone_calls(search, which)
    for which in (0, 1):
        yield from lone_modules(search, which)
    yield from lone_paths(search)
    yield from masks(search)
    for one, two in search.pairs:
        for candidate in operations_of(search, one, two):
            yield search.at(one, two, candidate)
    yield from written_numbers(search)
    for which in (1, 0):
        yield from variants_of(search, which)
    yield from opposite_sign(search)
    yield from exchanged_inputs(search)
    yield from exchanged_transposed(search)
    yield from other_inputs(search)
    yield from other_leaves(search)
    for which in (0, 1):  # the other side may make such calls for something else, inside what is one call here
        if len(search.slices[which].calls) <= _FEW:
            yield from lone_calls(search, which, every=True)


def is_oversized(recomputation: Recomputation, which: int, part: Slice, changed: Sequence[Meaning]) -> bool:
    """True if changed calls give another number of elements than was recorded, or make something far larger on the way.

    Operands in another place may make a product of all positions with all others out of a small one. Shapes are computed
    alone; False where they cannot be, as with small values, which cost less than the shapes.
    """
    spec = recomputation.values[which].spec
    numbers = {*part.edge, part.tensor, *(number for call in part.calls for number in outputs_of(call).values())}
    largest = max(math.prod(spec(number).shape) for number in numbers)
    if largest < _LARGE:
        return False

    def shaped(number: int) -> Tensor:
        if number < 0:
            return recomputation.constants[number].to("meta")
        known = DTYPES.get(spec(number).dtype, torch.float64)
        return torch.empty(spec(number).shape, dtype=torch.float64 if known.is_floating_point else known, device="meta")

    try:
        with torch.no_grad():
            made = run(changed, shaped, part.copies, spec)
    except NotRecomputable:
        return False  # a kernel that looks at values, or at none of the shapes
    if part.tensor in made and made[part.tensor].numel() != math.prod(spec(part.tensor).shape):
        return True
    return any(item.numel() > _GROWTH * largest for item in made.values())


def _without_hidden(f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Two results of which elements that both hide from a softmax count as equal: one hides with -inf, the other with -1e9."""
    if f.shape != g.shape or f.is_complex() or g.is_complex():
        return f, g
    hidden = (f <= HIDDEN) & (g <= HIDDEN)
    return (f, torch.where(hidden, f, g)) if bool(hidden.any()) and bool(((f != g) & ~hidden).any()) else (f, g)


def _as_hidden(after: Tensor, other: Tensor) -> Tensor:
    """The second result with the first one's masked scores, where both have one."""
    if after.shape != other.shape:
        return other
    return torch.where((after <= HIDDEN) & (other <= HIDDEN), after, other)
