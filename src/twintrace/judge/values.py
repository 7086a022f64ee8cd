"""Verdicts on values of the forward pass.

    Values(state, explainer).judge(item)     the standing of one pair of values, with mistakes and terms

The calls between a compared value and the compared values before it are one function on each side, recomputed in float64.

    leaves.py           values that no recorded call made: compared directly
    equal_results.py    equal values of calls that are not the same
    fallback.py         values that cannot be recomputed
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Layout, Part, TensorPair
from ..model.results import CallResult, Mistake, TensorResult, Terms
from ..model.sites import Kind, Phase
from ..model.verdicts import Outcome
from ..operations.beginnings import before_rounding, from_same_values
from ..operations.sides import Bound, Slice, name_of, outputs_of
from ..operations.traits import gives_any_order, traits_of
from .counters import are_idle_counters
from .detours import Detours, is_detour
from .equal_results import EqualResults
from .explanations import Explainer
from .fallback import Fallback, is_near
from .leaves import PICKING, Leaves
from .ranges import RangeJudge
from .rounding import unit
from .state import (
    EXACT,
    SHARES,
    SMALL,
    JudgeState,
    Standing,
    is_float,
    not_recomputable,
    relative_rms,
    told,
    worse,
)

if TYPE_CHECKING:
    from ..operations.differences import Difference

_BEYOND_CASTS = 64.0
"""Units of a cast's element type, relative to the result, that what was cast may be off by: the rounding of many layers."""
SELECTIVE = frozenset(("softmax", "log_softmax", "scaled_dot_product_attention", "relu", "clamp", "max_pool", "amax"))
"""Operations whose gradient forgets an operand where their result does: a masked score."""


_OTHER_ORDER = "the two agree, and their operands lie in another order than the one in which these agree"
_CONTRADICTION = 0.5
"""Relative difference of two results that have little in common: of operands that were taken in another order of axes."""


