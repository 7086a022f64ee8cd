"""Verdicts on values of the forward pass.

    Values(state, explainer).judge(item)     the standing of one pair of values, with mistakes and terms

The calls between a compared value and the compared values before it are one function on each side, recomputed in float64.
Leaves, which no recorded call made, are compared directly.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Layout, Part, TensorPair
from ..model.results import CallResult, Mistake, Status, TensorResult, Terms
from ..model.sites import Kind, Phase
from ..model.values import tensor_slots
from ..model.verdicts import Outcome
from ..operations.beginnings import from_same_values
from ..operations.sides import Slice, inputs_of, name_of, outputs_of
from ..operations.traits import gives_any_order, traits_of
from .detours import Detours, is_detour
from .explanations import Explainer
from .ranges import RangeJudge
from .rounding import unit
from .state import (
    EXACT,
    SHARES,
    SINGLE,
    SMALL,
    Judged,
    JudgeState,
    name_of_pair,
    not_recomputable,
    times_bound,
    together,
    told,
    worse,
)

if TYPE_CHECKING:
    pass

LEAF_UNITS = 4.0
"""Leaves may differ by four units of the coarser element type: they were computed before recording, in another library."""
_COPIED_UNITS = 1.0
"""Units by which weights of 16 bits may differ: they were copied, and rounded once. A factor of 1.01 moves bf16 by up to three."""
SELECTIVE = frozenset(("softmax", "log_softmax", "scaled_dot_product_attention", "relu", "clamp", "max_pool", "amax"))
"""Operations whose gradient forgets an operand where their result does: a masked score."""
FAR = 1e3
"""Times what rounding explains from which on a difference arises where it is seen, if what came in is within rounding."""
_PICKING = frozenset(("getitem", "index_select", "gather", "take", "masked_select"))
"""Operations that take some elements of their first operand."""


class Values:
    """Judges pairs of values, in the order of the data flow."""

    def __init__(self, state: JudgeState, explainer: Explainer, detours: Detours) -> None:
        self._state = state
        self._explainer = explainer
        self._detours = detours
        self._ranges = RangeJudge(state)

    def judge(self, item: TensorResult) -> Judged:
        key = item.pair.left, item.pair.right
        if key not in self._state.values:
            judged = self._judge_value(item)
            if judged.discarded:
                self._state.discarded.add(key)
                return judged
            if judged.mistakes and self._is_by_the_way(0, item.pair.left) != self._is_by_the_way(1, item.pair.right):
                # Paired by chance: a variance that a norm puts out beside its result, and a sum on the way to it.
                return Judged(Status.SAME, because="one side does nothing with it")
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            self._state.remember(item, judged)
        return self._state.values[key]

    def turned(self, result: CallResult, item: TensorResult) -> Judged | None:
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
        return Judged(Status.PARTED, None, what, (mistake,), sources=frozenset((mistake,)))

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
            if meaning is not None and meaning.operation in _PICKING and len(list(meaning.operands())) > 1:
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

    def _judge_value(self, item: TensorResult) -> Judged:
        pair = item.pair
        if item.verdict.outcome is Outcome.SAME and item.left.spec.shape == item.right.spec.shape:
            self._detours.note_equal(item)
            return self._rounded_away(item) or self._round_trip(item) or Judged(Status.SAME)
        compared = self._compared(0, pair.left), self._compared(1, pair.right)
        if compared[0] is not None and compared[1] is not None:
            return self._crossed(compared[0], compared[1])
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
        if self._is_uninitialised(0, left) or self._is_uninitialised(1, right):
            return Judged(Status.SAME, because="memory that nothing has written to yet")
        if self._is_leaf(0, left) and self._is_leaf(1, right):
            sizes = math.prod(item.left.spec.shape), math.prod(item.right.spec.shape)
            modules = [*self._state.sides[0].takers(pair.left), *self._state.sides[1].takers(pair.right)]
            if sizes[0] != sizes[1] and pair.part is Part.INPUT and modules and not item.left.requires_grad:
                # A mask for all heads, and one for each: what is made of it will tell.
                return Judged(Status.SAME, because="given in another shape", discarded=True)
            prints = item.left.fingerprint or "", item.right.fingerprint or ""
            if sizes[0] != sizes[1] and (
                prints in self._state.before or self._state.recomputation.recorded.is_part(pair.left, pair.right)
            ):
                # One weight for several layers, and one for each of them: what is made of it will tell.
                return Judged(Status.SAME, because="rows of one weight, in several", discarded=True)
            return self._leaf(item)
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
            if difference is not None and not difference.significant and incoming.status in (Status.SAME, Status.CLEAN):
                longer = from_same_values(self._state.sides, left, right, bound, self._state.known, self._state.agrees)
                if longer != (left, right):
                    left, right = longer
                    bound = self._state.partners(left, right)
                    difference = recomputation.difference(left, right, bound, pair.layout)
        except not_recomputable() as error:
            return self._fallback(item, incoming, audited, str(error), left, right)
        if difference is not None and difference.shapes is not None and self._are_other_steps(item, left, right):
            return Judged(Status.SAME, because="other steps on the way to the same result", discarded=True)
        if incoming.status is Status.PARTED and self._detours.meets_again(item, incoming.sources):
            incoming, difference = Judged(Status.CLEAN), None
        terms = replace(terms, inherited=recomputation.inherited(left, right, bound, same))
        precise = self._explainer.precision_mistake(item, left, right, difference)
        if precise is not None:
            mistakes.append(precise)
        elif difference is not None:
            terms = replace(terms, meaning=difference.relative)
            if difference.significant and self._state.recomputation.is_unavoidable(left, right):
                names = " and ".join(dict.fromkeys(name_of(call) for call in (*left.calls, *right.calls)))
                if difference.relative < SHARES:  # beyond: gradients of noise, which an optimizer makes full steps of
                    self._state.notes[names] = max(self._state.notes.get(names, 0.0), difference.relative)
            elif difference.significant:
                if self._belong_elsewhere(pair):
                    return Judged(Status.SAME, because="values for different calls", discarded=True)
                if self._is_a_step_ahead(pair, left, right):
                    return Judged(Status.SAME, because="one side is a step ahead of the other here", discarded=True)
                moves = self._are_moves(left, right, pair)
                early = moves and not (left.calls and right.calls)  # one side has moved it, the other may do so later
                cause = None if early else self._explainer.cause(left, right, pair)
                if cause is None and moves:
                    return Judged(
                        Status.SAME, because="other values, for other steps to the same result", discarded=True
                    )
                mistakes.append(self._explainer.meaning_mistake(left, right, pair, difference, cause))
                self._state.origins.setdefault(mistakes[-1], (pair, left, right))
        if audited.untold and not mistakes:
            return self._fallback(item, incoming, audited, audited.untold, left, right)
        small = difference is None or difference.relative < SHARES
        if incoming.status is not Status.PARTED and (not mistakes or (small and not audited.mistakes)):
            spoiled = self._ranges.of_value(item, left, right, bound)
            mistakes[:0] = [spoiled] if spoiled is not None else []
        if mistakes:
            return Judged(Status.PARTED, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if incoming.status is Status.PARTED and not self._still_visible(item, terms.inherited, right, incoming.sources):
            incoming = Judged(Status.CLEAN)
        status = worse(Status.CLEAN, incoming.status)
        updated = bool(left.calls) and left.calls[-1].site.phase is Phase.UPDATE
        detour = updated and any(map(is_detour, self._state.begins_with(left, right)))
        because, reordered = told(terms, incoming.status), self._is_reordered(item, left, right)
        return Judged(status, terms, because, sources=incoming.sources, detour=detour, reordered=reordered)

    def _is_reordered(self, item: TensorResult, left: Slice, right: Slice) -> bool:
        """True if two values that are both right differ because a call before them may give its results in any order."""
        if item.verdict.outcome is not Outcome.DIFFERENT:
            return False
        meanings = [
            self._state.sides[which].meaning(call) for which, part in enumerate((left, right)) for call in part.calls
        ]
        chosen = any(meaning is not None and gives_any_order(meaning) for meaning in meanings)
        return chosen or any(judged.reordered for judged in self._state.begins_with(left, right))

    def _rounded_away(self, item: TensorResult) -> Judged | None:
        """Verdict on calls that mean something else, or compute in another precision, whose results are equal because they were
        rounded to 16 bits, and whose gradients are not: a loss with another smoothing of its labels, a layer of a bf16 run in
        float16. None if there is nothing of the kind.
        """
        pair = item.pair
        if pair.part is not Part.OUTPUT or pair.left in self._state.known[0] or pair.right in self._state.known[1]:
            return None
        if unit(item.left.spec.dtype, item.right.spec.dtype) <= SINGLE:
            return None
        parts = [
            self._state.sides[which].slice((pair.left, pair.right)[which], self._state.known[which]) for which in (0, 1)
        ]
        sent = self._sent_back(0, parts[0]), self._sent_back(1, parts[1])
        if not sent[0] or not sent[1] or set(sent[0].values()) == set(sent[1].values()):
            return None
        if self._explainer.draws(parts[0], parts[1]) is not None:
            return None
        precise = self._explainer.precision_mistake(item, parts[0], parts[1], None)
        if precise is not None and self._are_other_gradients(sent):
            what = f"{precise.what}; the results are equal, the gradients that they send back are not"
            return Judged(Status.PARTED, Terms(), what, (replace(precise, what=what),))
        if self._state.recomputation.same_meaning(parts[0], parts[1], self._state.bound):
            return None
        try:
            difference = self._state.recomputation.difference(parts[0], parts[1], self._state.bound, pair.layout)
        except not_recomputable():
            return None
        if not difference.significant or self._state.recomputation.is_unavoidable(parts[0], parts[1]):
            return None
        cause = self._explainer.cause(parts[0], parts[1], pair)
        mistake = self._explainer.meaning_mistake(parts[0], parts[1], pair, difference, cause)
        self._state.origins.setdefault(mistake, (pair, parts[0], parts[1]))
        return Judged(Status.PARTED, Terms(meaning=difference.relative), mistake.what, (mistake,))

    def _round_trip(self, item: TensorResult) -> Judged | None:
        """Verdict on casts that one side alone makes, which change the gradient alone; None if there are none."""
        casts = [self._explainer.round_trip(which, (item.pair.left, item.pair.right)[which]) for which in (0, 1)]
        mistakes = tuple(mistake for mistake in casts if mistake is not None)
        if len(mistakes) != 1:
            return None
        if any(
            other.verdict.outcome is not Outcome.SAME
            for result in self._state.results
            for other in result.tensors
            if other.pair.part is Part.PARAMETER_GRADIENT
        ):
            self._state.always.add(mistakes[0])  # no value shows it, and rounding hides it among gradients
        return Judged(Status.PARTED, Terms(), mistakes[0].what, mistakes)

    def _sent_back(self, which: int, part: Slice) -> dict[int, str]:
        """Numbers and fingerprints of the gradients that the calls of a slice send back to the values that it begins with."""
        side, edge = self._state.sides[which], set(part.edge)
        found = {}
        for call in part.calls:
            taken = inputs_of(call)
            for gradient in call.gradients:
                if gradient.role != "output" and taken.get(gradient.slot) in edge:
                    found[gradient.tensor] = side.tensor(gradient.tensor).fingerprint or ""
        return found

    def _are_other_gradients(self, sent: tuple[dict[int, str], dict[int, str]]) -> bool:
        """True if gradients differ in their values, and not in their element type alone."""
        compared = [
            item.verdict.outcome is not Outcome.SAME
            for result in self._state.results
            for item in result.tensors
            if item.pair.part.backward and item.pair.left in sent[0] and item.pair.right in sent[1]
        ]
        return any(compared) or not compared

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

    def _crossed(self, left: int, right: int) -> Judged:
        """Operands in the same place of two calls that were each compared with another one: the calls take other values. If they
        are copies of a pair, that pair's standing.
        """
        pair = self._state.values.get((left, right))
        if pair is not None:
            because = "a copy of what was compared"
            return Judged(pair.status, because=because, sources=pair.sources, reordered=pair.reordered)
        known = [self._state.of_left[left], self._state.values[self._state.bound[right].left, right]]
        status = worse(*(judged.status for judged in known))
        sources = frozenset().union(*(judged.sources for judged in known))
        return Judged(
            status, because="the two calls take other values here: each was compared elsewhere", sources=sources
        )

    def _leaf(self, item: TensorResult) -> Judged:
        """Data, weights, buffers, state: nothing recorded made them."""
        left, right, pair = item.left, item.right, item.pair
        inherited = self._state.before.get((left.fingerprint or "", right.fingerprint or ""))
        if inherited is not None:
            return Judged(inherited[0], because="an earlier step left it so", sources=inherited[1])
        gradient = self._state.gradients.get((pair.left, pair.right))
        if gradient is None and pair.left in self._state.gradient_of[0] and pair.right in self._state.gradient_of[1]:
            gradient = together([self._state.gradient_of[0][pair.left], self._state.gradient_of[1][pair.right]])
        gradient = gradient or self._state.gradient_by_bits.get((left.fingerprint, right.fingerprint))
        if gradient is not None:
            return Judged(gradient.status, because="a gradient of the backward pass", sources=gradient.sources)
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Judged(Status.UNTOLD, untold=item.verdict.because)
        if (
            "module" in (self._state.sides[0].level, self._state.sides[1].level)
            and pair.part is Part.INPUT
            and (self._state.values or self._is_constant(pair))
        ):
            return self._between_modules(item)
        measured = item.measurement
        coarse = unit(left.spec.dtype, right.spec.dtype)
        trend = None
        weight = pair.part is Part.PARAMETER or left.requires_grad
        units = _COPIED_UNITS if weight and coarse > SINGLE else LEAF_UNITS
        if measured is not None and coarse and measured.max_ulp is not None and measured.max_ulp <= units:
            # Tables that each side computed in float32 may all be off in one direction; weights were copied.
            copied = weight or coarse > SINGLE
            if copied and not self._state.before:
                trend = self._state.recomputation.recorded.trend(pair.left, pair.right, pair.layout)
            if trend is not None and trend.rounding:
                self._state.rounded.setdefault(trend.text, []).append(name_of_pair(pair))
            if trend is None or trend.rounding:
                return Judged(Status.CLEAN, because=f"within {units:.0f} units of {left.spec.dtype}")
        held = pair.part in (Part.PARAMETER, Part.BUFFER) or (left.requires_grad and right.requires_grad)
        if held and self._state.before and item.verdict.outcome.good:
            why = f"{name_of_pair(pair)} was changed between two steps by something that was not recorded"
            if "module" in (self._state.sides[0].level, self._state.sides[1].level):
                why += ": record with level='mix'"
            return Judged(Status.UNTOLD, untold=why)
        if measured is None and item.verdict.outcome.good:
            return Judged(Status.UNTOLD, untold=f"{name_of_pair(pair)} differs, and its values were not kept")
        kind = {Part.PARAMETER: "weights", Part.BUFFER: "buffers"}.get(pair.part, "data")
        if kind == "data" and held:  # a function takes its weight as an argument
            kind = "weights"
        shapes = left.spec.shape != right.spec.shape
        what = (
            f"{name_of_pair(pair)} is {left.spec} | {right.spec}"
            if shapes
            else f"the two start from different {kind}: {name_of_pair(pair)}"
        )
        size = self._error_of_taken(item) / coarse if coarse else 0.0
        table = kind != "weights" and 0 < size < SMALL and not shapes and self._is_constant(pair)
        mistake = Mistake(
            "leaf" if kind == "data" or table else "weights",
            what,
            ""
            if shapes
            else trend.text
            if trend
            else self._state.recomputation.recorded.relation(pair.left, pair.right),
            size=size,
            advice=f"give both sides the same {kind}",
        )
        self._state.origins[mistake] = pair, Slice(pair.left, (), (pair.left,)), Slice(pair.right, (), (pair.right,))
        # Of a table that each side computed for itself, in float32, its effect at the results will tell.
        if table:
            self._state.tables.add(mistake)
        return Judged(Status.CLEAN if table else Status.PARTED, because=what, mistakes=(mistake,))

    def _error_of_taken(self, item: TensorResult) -> float:
        """Relative error of a leaf; of a table that calls take parts of, that of the parts: nobody sees the rest."""
        whole = item.verdict.error or 0.0
        takers = [self._state.sides[which].takers((item.pair.left, item.pair.right)[which]) for which in (0, 1)]
        for which, calls in enumerate(takers):
            meanings = [self._state.sides[which].meaning(call) for call in calls]
            if not meanings or any(meaning is None or meaning.operation not in _PICKING for meaning in meanings):
                return whole
        taken = {number for call in takers[0] for number in outputs_of(call).values()}
        errors = {
            value.pair.left: value.verdict.error or 0.0
            for result in self._state.results
            for value in result.tensors
            if value.pair.part is Part.OUTPUT and value.pair.left in taken and value.left.spec == value.right.spec
        }
        return max(errors.values()) if taken <= errors.keys() else whole

    def _is_constant(self, pair: TensorPair) -> bool:
        """True if neither of two values was given to the run: the code has made them, before the recording."""
        for side, number in zip(self._state.sides, (pair.left, pair.right), strict=True):
            given = [
                taken
                for call in side.calls
                if call.parent is None and call.site.kind is Kind.MODULE
                for _, taken in tensor_slots(call.args, call.kwargs)
            ]
            bits = side.tensor(number).fingerprint
            if number in given or any(side.tensor(taken).fingerprint == bits for taken in given):
                return False
        return True

    def _between_modules(self, item: TensorResult) -> Judged:
        """Level module does not show the functions between modules: a difference there cannot be taken apart."""
        before = together([judged for judged in self._state.values.values() if judged.status is Status.PARTED])
        if before.status is Status.PARTED:
            return Judged(Status.PARTED, because=item.verdict.because, sources=before.sources)
        if item.verdict.outcome is Outcome.DIFFERENT:
            what = f"{name_of_pair(item.pair)} differs, by code between the modules that this level does not record"
            return Judged(
                Status.PARTED, because=what, mistakes=(Mistake("unproven", what, advice="record with level='mix'"),)
            )
        return Judged(
            Status.UNTOLD,
            untold=f"{name_of_pair(item.pair)} was made between the modules, "
            "which level 'module' does not show: record level='mix'",
        )

    def _is_leaf(self, which: int, part: Slice) -> bool:
        """True if a value is a leaf, or one that was only moved or cast since."""
        meanings = [self._state.sides[which].meaning(call) for call in part.calls]
        if (
            any(number in self._state.known[which] for number in part.edge if number != part.tensor)
            or len(part.edge) != 1
        ):
            return not part.calls
        if not all(
            meaning is not None and (traits_of(meaning).moves or traits_of(meaning).casts) for meaning in meanings
        ):
            return False
        edge, own = self._state.sides[which].tensor(part.edge[0]), self._state.sides[which].tensor(part.tensor)
        same = edge.spec == own.spec and edge.fingerprint is not None and edge.fingerprint == own.fingerprint
        return not part.calls or same

    def _is_uninitialised(self, which: int, part: Slice) -> bool:
        """True if a value is memory as it was: made by `empty`, and only looked at since."""
        meanings = [self._state.sides[which].meaning(call) for call in part.calls]
        kinds = [traits_of(meaning) for meaning in meanings if meaning is not None]
        return (
            bool(kinds)
            and len(kinds) == len(meanings)
            and any(kind.uninitialised for kind in kinds)
            and all(kind.uninitialised or kind.moves for kind in kinds)
        )

    def _audited(self, left: Slice, right: Slice) -> Judged:
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
        return Judged(
            Status.CLEAN, Terms(ratios[0], 0.0 if not untold else None, None, ratios[1]), "", tuple(mistakes), untold
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
        error = item.verdict.error or 0.0
        measured = item.measurement
        if measured is not None and measured.rmse is not None and measured.rms_left:
            error = measured.rmse / max(measured.rms_left, measured.rms_right or 0.0)
        if error >= SHARES or measured is None:
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

    def _fallback(
        self, item: TensorResult, incoming: Judged, audited: Judged, why: str, left: Slice, right: Slice
    ) -> Judged:
        """The verdict without recomputation: settings still speak, and what it calls rounding is not proven."""
        mistakes = audited.mistakes
        if mistakes:
            return Judged(Status.PARTED, audited.terms, mistakes[0].what, mistakes, sources=incoming.sources)
        if incoming.status is Status.PARTED:
            return Judged(Status.PARTED, None, item.verdict.because, sources=incoming.sources)
        stated = self._stated(left, right)
        if stated:
            what = f"the two calls say that they compute something else: {stated}"
            return Judged(Status.PARTED, None, what, (Mistake("meaning", what, f"{stated} (not proven: {why})"),))
        agreed = incoming.status in (Status.SAME, Status.CLEAN) or self._came_in_alike(item, left, right)
        if item.verdict.outcome is Outcome.DIFFERENT and agreed:
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            spoiled = self._ranges.of_value(item, left, right, None)
            if spoiled is not None:
                return Judged(Status.PARTED, None, spoiled.what, (spoiled,))
            lone = self._lone_call(left, right)
            mistake = Mistake(
                "unproven", what, lone, f"look at it: {lone}" if lone else "", size=times_bound(item.verdict)
            )
            return Judged(Status.PARTED, None, what, (mistake,))
        return Judged(Status.UNTOLD, audited.terms, item.verdict.because, untold=why, sources=incoming.sources)

    def _came_in_alike(self, item: TensorResult, left: Slice, right: Slice) -> bool:
        """True if a difference is far beyond what rounding explains, and all that it was made of is not, as far as norms tell: then
        it arises here, whatever could not be recomputed before.
        """
        if times_bound(item.verdict) < FAR or not left.calls or not right.calls:
            return False
        edges = {(which, number) for which, part in enumerate((left, right)) for number in part.edge}
        compared, apart = self._state.by_norms
        return not edges.isdisjoint(compared) and edges.isdisjoint(apart)

    def _lone_call(self, left: Slice, right: Slice) -> str:
        """The last call between that one side alone makes; empty if there is none."""
        for which, side, part in ((0, "left", left), (1, "right", right)):
            for call in reversed(part.calls):
                if call.id not in self._state.match_of[which]:
                    return f"only the {side} calls {name_of(call)} before it"
        return ""

    def _stated(self, left: Slice, right: Slice) -> str:
        """Difference that the calls themselves state, without a look at values: a setting, another function, exchanged operands."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return ""
        one, two = self._state.sides[0].meaning(left.calls[0]), self._state.sides[1].meaning(right.calls[0])
        if one is None or two is None:
            return ""
        if one.operation != two.operation:
            return f"{one.operation} | {two.operation}"
        settings = self._explainer.different_settings(left, right)
        if settings or left.calls[0].site.phase is Phase.UPDATE:  # one optimizer may begin without a state
            return settings
        ours, theirs = dict(one.operands()), dict(two.operands())
        lacking = sorted(set(ours) ^ set(theirs))
        if lacking:
            side = "left" if lacking[0] in ours else "right"
            return f"only the {side} has a {lacking[0]}"
        crossed = [
            path
            for path, operand in theirs.items()
            if operand.tensor in self._state.bound and self._state.bound[operand.tensor].left != ours[path].tensor
        ]
        partners = {self._state.bound[theirs[path].tensor].left for path in crossed}
        if crossed and partners == {ours[path].tensor for path in crossed}:
            return f"{name_of(left.calls[0]).rpartition('.')[2]} takes the same values in another order"
        return ""
