"""Verdicts on gradients: each call's by its vector-Jacobian product, sums by what was sent back, cuts by what is missing.

Gradients(state).judge(item)     the standing of one pair of gradients
Gradients(state).cut_off(1)      the call that stops gradients on the right alone, as a mistake
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..model.pairs import Layout, Part, TensorPair
from ..model.records import Call
from ..model.results import CallResult, Mistake, Status, TensorResult, Terms
from ..model.sites import Phase
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from ..operations.sides import inputs_of, name_of, outputs_of
from ..operations.traits import traits_of
from .detours import is_detour
from .ranges import RangeJudge
from .rounding import unit
from .state import (
    ORDER,
    SHARES,
    SINGLE,
    UNSEEN,
    Judged,
    JudgeState,
    attach,
    name_of_pair,
    not_recomputable,
    times_bound,
    together,
    told,
    worse,
)
from .values import FAR, LEAF_UNITS, SELECTIVE

if TYPE_CHECKING:
    from ..operations.meanings import Meaning
    from ..operations.pullbacks import Pullback

_NOISE = 64.0
"""Units of the element type by which gradients may differ after many layers, relative to their norm."""
_UNAUDITED = 1 / 32
"""Relative error of gradients, at most, up to which a call on their way that could not be recomputed is taken to be right."""
_UNSENT = "no recorded call sends this gradient back"
_LINEAR = frozenset(("add", "sub", "neg", "sum", "mean", "cast", "masked_fill", "where"))
"""Operations whose gradient does not depend on the values that they take."""


class Gradients:
    """Judges pairs of gradients, in the order of the backward pass."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._ranges = RangeJudge(state)
        self._parameters: dict[tuple[int, int], int | None] = {}
        """Weights by the side and the number of a gradient that is called by a name that no module has."""
        self._noise: tuple[set[int], set[int]] = (set(), set())
        """Gradients that are apart and right on both sides: rounding of what cancelled."""
        self._relative_noises: dict[tuple[int, int], float] = {}
        self._ends: dict[int, int] = {}
        """Left values whose gradients agree, and these gradients."""

    def judge(self, item: TensorResult) -> Judged:
        key = item.pair.left, item.pair.right
        if key not in self._state.gradients:
            if self._values_of_gradient(item.pair) in self._state.discarded:
                return Judged(Status.SAME, because="gradients of values that do not belong together", discarded=True)
            values = self._state.values.get(self._values_of_gradient(item.pair))  # type: ignore[arg-type]
            reordered = values is not None and values.reordered
            alone = reordered or self._is_on_detour(item.pair) or self._is_a_part(item.pair)
            judged = self._each_for_itself(item) if alone else self._judge_gradient(item)
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            elif self._meets_again(item, judged):
                self._state.undone |= judged.sources
                judged = Judged(Status.CLEAN, because="the same gradient, which comes back by other ways")
            self._state.gradients[key] = judged
            self._note_end(item.pair, judged)
            if item.left.fingerprint and item.right.fingerprint:
                self._state.gradient_by_bits[item.left.fingerprint, item.right.fingerprint] = judged
            for which, number in enumerate(key):
                known = self._state.gradient_of[which].get(number)
                if known is None or ORDER[known.status] < ORDER[judged.status]:
                    self._state.gradient_of[which][number] = judged
                if judged.status is Status.CLEAN and (item.verdict.error or 0.0) >= self.least:
                    self._noise[which].add(number)
        return self._state.gradients[key]

    def _note_end(self, pair: TensorPair, judged: Judged) -> None:
        left, right = self._values_of_gradient(pair)
        bound = self._state.bound.get(right) if right is not None else None
        whole = pair.part is Part.OUTPUT_GRADIENT and bound is not None and bound.left == left
        if whole and left is not None and judged.status in (Status.SAME, Status.CLEAN) and not judged.discarded:
            self._ends.setdefault(left, pair.left)

    def _pullback(self, item: TensorResult) -> Pullback | None:
        """Difference of two gradients that are recomputed from the same gradients of what is made of their value; None if they
        cannot be, or are not those that were recorded: something on the way was not seen.
        """
        from ..operations.pullbacks import difference_of_gradients

        left, right = self._values_of_gradient(item.pair)
        bound = self._state.bound.get(right) if right is not None else None
        if left is None or right is None or bound is None or bound.left != left:
            return None
        if item.pair.part is Part.INPUT_GRADIENT:  # what one call sends back: all of it, if no other takes the value
            sent = [self._state.sides[which].contributions(number) for which, number in enumerate((left, right))]
            if any(len(parts) != 1 for parts in sent):
                return None
        recomputation = self._state.recomputation
        try:
            found = difference_of_gradients(recomputation, (left, right), self._state.bound, self._ends)
            recorded = recomputation.values[0](item.pair.left), recomputation.values[1](item.pair.right)
        except not_recomputable():
            return None
        seen = all(
            recomputation.relative(own, got.reshape(own.shape)) < self.least
            for own, got in zip(recorded, found.gradients, strict=True)
        )
        return found if seen else None

    def _meets_again(self, item: TensorResult, judged: Judged) -> bool:
        """True if gradients that were made of parted ones agree: a loss that takes its logits by one way, or by two."""
        if judged.status is not Status.PARTED or not judged.sources or (item.verdict.error or 0.0) >= self.least:
            return False
        if not all(mistake.backward and mistake.kind == "gradient" for mistake in judged.sources):
            return False
        found = self._pullback(item)
        return found is not None and not found.significant

    def _other_derivative(self, item: TensorResult, found: Pullback) -> Judged:
        """Verdict on gradients that differ though they are made of the same gradients and values."""
        what = f"the two send other gradients back: {found.relative:.1e} apart for the same gradients of what is made of it"
        names = [" → ".join(dict.fromkeys(name_of(call) for call in calls)) for calls in found.calls]
        why = (
            f"the gradient comes back through {names[0] or 'nothing'} on the left, {names[1] or 'nothing'} on the right"
        )
        advice, side = "", ""
        blamed: tuple[list[Call], list[Call]] = ([], [])
        if found.cut is not None:
            which, call = found.cut
            side = ("left", "right")[which]
            blamed[which].append(call)
            why = (
                f"only the {side} cuts the gradient ({name_of(call)}); without that the gradients agree: "
                f"{found.relative:.1e} → {found.uncut:.1e}"
            )
            advice = f"let the gradient through on the {side}, or see why the other side does"
        coarse = unit(item.left.spec.dtype, item.right.spec.dtype) or 1.0
        mistake = Mistake(
            "gradient", what, why, advice, side, found.relative / coarse, backward=True,
            left=tuple(blamed[0]), right=tuple(blamed[1]),
        )  # fmt: skip
        return Judged(Status.PARTED, None, what, (mistake,))

    def _is_on_detour(self, pair: TensorPair) -> bool:
        """True if each side goes its own way to what follows: an expert for the tokens that need it, and for all of them."""
        left, right = self._values_of_gradient(pair)
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
        left, right = self._values_of_gradient(pair)
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

    def _each_for_itself(self, item: TensorResult) -> Judged:
        """Gradients of values that do not belong together: each is what its own call sends back, or it is not."""
        found = []
        for which, parts in enumerate(self._parts(item.pair)):
            for call, gradient in parts:
                found += [self._audited_gradient(which, call, gradient), self._comes_back(which, call)]
        judged = together(found)
        if judged.status is Status.CLEAN or judged.status is Status.SAME:
            return Judged(Status.CLEAN, because="gradients of values on two ways to the same result", discarded=True)
        return Judged(judged.status, None, judged.because or item.verdict.because, sources=judged.sources)

    def _judge_gradient(self, item: TensorResult) -> Judged:
        if item.verdict.outcome is Outcome.SAME:
            return Judged(Status.SAME)
        parts = self._parts(item.pair)
        spoiled = self._ranges.of_gradient(item) if any(parts) else None
        if spoiled is not None:
            standings = [self._standing_of_gradient(which, part) for which in (0, 1) for _, part in parts[which]]
            incoming = together(standings)
            if incoming.status is Status.PARTED:
                return Judged(Status.PARTED, None, item.verdict.because, sources=incoming.sources)
            return Judged(Status.PARTED, None, spoiled.what, (spoiled,))
        if all(
            len(sent) == 1 and sent[0][1] == number
            for sent, number in zip(parts, (item.pair.left, item.pair.right), strict=True)
        ):
            return self._sent(item, parts[0], parts[1])
        return self._added_up(item, parts)

    def _parts(self, pair: TensorPair) -> list[Sequence[tuple[Call, int]]]:
        """`(call, gradient)` of what each side's gradient was added up of. The gradient of an input is what one call sent back, or
        the calls in one module; that of an output or a parameter comes from all who took it.
        """
        values = self._values_of_gradient(pair)
        found: list[Sequence[tuple[Call, int]]] = []
        for which, number in enumerate((pair.left, pair.right)):
            side, value = self._state.sides[which], values[which]
            if pair.part is Part.INPUT_GRADIENT:
                senders = self._state.senders[which].get(number, ())
                own = [(call, number) for call, of in senders if value is None or of == value] or [
                    (call, number) for call, _ in senders
                ]
                found.append(own[:1] or side.contributions_inside(number))
            else:
                found.append(side.contributions(value) if value is not None else ())
        return found

    def _sent(self, item: TensorResult, left: Sequence[tuple[Call, int]], right: Sequence[tuple[Call, int]]) -> Judged:
        """Gradients that a call on each side has sent back: each is audited by its own vector-Jacobian product."""
        ratios: list[float | None] = [None, None]
        mistakes: list[Mistake] = []
        incoming, untold = Judged(Status.CLEAN), ""
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
                incoming = together([incoming, Judged(Status.PARTED, sources=frozenset((accused,)))])
        terms = Terms(ratios[0], None, None, ratios[1])
        if mistakes:
            return Judged(Status.PARTED, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if untold:
            return self._untold_gradient(item, incoming, untold)
        unexplained = self._unexplained(item, incoming, (left, right))
        if unexplained is not None:
            return unexplained
        return Judged(incoming.status, terms, told(terms, incoming.status), sources=incoming.sources)

    def _comes_back(self, which: int, call: Call) -> Judged:
        """Standing of what the backward pass of a call is made of: the gradients of its results, its operands and results."""
        found = [
            self._standing_of_gradient(which, gradient.tensor)
            for gradient in call.gradients
            if gradient.role == "output"
        ]
        return together([*found, *self._behind_gradients(which, call)])

    def _behind_gradients(self, which: int, call: Call) -> list[Judged]:
        """Standings of the values that the gradients of a call depend on."""
        meaning = self._state.sides[which].meaning(call)
        if meaning is not None and (traits_of(meaning).moves or meaning.operation in _LINEAR):
            # Gradients go where the values came from, whatever these are: only a mask decides.
            masks = [operand.tensor for path, operand in meaning.operands() if path in ("mask", "condition")]
            return [self._state.standing(which, number) for number in masks]
        made = [self._state.standing(which, number) for number in outputs_of(call).values()]
        taken = [self._state.standing(which, number) for number in inputs_of(call).values()]
        lost = all(judged.status is not Status.PARTED for judged in made)
        if lost and meaning is not None and meaning.operation in SELECTIVE:
            taken = [judged for judged in taken if judged.status is not Status.PARTED]
        return [*made, *taken]

    def _standing_of_gradient(self, which: int, number: int) -> Judged:
        """Standing of a gradient; of one that was not compared, that of what it was made of."""
        found: list[Judged] = []
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

    def _audited_gradient(self, which: int, call: Call, number: int) -> Judged:
        """Standing of what a call sent back, by its own vector-Jacobian product alone."""
        audit = self._state.recomputation.audit(which, call)
        score = audit.backward.get(number)
        if score is None:
            why = audit.backward_failure or audit.failure or f"{name_of(call)} has no gradient in float64"
            return Judged(Status.SAME, unaudited=why)
        if score.ratio <= 1:
            return UNSEEN
        accused = self._state.accused.get((which, number))
        if accused is None:
            at = ((call,), ()) if which == 0 else ((), (call,))
            mistake = replace(
                self._state.kernel_mistake(which, call, number, score), backward=True, left=at[0], right=at[1]
            )
            self._state.between.append((which, call, mistake))
            self._state.accused[which, number] = mistake
            return Judged(Status.PARTED, mistakes=(mistake,), sources=frozenset((mistake,)))
        return Judged(Status.PARTED, sources=frozenset((accused,)))

    def _added_up(self, item: TensorResult, parts: Sequence[Sequence[tuple[Call, int]]]) -> Judged:
        """A gradient that is the sum of what the calls that took its value sent back."""
        numbers = (item.pair.left, item.pair.right)
        if not parts[0] and not parts[1]:
            return self._leaf_gradient(item)
        values = self._values_of_gradient(item.pair)
        summed = [self._summands(which, numbers[which], values[which], parts[which]) for which in (0, 1)]
        parts = [parts[which] if summed[which] is None else summed[which] or () for which in (0, 1)]
        lone = [
            [call for call, part in self._lone_parts(which, parts) if not self._is_rounding(which, call, part)]
            for which in (0, 1)
        ]
        incoming = together(
            [self._standing_of_gradient(which, gradient) for which in (0, 1) for _, gradient in parts[which]]
        )
        if bool(lone[0]) != bool(lone[1]):
            which = 0 if lone[0] else 1
            parts_alone = [gradient for call, gradient in parts[which] if call in lone[which]]
            told = self._state.recomputation.is_the_difference(
                which, item.pair.left, item.pair.right, item.pair.layout, parts_alone
            )
            # Without the values, a part that only one side recorded is no difference where the gradients have none.
            # Where the values that gradients depend on have parted, only a call that cuts them is a mistake of its own.
            own = incoming.status is not Status.PARTED or self.cut_off(1 - which) is not None
            if own and (told or (told is None and item.verdict.outcome is Outcome.DIFFERENT)):
                return self._lone_gradient(item, which, lone[which][0])
        for which, side in enumerate(("left", "right")):
            if parts[which] and summed[which] is None:
                why = f"the gradient is more than the sum of what the recorded calls of the {side} sent back"
                return self._untold_gradient(item, incoming, why)
        unexplained = self._unexplained(item, incoming, parts)
        if unexplained is not None:
            return unexplained
        return Judged(
            worse(Status.CLEAN, incoming.status), None, "the sum of what was sent back", sources=incoming.sources
        )

    def _unexplained(
        self, item: TensorResult, incoming: Judged, parts: Sequence[Sequence[tuple[Call, int]]]
    ) -> Judged | None:
        """Verdict on gradients that differ although nothing that they were made of does: something was cut off on the way."""
        if incoming.status is Status.PARTED:
            return None
        if incoming.unaudited and (item.verdict.error or 0.0) > min(_NOISE * self._coarsest, _UNAUDITED):
            return Judged(Status.UNTOLD, None, item.verdict.because, untold=incoming.unaudited)
        if not self._are_apart(item, parts):
            return None
        cut = self.cut_off(0) or self.cut_off(1)
        if cut is not None:
            return Judged(Status.PARTED, None, cut[0].what, (cut[0],))
        found = self._pullback(item)
        if found is not None and found.significant:
            return self._other_derivative(item, found)
        if max(map(len, parts)) > 1:
            return self._untold_gradient(item, incoming, "the two are added up of what other calls sent back")
        why = f"{name_of_pair(item.pair)} differs, and none of the recorded calls that sent it back explains it"
        return Judged(Status.UNTOLD, None, item.verdict.because, untold=why)

    def _allowed(self, which: int, call: Call, number: int) -> float:
        """Root mean square of the rounding that may be in what a call sent back: its own, and that of the calls before it whose
        gradients were not compared. Infinite if all that came back to it is rounding (scores of a softmax over one element).
        """
        score = self._state.recomputation.audit(which, call, whole=True).backward.get(number)
        if score is None:
            return math.inf
        received = [gradient.tensor for gradient in call.gradients if gradient.role == "output"]
        noise = min((self._relative_noise(which, item) for item in received), default=0.0)
        if noise in (0.0, math.inf):
            return score.limit + noise
        return score.limit + noise * self._state.recomputation.rms(which, number)

    def _relative_noise(self, which: int, number: int) -> float:
        """The same of a gradient that came back, over its size; nothing of one that was compared and is not apart."""
        if number in self._noise[which]:
            return math.inf
        judged = self._state.gradient_of[which].get(number)
        if judged is not None and judged.status is not Status.UNTOLD:
            return 0.0
        key = which, number
        if key not in self._relative_noises:
            self._relative_noises[key] = 0.0  # a damaged trace may go round in circles
            values = [value for _, value in self._state.received[which].get(number, ())]
            sent = [item for value in values for item in self._state.sides[which].contributions(value)]
            sent = sent or [(call, number) for call, _ in self._state.senders[which].get(number, ())]
            size = self._state.recomputation.rms(which, number)
            parts = [self._allowed(which, call, part) for call, part in sent]
            known = [part for part in parts if part < math.inf]
            self._relative_noises[key] = math.inf if parts and not known else sum(known) / size if size else 0.0
        return self._relative_noises[key]

    def _are_apart(self, item: TensorResult, parts: Sequence[Sequence[tuple[Call, int]]]) -> bool:
        """True if two gradients differ by more than many layers' rounding of what each was added up of: its parts, or the terms of
        the only part, which may cancel.
        """
        numbers = item.pair.left, item.pair.right
        least = self.least
        # In 16 bits the terms were rounded, too, and may cancel.
        half = unit(item.left.spec.dtype, item.right.spec.dtype) > SINGLE
        several = max(map(len, parts)) > 1
        if (item.verdict.error or 0.0) < least or ((half or several) and item.verdict.outcome is not Outcome.DIFFERENT):
            return False
        if several:
            return (
                self._state.recomputation.apart(numbers, item.pair.layout, [[part for _, part in own] for own in parts])
                >= least
            )
        limit = sum(self._allowed(which, call, part) for which, own in enumerate(parts) for call, part in own)
        distance, size = self._state.recomputation.distance(numbers, item.pair.layout)
        return distance >= max(SHARES * size, _NOISE * limit) > 0

    @property
    def least(self) -> float:
        """Relative distance of two gradients beyond which they are no longer one gradient that was rounded in many layers."""
        return max(SHARES, _NOISE * self._coarsest)

    @cached_property
    def _coarsest(self) -> float:
        """Unit of the coarsest element type of the two runs: a gradient in float32 has the rounding of 16-bit ones before it."""
        types = {
            tensor.spec.dtype
            for result in self._state.results
            for item in result.tensors
            for tensor in (item.left, item.right)
        }
        return max((unit(dtype, dtype) for dtype in types), default=0.0)

    def _summands(
        self, which: int, number: int, value: int | None, parts: Sequence[tuple[Call, int]]
    ) -> Sequence[tuple[Call, int]] | None:
        """The parts whose sum a gradient is, of the calls that took its value or the same weight under another number."""
        more = [] if value is None else self._state.sides[which].other_contributions(value)
        for offered in ([*parts], [*parts, *more]) if more else ([*parts],):
            chosen = self._state.recomputation.summands(which, number, [gradient for _, gradient in offered])
            if chosen is not None:
                return [item for item in offered if item[1] in chosen]
        return None

    def _values_of_gradient(self, pair: TensorPair) -> tuple[int | None, int | None]:
        """The value on each side that two gradients are the gradients of. What hands its gradient on unchanged shares it with
        others: two that were compared with each other come first.
        """
        found: list[list[int]] = []
        for which, number in enumerate((pair.left, pair.right)):
            values = [
                value
                for _, value in (
                    *self._state.received[which].get(number, ()),
                    *self._state.senders[which].get(number, ()),
                )
            ]
            if not values and pair.part is Part.PARAMETER_GRADIENT:
                parameter = self._state.sides[which].parameter((pair.left_slot, pair.right_slot)[which])
                if parameter is None:
                    parameter = self._parameter_by_gradient(which, number)
                values = [] if parameter is None else [parameter]
            found.append(values)
        for right in found[1]:
            bound = self._state.bound.get(right)
            if bound is not None and bound.left in found[0]:
                return bound.left, right
        return next(iter(found[0]), None), next(iter(found[1]), None)

    def _parameter_by_gradient(self, which: int, gradient: int) -> int | None:
        """The weight whose parts add up to a gradient, for one that is used under another name than it is kept (a tied one)."""
        key = which, gradient
        if key not in self._parameters:
            side = self._state.sides[which]
            leaves = side.leaves_of(side.tensor(gradient).spec.shape)
            fitting = (
                leaf for leaf in leaves if self._summands(which, gradient, leaf, side.contributions(leaf)) is not None
            )
            self._parameters[key] = next(fitting, None)
        return self._parameters[key]

    def _lone_parts(self, which: int, parts: Sequence[Sequence[tuple[Call, int]]]) -> list[tuple[Call, int]]:
        """Calls of one side that send a part of a gradient back which has no counterpart on the other, and these parts."""
        other = parts[1 - which]
        theirs = {
            id(self._state.match_of[1 - which].get(call.id))
            for call, _ in other
            if call.id in self._state.match_of[1 - which]
        }
        found = []
        for call, gradient in parts[which]:
            match = self._state.match_of[which].get(call.id)
            if match is None or id(match) not in theirs:
                if gradient in self._state.gradient_of[which]:
                    continue
                found.append((call, gradient))
        return found

    def _is_rounding(self, which: int, call: Call, part: int) -> bool:
        """True if all of a part is rounding of terms that cancel: the gradient of a mean that is subtracted."""
        return self._state.recomputation.rms(which, part) <= self._allowed(which, call, part)

    def _lone_gradient(self, item: TensorResult, which: int, call: Call) -> Judged:
        side, other = (("left", "right"), ("right", "left"))[which]
        what = f"the {side}'s gradient has a part that the {other}'s lacks: it comes back from {name_of(call)}"
        cut = self.cut_off(1 - which)
        if cut is not None:
            mistake = replace(cut[0], what=f"{what}: {cut[0].what}")
        else:
            match = self._state.match_of[which].get(call.id)
            partners = (match.left, match.right)[1 - which] if match is not None else ()
            why = f"only the {side} sends a gradient back through {name_of(call)}"
            if any(partner.gradients for partner in partners):
                partners = ()
            elif partners:
                why += f"; on the {other} it has none (no_grad, or operands without gradients)"
            blamed = ((call,), partners) if which == 0 else (partners, (call,))
            mistake = Mistake("gradient", what, why, backward=True, left=blamed[0], right=blamed[1])
        return Judged(Status.PARTED, None, what, (mistake,))

    def _cut(self, which: int) -> Call | None:
        """A call on one side that stops a gradient which the other side sends on: detach, stop_gradient."""
        side, other = self._state.sides[which], self._state.sides[1 - which]
        for call in reversed(side.calls):
            meaning = side.meaning(call) if side.is_leaf(call) else None
            if meaning is None or meaning.operation != "detach" or call.id in self._state.match_of[which]:
                continue
            for _, operand in meaning.operands():
                partner = self._state.partner(which, side.origin(operand.tensor))
                used = any(side.leads_to_gradients(number) for number in meaning.results)
                if is_detour(self._state.standing(which, side.origin(operand.tensor))):
                    continue  # another value than its partner, on another way to the same result
                if used and partner is not None and other.has_gradient(partner):
                    return call
        return None

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

    def _leaf_gradient(self, item: TensorResult) -> Judged:
        """Standing of a gradient that no call is known to send back; at level op the kernels that computed it are calls."""
        if self.is_computed(item):
            status, sources = self._state.left_behind[item.left.fingerprint or "", item.right.fingerprint or ""]
            return Judged(status, because="the result of a recorded kernel", sources=sources)
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Judged(Status.UNTOLD, untold=item.verdict.because)
        measured = item.measurement
        if measured is not None and measured.max_ulp is not None and measured.max_ulp <= LEAF_UNITS:
            return Judged(Status.CLEAN)
        unseen = "module" in (self._state.sides[0].level, self._state.sides[1].level)  # functions between modules
        if unseen and not self._is_plain(item):
            return Judged(Status.UNTOLD, None, item.verdict.because, untold=_UNSENT)
        if unseen or any(
            judged.status is not Status.SAME
            for judged in (*self._state.gradient_of[0].values(), *self._state.values.values())
        ):
            return self._untold_gradient(item, Judged(Status.SAME), _UNSENT)
        what = f"{name_of_pair(item.pair)} differs where the backward pass begins"
        return Judged(Status.PARTED, None, what, (Mistake("gradient", what, backward=True),))

    def _is_plain(self, item: TensorResult) -> bool:
        """True if gradients differ by more than functions that were not recorded may make of rounding: far beyond the bound, and
        not because nothing but rounding is left of them (a sum over a softmax).
        """
        if times_bound(item.verdict) < FAR:
            return False
        least = _NOISE * self._coarsest * self._largest_gradient
        return max(_rms(item.left), _rms(item.right)) > least

    @cached_property
    def _largest_gradient(self) -> float:
        """Root mean square of the largest gradient that was recorded on either side."""
        return max(
            (
                _rms(side.tensor(gradient.tensor))
                for side in self._state.sides
                for call in side.calls
                for gradient in call.gradients
            ),
            default=0.0,
        )

    def _untold_gradient(self, item: TensorResult, incoming: Judged, why: str) -> Judged:
        if incoming.status is Status.PARTED:
            return Judged(Status.PARTED, None, item.verdict.because, sources=incoming.sources)
        if item.verdict.outcome is Outcome.DIFFERENT and incoming.status in (Status.SAME, Status.CLEAN):
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            return Judged(
                Status.PARTED, None, what, (Mistake("unproven", what, size=times_bound(item.verdict), backward=True),)
            )
        return Judged(Status.UNTOLD, None, item.verdict.because, untold=why)

    def cut_off(self, which: int) -> tuple[Mistake, Call] | None:
        """The call that stops the gradients of one side, where the other sends them on."""
        call = self._cut(which)
        if call is None:
            return None
        side = ("left", "right")[which]
        what = f"the {side} cuts the gradient: {name_of(call)}"
        why = f"only the {side} calls {name_of(call)}: no gradient goes back beyond it"
        blamed = ((call,), ()) if which == 0 else ((), (call,))
        mistake = Mistake(
            "gradient", what, why, f"remove it from the {side}, or see why the other does without", side, backward=True,
            left=blamed[0], right=blamed[1],
        )  # fmt: skip
        return mistake, call

    def look_for_cuts(self, results: list[CallResult]) -> None:
        """A call that stops a gradient on one side alone is a mistake if the gradients of what it takes differ."""
        for which in (0, 1):
            cut = self.cut_off(which)
            if cut is None or any(mistake.why == cut[0].why for mistake in self._state.always):
                continue
            if any(mistake.why == cut[0].why for result in results for mistake in result.mistakes):
                continue
            (value,) = {operand.tensor for _, operand in self._meaning_of(which, cut[1]).operands()} or {-1}
            value = self._state.sides[which].origin(value)
            partner = self._state.partner(which, value)
            here, there = self._state.sides[which].gradient(value), self._state.sides[1 - which].gradient(partner)
            if there is None or (here is not None and not self._differ(which, here, there)):
                continue
            self._state.always.add(cut[0])
            attach(results, cut[1], which, cut[0])

    def _meaning_of(self, which: int, call: Call) -> Meaning:
        meaning = self._state.sides[which].meaning(call)
        assert meaning is not None
        return meaning

    def _differ(self, which: int, here: int, there: int) -> bool:
        """True if two gradients of the same value differ by more than many layers' rounding."""
        left, right = (here, there) if which == 0 else (there, here)
        return self._state.recomputation.apart((left, right), Layout(), [[left], [right]]) >= self.least


def _rms(tensor: Tensor) -> float:
    """Root mean square of a recorded tensor, from its statistics; 0 if it has none."""
    known, count = tensor.statistics, math.prod(tensor.spec.shape)
    return 0.0 if known is None or known.norm is None or not count else known.norm / math.sqrt(count)
