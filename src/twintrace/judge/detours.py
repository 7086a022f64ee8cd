"""Other ways to the same result: values that part on the way, and meet again.

    left     x ─ /5 ────────── tanh ──────────────────── ×5 ─ y
    right    x ─ ×2 ─ /5 ─ sigmoid ─ ×2 ─ −1 ─────────── ×5 ─ y       what lies between x and y has no counterpart

Detours(state).meets_again(item, sources)     two values mean the same if they are recomputed from what agrees before the parting
Detours(state).settle(ends)                   partings of which nothing reaches a result are none: weights in another order, folded

A weight counts even where this input does not show it, and a table of 16 bits may be off by its rounding. So other weights and data
are another way only if the right with the left's would give something else: what they changed is undone by the calls after them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable

from ..model.pairs import Part, TensorPair
from ..model.records import Call
from ..model.results import Mistake, TensorResult
from ..model.sites import Phase
from ..model.verdicts import Outcome
from ..operations.beginnings import from_same_values
from ..operations.sides import Bound, Slice
from ..operations.traits import traits_of
from .ends import Ends
from .rounding import unit
from .state import SHARES, SINGLE, JudgeState, Standing, name_of_pair, not_recomputable, relative_rms

_NEAR = 16.0
"""Units of the element type within which recorded values lie that were computed in two ways."""
_LONGEST = 256
"""Calls between the parting and the meeting that are recomputed at once."""
_TRIES = 24
"""Values after a parting that are tried in vain: a small mistake leaves all of them near each other."""
_CONVERTED = 16.0
"""Units by which weights of float32 must differ at least to be another way: 4 units for each of them is what recomputation allows
(`Recomputation.is_same_function`), 4 times, so that the right with the left's weights could not be told from what it is.
"""
_HELD = frozenset(("weights", "leaf"))
_UNDONE = 0.5
"""Share of the difference that a mistake makes where two values part, of which less is left where it is undone."""
_KINDS = _HELD | {"meaning"}
_BECAUSE = "another step on the way to the same result"


class Detours:
    """Finds where values meet again that have parted."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._tries: Counter[Mistake] = Counter()
        """Values made of each mistake that were tried in vain."""
        self._met: set[Mistake] = set()
        """Mistakes of which a value made no difference that was made of them."""
        self._passed: tuple[set[int], set[int]] = (set(), set())
        """Results without a partner that were looked at."""

    def meets_again(self, item: TensorResult, sources: frozenset[Mistake]) -> bool:
        """True if two values that were made of parted ones are the same function of what agrees before these."""
        if not sources or not all(mistake in self._state.origins and mistake.kind in _KINDS for mistake in sources):
            return False  # a wrong kernel, random numbers, a cast: the function is the same, and its results are not
        if not self._is_near(item) or any(self._tries[mistake] >= _TRIES for mistake in sources):
            return False
        if any(mistake.kind in _HELD and self._is_unconverted(mistake) for mistake in sources):
            return False
        if not self._is_same_function(item.pair, sources):
            self._tries.update(sources)
            return False
        self._met |= sources
        return True

    def _is_same_function(self, ends: TensorPair, sources: frozenset[Mistake]) -> bool:
        """True if two values are the same function of what agrees before their sources, and not with the left's weights."""
        agreeing = [{number for number in self._state.known[which] if self._belongs(which, number)} for which in (0, 1)]
        bound = {number: other for number, other in self._state.bound.items() if self._belongs(1, number)}
        recomputation, sides = self._state.recomputation, self._state.sides
        left, right = from_same_values(
            sides,
            sides[0].slice(ends.left, agreeing[0]),
            sides[1].slice(ends.right, agreeing[1]),
            bound,
            (agreeing[0], agreeing[1]),
            self._state.agrees,
        )
        if not self._can_be_recomputed(left, right):
            return False
        converted = [self._state.origins[mistake][0] for mistake in sources if mistake.kind in _HELD]
        try:
            within = min(map(self._undone_below, sources), default=math.inf)
            if not recomputation.is_same_function(
                left, right, bound, ends.layout, converted=bool(converted), within=within
            ):
                return False
            for pair in converted:
                taken = {**bound, pair.right: Bound(pair.left, pair.layout)}
                if recomputation.is_same_function(left, right, taken, ends.layout, converted=True):
                    return False
        except not_recomputable():
            return False
        return True

    def _undone_below(self, mistake: Mistake) -> float:
        """Relative difference of two values below which a mistake is undone there. What saved values explain in 16 bits may be as
        much as a small mistake makes.
        """
        if mistake.kind != "meaning" or not mistake.size:
            return math.inf
        pair = self._state.origins[mistake][0]
        types = (self._state.sides[which].tensor((pair.left, pair.right)[which]).spec.dtype for which in (0, 1))
        return _UNDONE * mistake.size * max(unit(*types), SINGLE)

    def _belongs(self, which: int, number: int) -> bool:
        """True if a value agrees with the one that it was compared with, and is no step of a way of its own."""
        return self._state.agrees(which, number) and not is_detour(self._state.standing(which, number))

    def meets(self, item: TensorResult) -> bool:
        """True if two values near each other are the same function of what agrees before them."""
        return self._is_near(item) and self._is_same_function(item.pair, frozenset())

    def _is_unconverted(self, mistake: Mistake) -> bool:
        """True of other weights that are so near the left's that nothing tells the two apart: no call after them undoes that."""
        pair = self._state.origins[mistake][0]
        types = (self._state.sides[which].tensor((pair.left, pair.right)[which]).spec.dtype for which in (0, 1))
        return 0 < mistake.size < _CONVERTED and unit(*types) <= SINGLE

    def note_equal(self, item: TensorResult) -> None:
        """Takes note of equal values that were made of parted ones: halves of queries whose weights lie in another order."""
        if not self._state.origins:
            return
        parts = [
            self._state.sides[which].slice(number, self._state.known[which])
            for which, number in enumerate((item.pair.left, item.pair.right))
        ]
        incoming = self._state.incoming(parts[0], parts[1])
        if incoming.outcome is Outcome.DIFFERENT:
            self.meets_again(item, incoming.sources)

    def _is_near(self, item: TensorResult) -> bool:
        if item.verdict.outcome is Outcome.SAME:
            return True
        limit = max(SHARES, _NEAR * unit(item.left.spec.dtype, item.right.spec.dtype))
        return item.measurement is not None and relative_rms(item) <= limit

    def _can_be_recomputed(self, left: Slice, right: Slice) -> bool:
        if left.failure or right.failure or not left.calls or not right.calls:
            return False
        if max(len(left.calls), len(right.calls)) > _LONGEST:
            return False
        return not any(self._draws(which, call) for which, part in enumerate((left, right)) for call in part.calls)

    def _draws(self, which: int, call: Call) -> bool:
        meaning = self._state.sides[which].meaning(call)
        return meaning is None or traits_of(meaning).random

    def settle(self, ends: Ends) -> None:
        """Takes back what was told of values that met again, where nothing of it reaches a result of the left (`ends`)."""
        for which in (0, 1):
            for number, call in ends.unpaired(which).items():
                if call.site.phase is Phase.FORWARD and number not in self._passed[which]:
                    self._passed[which].add(number)
                    self._meet_at_result(which, number, ends)
        reached: set[Mistake] = set()
        elsewhere = self._paired_elsewhere(ends)
        for pair, judged in self._state.values.items():
            if pair[0] in ends.of[0] and judged.outcome is Outcome.DIFFERENT and pair not in elsewhere:
                reached |= judged.sources
        for pair in filter(lambda pair: self._is_parting(self._state.values[pair]), elsewhere):
            own = frozenset(self._state.values[pair].mistakes)
            self._met |= own if own.isdisjoint(reached) else frozenset()
        undone = self._met - reached
        for judged in self._state.values.values() if undone else ():
            if judged.outcome is Outcome.DIFFERENT and judged.sources <= undone and judged.sources:
                judged.outcome, judged.because, judged.terms = Outcome.ROUNDING, _BECAUSE, None
                judged.sources, judged.detour = frozenset(), True
                judged.mistakes = tuple(mistake for mistake in judged.mistakes if mistake.kind not in _HELD)
        self._remark(undone - self._state.undone)
        self._state.undone |= undone

    def _meet_at_result(self, which: int, number: int, ends: Ends) -> None:
        """Compares a result that has no partner with one of the other side that was paired with a step on the way to it: the mean
        of losses on one side, their sum and what divides it on the other.
        """
        state = self._state
        rest = state.sides[which].slice(number, state.known[which])
        for step in () if rest.failure else rest.edge:
            partner = state.partner(which, step)
            if partner is None or partner not in ends.of[1 - which] or step in ends.of[which]:
                continue
            judged = state.values.get((step, partner) if which == 0 else (partner, step))
            if judged is None or not self._is_parting(judged):
                continue
            left, right = (number, partner) if which == 0 else (partner, number)
            met = TensorPair(Part.OUTPUT, "", "", left, right)
            apart, size = state.recomputation.recorded.distance((left, right), met.layout)
            near = size > 0 and apart <= SHARES * size
            if not near or not self._are_right(which, rest.calls) or not self._is_same_function(met, judged.sources):
                continue
            self._met |= judged.sources
            judged.outcome, judged.because, judged.terms = Outcome.ROUNDING, _BECAUSE, None
            judged.sources, judged.detour, judged.mistakes = frozenset(), True, ()
            state.values[left, right] = Standing(
                Outcome.ROUNDING, because="the same result, by other steps", detour=True
            )
            state.known[which].add(number)
            return

    def _is_parting(self, judged: Standing) -> bool:
        """True if two values differ by what their calls mean, and by nothing else."""
        meant = all(mistake.kind == "meaning" and mistake in self._state.origins for mistake in judged.sources)
        return judged.outcome is Outcome.DIFFERENT and bool(judged.mistakes) and meant

    def _are_right(self, which: int, calls: Iterable[Call]) -> bool:
        """True if all results of calls are what these compute, but for their rounding."""
        audits = [self._state.recomputation.audit(which, call) for call in calls]
        return all(not audit.failure and all(score.ratio <= 1 for score in audit.forward.values()) for audit in audits)

    def _paired_elsewhere(self, ends: Ends) -> set[tuple[int, int]]:
        """Pairs of a result and a step on the way to another that differ: the result agrees with one of the other side as well."""
        agreeing: tuple[set[int], set[int]] = (set(), set())
        for pair, judged in self._state.values.items():
            if judged.outcome.good and pair[0] in ends.of[0] and pair[1] in ends.of[1]:
                agreeing[0].add(pair[0])
                agreeing[1].add(pair[1])
        return {
            pair
            for pair, judged in self._state.values.items()
            if judged.outcome is Outcome.DIFFERENT
            and any(pair[which] in agreeing[which] and pair[1 - which] not in ends.of[1 - which] for which in (0, 1))
        }

    def _remark(self, undone: Collection[Mistake]) -> None:
        others = [name_of_pair(self._state.origins[mistake][0]) for mistake in undone if mistake.kind == "weights"]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            first = min(others)
            self._state.remarks.append(
                f"{first}{more}: other weights, of which the calls after them make the same results"
            )


def is_detour(judged: Standing | None) -> bool:
    """True of values that were compared and do not belong together: each side goes its own way here."""
    return judged is not None and judged.detour
