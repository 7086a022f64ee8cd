"""Verdicts on gradients: each call's by its vector-Jacobian product, sums by what was sent back.

Gradients(state).judge(item)     the standing of one pair of gradients

gradient_parts.py       what a gradient is added up of
gradient_rounding.py    how far apart rounding may have brought two gradients
agreed_gradients.py     gradients that agree, and partings of which nothing is left there
ways_back.py            gradients that come back in other ways, computed through both
cuts.py                 calls that stop a gradient on one side alone
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ..model.pairs import Part, TensorPair
from ..model.records import Call
from ..model.results import Mistake, TensorResult, Terms
from ..model.sites import Phase
from ..model.verdicts import BADNESS, Outcome
from ..operations.sides import Side, inputs_of, name_of, outputs_of
from ..operations.traits import traits_of
from ..operations.written import is_view, is_written_over
from .agreed_gradients import AgreedGradients
from .cuts import Cuts
from .detours import is_detour
from .fallback import is_near, may_have_met
from .gradient_parts import GradientParts
from .gradient_rounding import GradientRounding
from .leaves import LEAF_UNITS
from .ranges import RangeJudge
from .state import (
    UNSEEN,
    JudgeState,
    Standing,
    is_float,
    name_of_pair,
    only_call,
    times_bound,
    together,
    told,
    worse,
)
from .values import SELECTIVE
from .ways_back import Parts, WaysBack

_UNAUDITED = 1 / 32
"""Relative error of gradients, at most, up to which a call on their way that could not be recomputed is taken to be right."""
_UNSENT = "no recorded call sends this gradient back"
_PLAIN = 1e5
"""Times what rounding explains, from which on a gradient differs that could not be recomputed."""
_TENTH = 0.1
"""Relative error of such a gradient, at least."""
_UNPROVEN = "it is made of values that differ and were not recomputed"


class Gradients:
    """Judges pairs of gradients, in the order of the backward pass."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._ranges = RangeJudge(state)
        self._parts = GradientParts(state)
        self.rounding = GradientRounding(state)
        self.cuts = Cuts(state, self.rounding)
        self.agreed = AgreedGradients(state)
        self._ways = WaysBack(state, self._parts, self.rounding, self.agreed)

    def judge(self, item: TensorResult) -> Standing:
        """Standing of a pair of gradients; judged once, where it is met first."""
        key = item.pair.left, item.pair.right
        if key not in self._state.gradients:
            if self._parts.values_of(item.pair) in self._state.discarded:
                return Standing(Outcome.SAME, because="gradients of values that do not belong together", discarded=True)
            values = self._state.values.get(self._parts.values_of(item.pair))  # type: ignore[arg-type]
            reordered = values is not None and values.reordered
            alone = reordered or self._is_on_detour(item.pair) or self._is_a_part(item.pair)
            judged = self._each_for_itself(item) if alone else self._judge_gradient(item)
            open_ = judged.outcome is Outcome.UNKNOWN and not alone and not judged.sources
            if open_ and not self._written(item) and self._is_plainly_other(item):
                judged = self._plainly_other(item)
            open_ = judged.outcome is Outcome.UNKNOWN or any(mistake.kind == "unproven" for mistake in judged.mistakes)
            if open_ and self._follows_choice(item):
                judged = self._each_for_itself(item)
            if judged.outcome is Outcome.ROUNDING and item.verdict.outcome is Outcome.DIFFERENT:
                judged.reordered = self._follows_choice(item)
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            elif self._meets_again(item, judged):
                self._state.undone |= judged.sources
                judged = Standing(Outcome.ROUNDING, because="the same gradient, which comes back by other ways")
            elif judged.outcome is Outcome.DIFFERENT and may_have_met(self._state, item, judged.sources):
                judged = Standing(Outcome.UNKNOWN, None, item.verdict.because, sources=judged.sources, untold=_UNPROVEN)
            elif judged.outcome is Outcome.UNKNOWN and judged.sources and not is_near(item):  # nothing has met here
                judged = Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=judged.sources)
            self._state.gradients[key] = judged
            if judged.outcome is Outcome.ROUNDING and not judged.discarded and not judged.reordered:
                self.rounding.settle(item)
            self.agreed.note(item, self._parts.values_of(item.pair), judged)
            if item.left.fingerprint and item.right.fingerprint:
                self._state.gradient_by_bits[item.left.fingerprint, item.right.fingerprint] = judged
            for which, number in enumerate(key):
                known = self._state.gradient_of[which].get(number)
                if known is None or BADNESS[known.outcome] < BADNESS[judged.outcome]:
                    self._state.gradient_of[which][number] = judged
                if judged.outcome is Outcome.ROUNDING and (item.verdict.error or 0.0) >= self.rounding.least:
                    self.rounding.noise[which].add(number)
        return self._state.gradients[key]

    def parameter_by_gradient(self, which: int, gradient: int) -> int | None:
        """The weight that a gradient is of, by the parts that it is added up of."""
        return self._parts.parameter_by_gradient(which, gradient)

    def _meets_again(self, item: TensorResult, judged: Standing) -> bool:
        """True if gradients that were made of parted ones agree: a loss that takes its logits by one way, or by two."""
        if (
            judged.outcome is not Outcome.DIFFERENT
            or not judged.sources
            or (item.verdict.error or 0.0) >= self.rounding.least
        ):
            return False
        if not all(mistake.backward and mistake.kind == "gradient" for mistake in judged.sources):
            return False
        found = self._ways.difference(item)
        return found is not None and not found.significant

    def _is_on_detour(self, pair: TensorPair) -> bool:
        """True if each side goes its own way to what follows: an expert for the tokens that need it, and for all of them."""
        left, right = self._parts.values_of(pair)
        if left is None or right is None:
            return False
        sizes = [
            math.prod(self._state.sides[which].tensor(number).spec.shape) for which, number in enumerate((left, right))
        ]
        apart = sizes[0] != sizes[1] and pair.part is Part.OUTPUT_GRADIENT
        return apart or is_detour(self._state.values.get((left, right)))

    def _is_a_part(self, pair: TensorPair) -> bool:
        """True if one gradient is a part of what the other is all of: one side computes a value once, the other once for each call
        that takes it; or one call takes a value on one side, several on the other.
        """
        left, right = self._parts.values_of(pair)
        twins = [
            0 if value is None else len(side.twins(value))
            for side, value in zip(self._state.sides, (left, right), strict=True)
        ]
        if twins[0] != twins[1]:
            return True
        if left is None or right is None or pair.part is not Part.INPUT_GRADIENT:
            return False
        parts = [
            [number for _, number in side.contributions(value)]
            for side, value in zip(self._state.sides, (left, right), strict=True)
        ]
        all_parts = all(number in own for number, own in zip((pair.left, pair.right), parts, strict=True))
        return all_parts and min(map(len, parts)) == 1 < max(map(len, parts))

    def _follows_choice(self, item: TensorResult) -> bool:
        """True if a gradient comes back from values that one side has chosen otherwise, of nearly equal ones."""
        sent = self._parts.sent(item.pair)
        return any(self._comes_back(which, call).reordered for which in (0, 1) for call, _ in sent[which])

    def _each_for_itself(self, item: TensorResult) -> Standing:
        """Gradients of values that do not belong together: each is what its own call sends back, or it is not."""
        found = []
        for which, parts in enumerate(self._parts.sent(item.pair)):
            for call, gradient in parts:
                found += [self._audited_gradient(which, call, gradient), self._comes_back(which, call)]
        judged = together(found)
        if judged.outcome is Outcome.ROUNDING or judged.outcome is Outcome.SAME:
            return Standing(
                Outcome.ROUNDING,
                because="gradients of values on two ways to the same result",
                discarded=True,
            )
        return Standing(judged.outcome, None, judged.because or item.verdict.because, sources=judged.sources)

    def _judge_gradient(self, item: TensorResult) -> Standing:
        if item.verdict.outcome is Outcome.SAME:
            return Standing(Outcome.SAME)
        parts = self._parts.sent(item.pair)
        spoiled = self._ranges.of_gradient(item) if any(parts) else None
        if spoiled is not None:
            standings = [self.standing_of_gradient(which, part) for which in (0, 1) for _, part in parts[which]]
            incoming = together(standings)
            if incoming.outcome is Outcome.DIFFERENT:
                return Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=incoming.sources)
            return Standing(Outcome.DIFFERENT, None, spoiled.what, (spoiled,))
        written = self._written_over(item, parts)
        if written is not None:
            return written
        if all(
            len(sent) == 1 and sent[0][1] == number
            for sent, number in zip(parts, (item.pair.left, item.pair.right), strict=True)
        ):
            return self._sent(item, parts[0], parts[1])
        return self._added_up(item, parts)

    def _written_over(self, item: TensorResult, parts: Parts) -> Standing | None:
        """Standing of the gradient of a value that one side writes to through a view: no calls send all of it back. None of others,
        and if it cannot be recomputed.
        """
        written = self._written(item)
        found = self._ways.difference(item) if written else None
        if found is not None:
            if found.significant:
                return self._ways.told(item, found, parts)
            return Standing(Outcome.ROUNDING, because="computed through the calls that write to it")
        # Of a view only what was sent back before it was written to is seen; what it is a view of has all of it.
        return self._each_for_itself(item) if any(is_view(side, value) for side, value in written) else None

    def _written(self, item: TensorResult) -> list[tuple[Side, int]]:
        """The values of a pair of gradients that are written to through a view, with their sides."""
        values = zip(self._state.sides, self._parts.values_of(item.pair), strict=True)
        return [(side, value) for side, value in values if value is not None and is_written_over(side, value)]

    def _sent(
        self, item: TensorResult, left: Sequence[tuple[Call, int]], right: Sequence[tuple[Call, int]]
    ) -> Standing:
        """Gradients that a call on each side has sent back: each is audited by its own vector-Jacobian product."""
        ratios: list[float | None] = [None, None]
        mistakes: list[Mistake] = []
        incoming, untold = Standing(Outcome.ROUNDING), ""
        for which, sent in enumerate((left, right)):
            number = (item.pair.left, item.pair.right)[which]
            call, _ = sent[0]
            audit = self._state.recomputation.audit(which, call)
            score = audit.backward.get(number)
            incoming = together([incoming, self._comes_back(which, call)])
            if score is None:
                untold = (
                    untold or audit.backward_failure or audit.failure or f"{name_of(call)} has no gradient in float64"
                )
                continue
            ratios[which] = score.ratio
            self._state.remark_on(which, call, score, "a gradient")
            accused = self._state.accused.get((which, number))
            if score.ratio > 1 and accused is None:
                mistakes.append(replace(self._state.kernel_mistake(which, call, number, score), backward=True))
                self._state.accused[which, number] = mistakes[-1]
            elif score.ratio > 1 and accused is not None:  # on the way of a gradient that was judged before
                incoming = together([incoming, Standing(Outcome.DIFFERENT, sources=frozenset((accused,)))])
        terms = Terms(ratios[0], None, None, ratios[1])
        if mistakes:
            return Standing(Outcome.DIFFERENT, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if untold:
            return self._untold_gradient(item, incoming, untold)
        unexplained = self._unexplained(item, incoming, (left, right))
        if unexplained is not None:
            return unexplained
        return Standing(incoming.outcome, terms, told(terms, incoming.outcome), sources=incoming.sources)

    def _comes_back(self, which: int, call: Call) -> Standing:
        """Standing of what the backward pass of a call is made of: the gradients of its results, its operands and results."""
        found = [
            self.standing_of_gradient(which, gradient.tensor)
            for gradient in call.gradients
            if gradient.role == "output"
        ]
        return together([*found, *self._behind_gradients(which, call)])

    def _behind_gradients(self, which: int, call: Call) -> list[Standing]:
        """Standings of the values that the gradients of a call depend on."""
        meaning = self._state.sides[which].meaning(call)
        if meaning is not None and traits_of(meaning).affine:
            # Gradients go where the values came from, whatever these are: only a mask decides.
            masks = [operand.tensor for path, operand in meaning.operands() if path in ("mask", "condition")]
            return [self._state.standing(which, number) for number in masks]
        made = [self._state.standing(which, number) for number in outputs_of(call).values()]
        taken = [self._state.standing(which, number) for number in inputs_of(call).values()]
        lost = all(judged.outcome is not Outcome.DIFFERENT for judged in made)
        if lost and meaning is not None and meaning.operation in SELECTIVE:
            taken = [judged for judged in taken if judged.outcome is not Outcome.DIFFERENT]
        return [*made, *taken]

    def standing_of_gradient(self, which: int, number: int) -> Standing:
        """Standing of a gradient; of one that was not compared, that of what it was made of."""
        found: list[Standing] = []
        waiting, seen = [number], set[int]()  # no recursion: the chain of calls may be as long as the run
        while waiting:
            current = waiting.pop()
            known = self._state.gradient_of[which].get(current)
            if known is not None:
                found.append(known)
                continue
            if current in seen:
                continue
            seen.add(current)
            for call, _ in self._state.senders[which].get(current, ()):
                found.append(self._audited_gradient(which, call, current))
                waiting += [gradient.tensor for gradient in call.gradients if gradient.role == "output"]
                found += self._behind_gradients(which, call)
            for _, value in self._state.received[which].get(current, ()):
                contributions = self._state.sides[which].contributions(value)
                waiting += [other for _, other in contributions if other != current]
        return together(found)

    def _audited_gradient(self, which: int, call: Call, number: int) -> Standing:
        """Standing of what a call sent back, by its own vector-Jacobian product alone."""
        audit = self._state.recomputation.audit(which, call)
        score = audit.backward.get(number)
        if score is None:
            why = audit.backward_failure or audit.failure or f"{name_of(call)} has no gradient in float64"
            return Standing(Outcome.SAME, unaudited=why)
        if score.ratio <= 1:
            return UNSEEN
        accused = self._state.accused.get((which, number))
        if accused is None:
            left, right = only_call(which, call)
            mistake = replace(
                self._state.kernel_mistake(which, call, number, score), backward=True, left=left, right=right
            )
            self._state.between.append((which, call, mistake))
            self._state.accused[which, number] = mistake
            return Standing(Outcome.DIFFERENT, mistakes=(mistake,), sources=frozenset((mistake,)))
        return Standing(Outcome.DIFFERENT, sources=frozenset((accused,)))

    def _added_up(self, item: TensorResult, parts: Parts) -> Standing:
        """A gradient that is the sum of what the calls that took its value sent back."""
        numbers = (item.pair.left, item.pair.right)
        if not parts[0] and not parts[1]:
            return self._leaf_gradient(item)
        values = self._parts.values_of(item.pair)
        summed = [self._parts.summands(which, numbers[which], values[which], parts[which]) for which in (0, 1)]
        parts = [parts[which] if summed[which] is None else summed[which] or () for which in (0, 1)]
        lone = [
            [call for call, part in self._parts.lone(which, parts) if not self.rounding.covers(which, call, part, item)]
            for which in (0, 1)
        ]
        incoming = together(
            [self.standing_of_gradient(which, gradient) for which in (0, 1) for _, gradient in parts[which]]
        )
        if bool(lone[0]) != bool(lone[1]):
            which = 0 if lone[0] else 1
            parts_alone = [gradient for call, gradient in parts[which] if call in lone[which]]
            told = self._state.recomputation.recorded.is_the_difference(
                which, item.pair.left, item.pair.right, item.pair.layout, parts_alone
            )
            # Without the values, a part that only one side recorded is no difference where the gradients have none.
            # Where the values that gradients depend on have parted, only a call that cuts them is a mistake of its own.
            own = incoming.outcome is not Outcome.DIFFERENT or self.cuts.cut_off(1 - which) is not None
            if own and (told or (told is None and item.verdict.outcome is Outcome.DIFFERENT)):
                return self._lone_gradient(item, which, lone[which][0])
        for which, side in enumerate(("left", "right")):
            if parts[which] and summed[which] is None:
                why = f"the gradient is more than the sum of what the recorded calls of the {side} sent back"
                return self._untold_gradient(item, incoming, why)
        unexplained = self._unexplained(item, incoming, parts)
        if unexplained is not None:
            return unexplained
        return Standing(
            worse(Outcome.ROUNDING, incoming.outcome), None, "the sum of what was sent back", sources=incoming.sources
        )

    def _unexplained(self, item: TensorResult, incoming: Standing, parts: Parts) -> Standing | None:
        """Verdict on gradients that differ although nothing that they were made of does: something was cut off on the way."""
        if incoming.outcome is Outcome.DIFFERENT:
            return None
        if incoming.unaudited and (item.verdict.error or 0.0) > min(self.rounding.of_many_layers, _UNAUDITED):
            return Standing(Outcome.UNKNOWN, None, item.verdict.because, untold=incoming.unaudited)
        if not self.rounding.are_apart(item, parts):
            # What another setting does, or another way back, may be no more than what rounding explains: it is computed.
            other = self._ways.set_differently(parts) is not None or not self._ways.are_alike(item, parts)
            found = self._ways.difference(item) if other else None
            return self._ways.told(item, found, parts) if found is not None and found.significant else None
        cut = self.cuts.cut_off(0) or self.cuts.cut_off(1)
        if cut is not None:
            return Standing(Outcome.DIFFERENT, None, cut[0].what, (cut[0],))
        found = self._ways.difference(item)
        if found is not None and found.significant:
            return self._ways.told(item, found, parts)
        if max(map(len, parts)) > 1:
            return self._untold_gradient(item, incoming, "the two are added up of what other calls sent back")
        why = f"{name_of_pair(item.pair)} differs, and none of the recorded calls that sent it back explains it"
        return Standing(Outcome.UNKNOWN, None, item.verdict.because, untold=why)

    def _is_plainly_other(self, item: TensorResult) -> bool:
        """True if two gradients are far apart beyond all doubt, where all that they are gradients and made of agrees, as far as
        norms tell: then it arises here, whatever could not be recomputed.
        """
        pair, verdict = item.pair, item.verdict
        left, right = self._parts.values_of(pair)
        bound = self._state.bound.get(right) if right is not None else None
        whole = pair.part in (Part.OUTPUT_GRADIENT, Part.PARAMETER_GRADIENT)
        named = bound is None and pair.part is Part.PARAMETER_GRADIENT  # taken by nothing that was compared
        belong = named or (bound is not None and bound.left == left)
        if not whole or not belong or verdict.outcome is not Outcome.DIFFERENT:
            return False
        real = all(is_float(tensor.spec.dtype) for tensor in (item.left, item.right))
        far = times_bound(verdict) >= _PLAIN and _TENTH <= (verdict.error or 0.0) < math.inf
        if not real or not far or not self.rounding.is_beyond(item):
            return False
        came = {
            (which, gradient.tensor)
            for which, sent in enumerate(self._parts.sent(pair))
            for call, _ in sent
            for gradient in call.gradients
            if gradient.role == "output"
        }
        compared, apart = self._state.by_norms
        return not came.isdisjoint(compared) and came.isdisjoint(apart) and not self._goes_back_again

    @cached_property
    def _goes_back_again(self) -> bool:
        """True if a step has several backward passes on a side: a gradient may be of one of them, or of all."""
        return any(gradient.count for side in self._state.sides for call in side.calls for gradient in call.gradients)

    def _plainly_other(self, item: TensorResult) -> Standing:
        what = f"{name_of_pair(item.pair)} differs far beyond rounding, and all that it is made of agrees: {item.verdict.because}"
        mistake = Mistake("unproven", what, size=times_bound(item.verdict), backward=True)
        return Standing(Outcome.DIFFERENT, None, what, (mistake,))

    def _lone_gradient(self, item: TensorResult, which: int, call: Call) -> Standing:
        side, other = (("left", "right"), ("right", "left"))[which]
        what = f"the {side}'s gradient has a part that the {other}'s lacks: it comes back from {name_of(call)}"
        cut = self.cuts.cut_off(1 - which)
        if cut is not None:
            mistake = replace(cut[0], what=f"{what}: {cut[0].what}")
        else:
            match = self._state.match_of[which].get(call.id)
            partners = (match.left, match.right)[1 - which] if match is not None else ()
            why = f"only the {side} sends a gradient back through {name_of(call)}"
            stopped = None
            if any(partner.gradients for partner in partners):
                partners = ()
            elif partners:
                why += f"; on the {other} it has none (no_grad, or operands without gradients)"
                stopped = self.cuts.stopped(1 - which, partners)
            blamed = ((call,), partners) if which == 0 else (partners, (call,))
            mistake = Mistake("gradient", what, why, backward=True, left=blamed[0], right=blamed[1])
            mistake = replace(stopped[0], what=what) if stopped is not None and stopped[1] not in partners else mistake
        return Standing(Outcome.DIFFERENT, None, what, (mistake,))

    def is_computed(self, item: TensorResult) -> bool:
        """True if a gradient has the bits of results that were compared: level op records the kernels of the backward pass, other
        levels the calls of a custom one.
        """
        prints = item.left.fingerprint or "", item.right.fingerprint or ""
        if prints not in self._state.left_behind:
            return False
        makers = (
            side.maker(number)
            for side, number in zip(self._state.sides, (item.pair.left, item.pair.right), strict=True)
        )
        return self._state.kernels_only or all(
            maker is not None and maker.site.phase is Phase.RECOMPUTE for maker in makers
        )

    def _leaf_gradient(self, item: TensorResult) -> Standing:
        """Standing of a gradient that no call is known to send back; at level op the kernels that computed it are calls."""
        if self.is_computed(item):
            made = self._state.left_behind[item.left.fingerprint or "", item.right.fingerprint or ""]
            return Standing(made.outcome, because="the result of a recorded kernel", sources=made.sources)
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Standing(Outcome.UNKNOWN, untold=item.verdict.because)
        measured = item.measurement
        if measured is not None and measured.max_ulp is not None and measured.max_ulp <= LEAF_UNITS:
            return Standing(Outcome.ROUNDING)
        # Functions between modules; at level op, kernels of a backward pass.
        unseen = "module" in (self._state.sides[0].level, self._state.sides[1].level) or self._is_unmade(item.pair)
        if unseen and not self.rounding.is_beyond(item):
            return Standing(Outcome.UNKNOWN, None, item.verdict.because, untold=_UNSENT)
        if unseen or any(
            judged.outcome is not Outcome.SAME
            for judged in (*self._state.gradient_of[0].values(), *self._state.values.values())
        ):
            return self._untold_gradient(item, Standing(Outcome.SAME), _UNSENT)
        what = f"{name_of_pair(item.pair)} differs where the backward pass begins"
        return Standing(Outcome.DIFFERENT, None, what, (Mistake("gradient", what, backward=True),))

    def _is_unmade(self, pair: TensorPair) -> bool:
        """True if a framework's kernels of the backward pass are no calls at level op: none has made a gradient."""
        numbers = pair.left, pair.right
        makers = [side.maker(number) for side, number in zip(self._state.sides, numbers, strict=True)]
        return self._state.kernels_only and None in makers

    def _untold_gradient(self, item: TensorResult, incoming: Standing, why: str) -> Standing:
        if incoming.outcome is Outcome.DIFFERENT:
            return Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=incoming.sources)
        if item.verdict.outcome is Outcome.DIFFERENT and incoming.outcome in (Outcome.SAME, Outcome.ROUNDING):
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            return Standing(
                Outcome.DIFFERENT,
                None,
                what,
                (Mistake("unproven", what, size=times_bound(item.verdict), backward=True),),
            )
        return Standing(Outcome.UNKNOWN, None, item.verdict.because, sources=incoming.sources, untold=why)