class Values:
    """Judges pairs of values, in the order of the data flow."""

    def __init__(self, state: JudgeState, explainer: Explainer, detours: Detours) -> None:
        self._state = state
        self._explainer = explainer
        self._detours = detours
        self._ranges = RangeJudge(state)
        self._leaves = Leaves(state)
        self._equal_results = EqualResults(state, explainer)
        self._fallback = Fallback(state, explainer, self._ranges)

    def judge(self, item: TensorResult) -> Standing:
        """Standing of a pair of values; judged once, where it is met first."""
        key = item.pair.left, item.pair.right
        if key not in self._state.values:
            judged = self._judge_value(item)
            if judged.discarded:
                self._state.discarded.add(key)
                return judged
            if judged.mistakes and self._is_by_the_way(0, item.pair.left) != self._is_by_the_way(1, item.pair.right):
                # Paired by chance: a variance that a norm puts out beside its result, and a sum on the way to it.
                return Standing(Outcome.SAME, because="one side does nothing with it")
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            self._state.remember(item, judged)
        return self._state.values[key]

    def judge_computed(self, item: TensorResult) -> Standing | None:
        """Standing of a pair that calls without partners have made, if these compute the same; else None: other rules decide."""
        numbers = item.pair.left, item.pair.right
        compared = any(self._compared(which, number) is not None for which, number in enumerate(numbers))
        judged = None if compared else self._judge_value(item)
        if judged is None or judged.discarded or judged.outcome not in (Outcome.SAME, Outcome.ROUNDING):
            if not self._detours.meets(item):
                return None
            judged = Standing(Outcome.ROUNDING, because="the same function of what agrees before the two part")
        self._state.remember(item, judged)
        return judged

    def turned(self, result: CallResult, item: TensorResult) -> Standing | None:
        """Verdict on a result of the run that lies in another order than its partner, which was compared inside; else None."""
        pair, bound = item.pair, self._state.bound.get(item.pair.right)
        if pair.part is not Part.OUTPUT or bound is None or bound.left != pair.left or bound.layout == Layout():
            return None
        roots = [call for call in (*result.match.left, *result.match.right) if call.site.kind is Kind.MODULE]
        if not roots or any(call.parent is not None for call in roots):
            return None
        specs = f"{item.left.spec} | {item.right.spec}"
        order = "another shape" if bound.layout.axes is None else "another order"
        if pair.layout == bound.layout:  # two programs, which may return it as each likes
            self._state.remarks.append(f"the results are returned in {order} ({bound.layout}): {specs}")
            return None
        what = f"the two results are returned in {order}: {specs}"
        why = f"the right's values are the left's in {order} ({bound.layout})"
        mistake = Mistake("meaning", what, why, "return it as the other side does")
        return Standing(Outcome.DIFFERENT, None, what, (mistake,), sources=frozenset((mistake,)))

    def _are_other_steps(self, item: TensorResult, left: Slice, right: Slice) -> bool:
        """True if results of different sizes are made by other operations: a factor that one side applies before a product and the
        other after it. If they are no steps to one result, that result will tell.
        """
        kinds = []
        for which, part in enumerate((left, right)):
            meanings = [self._state.sides[which].meaning(call) for call in part.calls]
            kinds.append(sorted(meaning.operation for meaning in meanings if meaning and not traits_of(meaning).moves))
        makers = [*self._state.sides[0].makers(item.pair.left), *self._state.sides[1].makers(item.pair.right)]
        taken = self._state.sides[0].takers(item.pair.left) and self._state.sides[1].takers(item.pair.right)
        if taken and self._picks_rows(0, left) != self._picks_rows(1, right):
            return True  # an expert for the tokens that need it on one side, and for all of them on the other
        if any(call.site.kind is Kind.MODULE for call in makers):
            return False
        moved = not kinds[0] and not kinds[1] and bool(taken)  # values in another shape: who takes them will tell
        return kinds[0] != kinds[1] or moved

    def _picks_rows(self, which: int, part: Slice) -> bool:
        """True if a call of a slice takes some rows of a tensor, which another tensor says."""
        for call in part.calls:
            meaning = self._state.sides[which].meaning(call)
            if meaning is not None and meaning.operation in PICKING and len(list(meaning.operands())) > 1:
                return True
        return False

    def _is_by_the_way(self, which: int, number: int) -> bool:
        """True if a tensor is one of several that a call puts out, and nobody takes it. One that is written over another stays."""
        side = self._state.sides[which]
        makers = side.makers(number)
        if any(call.site.phase is Phase.UPDATE or number in call.after.values() for call in makers):
            return False
        alone = any(len(outputs_of(call)) < 2 or call.site.kind is Kind.MODULE for call in makers)
        return bool(makers) and not alone and not side.takers(number)

    def _judge_value(self, item: TensorResult) -> Standing:
        pair = item.pair
        if item.verdict.outcome is Outcome.SAME and item.left.spec.shape == item.right.spec.shape:
            self._detours.note_equal(item)
            return self._equal_results.judge(item) or Standing(Outcome.SAME)
        compared = self._compared(0, pair.left), self._compared(1, pair.right)
        if compared[0] is not None and compared[1] is not None:
            return self._crossed(compared[0], compared[1], pair)
        known = pair.left in self._state.known[0], pair.right in self._state.known[1]
        # A value that was compared with another one before stands for itself: only what the other side does since then is asked.
        left = (
            Slice(pair.left, (), (pair.left,))
            if known[0]
            else self._state.sides[0].slice(pair.left, self._state.known[0])
        )
        right = (
            Slice(pair.right, (), (pair.right,))
            if known[1]
            else self._state.sides[1].slice(pair.right, self._state.known[1])
        )
        if self._leaves.is_uninitialised(0, left) or self._leaves.is_uninitialised(1, right):
            return Standing(Outcome.SAME, because="memory that nothing has written to yet")
        if self._leaves.covers(0, left) and self._leaves.covers(1, right):
            sizes = math.prod(item.left.spec.shape), math.prod(item.right.spec.shape)
            modules = [*self._state.sides[0].takers(pair.left), *self._state.sides[1].takers(pair.right)]
            if sizes[0] != sizes[1] and pair.part is Part.INPUT and modules and not item.left.requires_grad:
                # A mask for all heads, and one for each: what is made of it will tell.
                return Standing(Outcome.SAME, because="given in another shape", discarded=True)
            prints = item.left.fingerprint or "", item.right.fingerprint or ""
            if sizes[0] != sizes[1] and (
                prints in self._state.before or self._state.recomputation.recorded.is_part(pair.left, pair.right)
            ):
                # One weight for several layers, and one for each of them: what is made of it will tell.
                return Standing(Outcome.SAME, because="rows of one weight, in several", discarded=True)
            return self._leaves.judge(item)
        incoming = self._state.incoming(left, right)
        bound = self._state.partners(left, right)
        random = self._explainer.draws(left, right)
        if random is not None:
            return self._explainer.random_mistake(item, left, right, random, incoming)
        audited = self._audited(left, right)
        mistakes = [mistake for mistake in audited.mistakes]
        terms = audited.terms or Terms()
        recomputation = self._state.recomputation
        same = recomputation.same_meaning(left, right, bound)
        try:
            difference = None if same else recomputation.difference(left, right, bound, pair.layout)
            if (
                difference is not None
                and not difference.significant
                and incoming.outcome in (Outcome.SAME, Outcome.ROUNDING)
            ):
                longer = from_same_values(self._state.sides, left, right, bound, self._state.known, self._state.agrees)
                if longer != (left, right):
                    left, right = longer
                    bound = self._state.partners(left, right)
                    difference = recomputation.difference(left, right, bound, pair.layout)
            elif difference is not None and difference.significant:
                longer = before_rounding(self._state.sides, left, right, self._state.known)
                if longer != (left, right):
                    partners = self._state.partners(*longer)
                    unrounded = recomputation.difference(*longer, partners, pair.layout)
                    if not unrounded.significant:
                        (left, right), bound, difference = longer, partners, unrounded
        except not_recomputable() as error:
            unsettled = audited.mistakes or audited.untold or incoming.outcome is not Outcome.DIFFERENT
            if not unsettled and self._detours.meets_again(item, incoming.sources):
                return Standing(Outcome.ROUNDING, terms, "the same function of what agrees before the two part")
            return self._fallback.judge(item, incoming, audited, str(error), left, right)
        if difference is not None and difference.shapes is not None and self._are_other_steps(item, left, right):
            return Standing(Outcome.SAME, because="other steps on the way to the same result", discarded=True)
        if incoming.outcome is Outcome.DIFFERENT and self._detours.meets_again(item, incoming.sources):
            incoming, difference = Standing(Outcome.ROUNDING), None
        terms = replace(terms, inherited=recomputation.inherited(left, right, bound, same))
        precise = self._explainer.precision_mistake(item, left, right, difference)
        if precise is not None:
            mistakes.append(precise)
        if difference is not None and (precise is None or self._is_more_than_a_cast(left, right, difference)):
            terms = replace(terms, meaning=difference.relative)
            if difference.significant and self._state.recomputation.is_unavoidable(left, right):
                names = " and ".join(dict.fromkeys(name_of(call) for call in (*left.calls, *right.calls)))
                if difference.relative < SHARES:  # beyond: gradients of noise, which an optimizer makes full steps of
                    self._state.notes[names] = max(self._state.notes.get(names, 0.0), difference.relative)
            elif difference.significant:
                if (
                    is_near(item)
                    and not audited.mistakes
                    and _contradicts_itself(incoming, difference, terms.inherited)
                ):
                    return Standing(Outcome.ROUNDING, terms, _OTHER_ORDER)
                if self._belong_elsewhere(pair):
                    return Standing(Outcome.SAME, because="values for different calls", discarded=True)
                if self._is_a_step_ahead(pair, left, right):
                    return Standing(Outcome.SAME, because="one side is a step ahead of the other here", discarded=True)
                moves = self._are_moves(left, right, pair)
                early = moves and not (left.calls and right.calls)  # one side has moved it, the other may do so later
                cause = None if early else self._explainer.cause(left, right, pair)
                if cause is None and moves:
                    return Standing(
                        Outcome.SAME, because="other values, for other steps to the same result", discarded=True
                    )
                mistakes.append(self._explainer.meaning_mistake(left, right, pair, difference, cause))
                self._state.origins.setdefault(mistakes[-1], (pair, left, right))
        if audited.untold and not mistakes:
            return self._fallback.judge(item, incoming, audited, audited.untold, left, right)
        small = difference is None or difference.relative < SHARES
        if incoming.outcome is not Outcome.DIFFERENT and (not mistakes or (small and not audited.mistakes)):
            spoiled = self._ranges.of_value(item, left, right, bound)
            mistakes[:0] = [spoiled] if spoiled is not None else []
        if mistakes:
            return Standing(Outcome.DIFFERENT, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if incoming.outcome is Outcome.DIFFERENT and not self._still_visible(
            item, terms.inherited, right, incoming.sources
        ):
            incoming = Standing(Outcome.ROUNDING)
        outcome = worse(Outcome.ROUNDING, incoming.outcome)
        updated = bool(left.calls) and left.calls[-1].site.phase is Phase.UPDATE
        detour = updated and any(map(is_detour, self._state.begins_with(left, right)))
        because, reordered = told(terms, incoming.outcome), self._is_reordered(item, left, right)
        return Standing(outcome, terms, because, sources=incoming.sources, detour=detour, reordered=reordered)

    def _is_more_than_a_cast(self, left: Slice, right: Slice, difference: Difference) -> bool:
        """True if two slices differ by far more than the coarsest element type in them explains: a cast, and a scale that lacks."""
        types = {
            self._state.sides[which].tensor(number).spec.dtype
            for which, part in enumerate((left, right))
            for call in part.calls
            for number in outputs_of(call).values()
        }
        coarsest = max((unit(dtype, dtype) for dtype in types), default=0.0)
        return difference.significant and difference.relative > _BEYOND_CASTS * coarsest

    def _is_reordered(self, item: TensorResult, left: Slice, right: Slice) -> bool:
        """True if two values that are both right differ because a call before them may give its results in any order, or has
        chosen otherwise between values that are equal or apart by rounding.
        """
        if item.verdict.outcome is not Outcome.DIFFERENT or are_idle_counters(self._state, item.pair):
            return False
        if any(judged.reordered for judged in self._state.begins_with(left, right)):
            return True
        calls = [(which, call) for which, part in enumerate((left, right)) for call in part.calls]
        meanings = [(call, self._state.sides[which].meaning(call)) for which, call in calls]
        if any(meaning is not None and gives_any_order(meaning) for _, meaning in meanings):
            return True
        if self._state.incoming(left, right).outcome is Outcome.DIFFERENT:
            return False
        decided = not is_float(item.left.spec.dtype) and not is_float(item.right.spec.dtype)
        choosers = [name_of(call) for call, meaning in meanings if meaning is not None and traits_of(meaning).chooses]
        if not choosers and not decided:
            return False
        names = " | ".join(dict.fromkeys(choosers or [name_of(call) for call, _ in meanings]))
        self._state.remarks.append(
            f"{names}: rounding decides{self._decided(item) if decided else ''} between values that are equal or nearly so; "
            "each side is right, and what follows differs by that"
        )
        return True

    def _decided(self, item: TensorResult) -> str:
        """Count of the elements in which two decisions differ, as text."""
        try:
            left, right = self._state.recomputation.recorded.laid_alike(
                (item.pair.left, item.pair.right), item.pair.layout
            )
        except (not_recomputable(), RuntimeError):
            return ""
        return f" {int((left != right).sum()):,} of {left.numel():,} elements"

    def _is_a_step_ahead(self, pair: TensorPair, left: Slice, right: Slice) -> bool:
        """True if an operand of one side is made of the partner of the other's, within a region: a variance with its epsilon beside
        one that gets it in the next call. The result of the region will tell.
        """
        if pair.part is not Part.INPUT or bool(left.calls) == bool(right.calls):
            return False
        behind = self._state.right_of.get(pair.left) if right.calls else self._state.partner(1, pair.right)
        takers = [self._state.sides[which].takers((pair.left, pair.right)[which]) for which in (0, 1)]
        matches = [self._state.match_of[which].get(call.id) for which in (0, 1) for call in takers[which]]
        regions = any(match is not None and len(match.left) + len(match.right) > 2 for match in matches)
        return regions and behind in (right.edge if right.calls else left.edge)

    def _belong_elsewhere(self, pair: TensorPair) -> bool:
        """True if the calls that take one of two values have partners, of which none depends on the other value: positions for an
        embedding on one side, and for a mask on the other. If that is a mistake, the partners will tell. An optimizer's state is
        not only for the calls that take it.
        """
        if any(call.site.phase is Phase.UPDATE for call in self._state.sides[0].makers(pair.left)):
            return False
        for which, (number, other) in enumerate(((pair.left, pair.right), (pair.right, pair.left))):
            matches = [self._state.match_of[which].get(call.id) for call in self._state.sides[which].takers(number)]
            partners = [call for match in matches if match is not None for call in (match.left, match.right)[1 - which]]
            side = self._state.sides[1 - which]
            if partners and not any(side.depends(call, other) for call in partners):
                return True
        return False

    def _compared(self, which: int, number: int) -> int | None:
        """The value that was compared before, itself or one that it is an unseen copy of; None if there is none."""
        numbers = (number, *reversed(self._state.sides[which].originals(number)))
        return next((item for item in numbers if item in self._state.known[which]), None)

    def _crossed(self, left: int, right: int, copies: TensorPair) -> Standing:
        """Operands in the same place of two calls that were each compared with another one: the calls take other values. If they
        are `copies` of a pair, that pair's standing, and its order of axes.
        """
        pair = self._state.values.get((left, right))
        if pair is not None:
            known = self._state.bound.get(right)
            if known is not None and known.left == left:
                self._state.bound.setdefault(copies.right, Bound(copies.left, known.layout))
            because = "a copy of what was compared"
            return Standing(pair.outcome, because=because, sources=pair.sources, reordered=pair.reordered)
        others = [self._state.of_left[left], self._state.values[self._state.bound[right].left, right]]
        outcome = worse(*(judged.outcome for judged in others))
        sources = frozenset().union(*(judged.sources for judged in others))
        return Standing(
            outcome, because="the two calls take other values here: each was compared elsewhere", sources=sources
        )

    def _audited(self, left: Slice, right: Slice) -> Standing:
        """Own roundings of the calls of both sides: terms, mistakes of kernels, why something could not be told."""
        ratios: list[float | None] = [None, None]
        mistakes: list[Mistake] = []
        untold = ""
        self._state.recomputation.audit_both(left.calls, right.calls)
        for which, part in enumerate((left, right)):
            for call in part.calls:
                audit = self._state.recomputation.audit(which, call)
                untold = untold or audit.failure
                for number, score in audit.forward.items():
                    ratios[which] = max(ratios[which] or 0.0, score.ratio)
                    self._state.remark_on(which, call, score, "its result")
                    if score.ratio > 1 and (which, number) not in self._state.accused:
                        mistakes.append(self._state.kernel_mistake(which, call, number, score))
                        self._state.accused[which, number] = mistakes[-1]
        return Standing(
            Outcome.ROUNDING,
            Terms(ratios[0], 0.0 if not untold else None, None, ratios[1]),
            "",
            tuple(mistakes),
            untold,
        )

    def _are_moves(self, left: Slice, right: Slice, pair: TensorPair) -> bool:
        """True if both sides only moved values, which others take: halves on one side, every second one on the other. If that is
        a mistake, what is made of them will tell.
        """
        for which, part in enumerate((left, right)):
            side, number = self._state.sides[which], (pair.left, pair.right)[which]
            meanings = [side.meaning(call) for call in part.calls]
            if not all(meaning is not None and traits_of(meaning).moves for meaning in meanings):
                return False
            if not side.takers(number) or (
                part.calls and any(call.site.kind is Kind.MODULE for call in side.makers(number))
            ):
                return False
        return True

    def _still_visible(
        self, item: TensorResult, inherited: float | None, right: Slice, sources: Collection[Mistake]
    ) -> bool:
        """True if a mistake before is more than rounding here. One that never was more cannot be gone by that."""
        if any(mistake.kind in ("meaning", "leaf") and mistake.size < SMALL for mistake in sources):
            return True
        if self._ranges.is_on_one_side(item):
            return True
        if item.measurement is None or relative_rms(item) >= SHARES:
            return True
        try:
            visible = self._state.recomputation.is_visible(inherited, right, self._state.bound)
        except not_recomputable():
            return True
        if visible and not self._is_selective(right):
            return True
        effect = self._effect(item, sources)
        # What is as small as the rounding of 16 bits is there all the same, unless nothing is left of it in float64.
        return visible if effect is None else effect > EXACT

    def _is_selective(self, right: Slice) -> bool:
        """True if an operation between may drop what a mistake changed, so that all that is left of a difference is rounding."""
        meanings = [self._state.sides[1].meaning(call) for call in right.calls]
        return any(meaning is not None and meaning.operation in SELECTIVE for meaning in meanings)

    def _effect(self, item: TensorResult, sources: Collection[Mistake]) -> float | None:
        """Relative effect of mistakes at a value if nothing is rounded on the way; None if it is not known."""
        if not all(mistake in self._state.origins for mistake in sources):
            return None
        changed = self._state.choices(sources)
        if not changed:
            return None
        from ..operations.replay import effect

        return effect(self._state.recomputation, changed, item.pair.right)


def _contradicts_itself(incoming: Standing, difference: Difference, inherited: float | None) -> bool:
    """True if operands that agree would give another result altogether on the other side, and other calls make up for all of that:
    of a square weight, or of queries, keys and values in one, an order of axes fits that is not theirs.
    """
    agrees = incoming.outcome in (Outcome.SAME, Outcome.ROUNDING)
    return agrees and inherited is not None and min(difference.relative, inherited) >= _CONTRADICTION
