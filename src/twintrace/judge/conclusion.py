"""Conclusion of one step of one rank: which mistakes reach a result of the run, and which results could not be told."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..model.pairs import Bearing, Layout, Match, Part, TensorPair
from ..model.records import Call
from ..model.results import CallResult, Mistake, Status, TensorResult
from ..model.sites import Kind, Phase
from ..model.values import TensorRef, leaves
from ..model.verdicts import Outcome
from ..operations.families import family_of
from ..operations.meanings import FRAMEWORKS_OWN, different_arguments, told
from ..operations.sides import Slice, inputs_of, name_of, outputs_of
from ..operations.traits import traits_named, writes
from .backward import Gradients
from .explanations import Explainer
from .state import EXACT, SHARES, SMALL, Judged, JudgeState, attach, is_float, name_of_pair, not_recomputable

if TYPE_CHECKING:
    from ..operations.recomputation import Difference

_TRIED = 16
"""Mistakes without visible effect that are tried for a small one."""
_LEAF_EFFECT = 1e-6
"""Relative effect at a result of data that differ: tables that were computed in float32 have its rounding."""
_PART = 1e-3
"""Relative distance, at most, of the new values of a weight and of a part of another: gradients that were rounded otherwise."""
_FACTOR = 1e-4
"""Relative distance of two factors that are one loss scale."""
_NAMED = 3
"""Parameters that a sentence names before it counts the others."""
_RETURNED = 1e-5
"""Relative difference of Python numbers that a run returns, beyond which they are not one number rounded twice in float32."""
_WITH_STATISTICS = frozenset(("layer_norm", "group_norm", "batch_norm", "rms_norm", "scaled_dot_product_attention"))
"""Families whose kernels put out more than their result."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All results of one step of one rank."""

    results: list[CallResult]
    untold: tuple[str, ...]
    """Results of the run that could not be told, one sentence each."""
    parted: bool
    """True if a mistake reaches a result of the run."""
    lone: tuple[str, ...] = ()
    """Results and gradients that one side alone has, one sentence each."""
    notes: tuple[str, ...] = ()
    """Differences that nobody can set right, one sentence each."""
    reached: frozenset[Mistake] = frozenset()
    """Mistakes that reach a result, those of earlier steps among them."""


class Conclusion:
    """Follows mistakes to the results of the run."""

    def __init__(self, state: JudgeState, explainer: Explainer, gradients: Gradients) -> None:
        self._state = state
        self._explainer = explainer
        self._gradients = gradients
        self._scale: float | None = None
        """Factor on the loss of the right that is taken off its gradients again."""

    def conclude(self, results: list[CallResult], judged: Mapping[int, Mapping[int, Judged]]) -> Judgement:
        """True if a mistake reaches a result of the run, and which results could not be told."""
        ends = self.ends(0), self.ends(1)
        self._scale = self._loss_scale()
        for which, call, mistake in self._state.between:
            attach(results, call, which, mistake)
        untold: list[str] = []
        reached: set[Mistake] = set()
        unknown = any(status is Status.PARTED and not sources for status, sources in self._state.before.values())
        for number, result in enumerate(results):
            for place, item in enumerate(result.tensors):
                own = judged[number].get(place)
                if own is None or not _is_end(item, ends[0]):
                    continue
                if self._scale is not None and item.pair.part is Part.PARAMETER_GRADIENT:
                    continue
                if own.status is Status.PARTED:
                    reached |= own.sources - self._state.tables or own.sources
                if own.status is Status.PARTED and not own.sources and unknown:
                    untold.append(f"{name_of_pair(item.pair)} differs by what an earlier step left behind")
                if own.status is Status.UNTOLD:
                    untold.append(
                        own.untold or f"{name_of_pair(item.pair)} depends on calls that could not be recomputed"
                    )
        for result in results:
            for mistake in result.mistakes:
                counts = mistake.backward and mistake.kind in ("unproven", "gradient") and self._scale is None
                if counts and mistake not in reached and mistake not in self._state.undone:
                    untold.append(f"a gradient differs, and its way to the parameters is not known: {mistake.what}")
        self._unseen_state(results)
        results, handled = self._other_results(results, ends)
        self._match_results(ends, handled)
        self._match_parts(ends, handled)
        for which in (0, 1):
            handled[which].update(number for number, call in ends[which].items() if self._is_of_scaler(call))
        self._forgotten_updates(results, ends, handled)
        lone = self._lone_results(ends, handled)
        if self._scale is None:
            lone += self._lone_gradients(results)
        self._gradients.look_for_cuts(results)
        reached |= self._state.always
        for which, side in enumerate(("left", "right")):
            for alone in (self._state.alignment.only_left, self._state.alignment.only_right)[which]:
                settled = self._is_settled(which, alone.call, ends[which], handled[which])
                if not alone.skipped and alone.bearing is Bearing.OPEN and not settled:
                    lone.append(
                        (f"only the {side} calls {name_of(alone.call)}, and what comes of it was not compared", False)
                    )
        untold += [text for text, counts in lone if not counts]
        mistakes = [text for text, counts in lone if counts]
        reached |= self._small_effects(results, reached, ends[1])
        reached |= self._effects_of_kernels(results, reached, ends)
        # Other weights always count: the next input may show them.
        reached |= {mistake for result in results for mistake in result.mistakes if mistake.kind == "weights"}
        idle = {mistake for mistake in reached if self._is_other_mask(mistake, ends[1])}
        idle |= self._for_other_steps(results, judged) & reached
        reached = reached - idle or reached  # something must explain what differs at the end
        finished = []
        for result in results:
            made = tuple(replace(mistake, effective=mistake in reached) for mistake in result.mistakes)
            returned = _returned(result.match) if not made else ""
            if returned:
                made = (Mistake("meaning", returned, "the two return something else that is no tensor"),)
                reached.add(made[0])
            finished.append(replace(result, mistakes=made) if made else result)
        notes = tuple(
            f"{names} differ by {size:.1e} on the same inputs: by where they add epsilon or hold their settings, which nothing sets"
            for names, size in self._state.notes.items()
        ) + tuple(self._state.remarks)
        for text, names in self._state.rounded.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            notes += (f"{text}: {names[0]}{more}",)
        parted = bool(reached or mistakes)
        finished = self._with_factor(finished)
        return Judgement(finished, tuple(dict.fromkeys(untold)), parted, tuple(mistakes), notes, frozenset(reached))

    def _unseen_state(self, results: list[CallResult]) -> None:
        """Tells of settings that decide on state that was not recorded: the momentum of a norm at level module."""
        for result in results:
            if len(result.match.left) != 1 or len(result.match.right) != 1 or result.mistakes:
                continue
            one, two = (
                side.meaning(call)
                for side, call in zip(self._state.sides, (*result.match.left, *result.match.right), strict=True)
            )
            if one is None or two is None or one.operation != two.operation:
                continue
            unseen = [
                name
                for name in writes(one.operation)
                if name in dict(one.operands()) and name not in one.results.values()
            ]
            if not unseen or not (one.arguments.get("training") or two.arguments.get("training")):
                continue
            settings = {
                name: pair for name, pair in different_arguments(one, two).items() if name not in FRAMEWORKS_OWN
            }
            if not settings:
                continue
            what = f"the two calls leave other values in {' and '.join(unseen)}, which this level does not record"
            why = ", ".join(f"{name}: {told(mine)} | {told(other)}" for name, (mine, other) in settings.items())
            advice = ", ".join(f"{name}={told(mine)}" for name, (mine, _) in settings.items())
            mistake = Mistake("meaning", what, why, f"set {advice} on the right")
            attach(results, result.match.left[0], 0, mistake)
            self._state.always.add(mistake)

    def _loss_scale(self) -> float | None:
        """Factor on all gradients of the right, which is taken off before the parameters are updated: their new values have the
        same bits. None if there is none. The gradients are no results of the run then, and neither is the loss with the factor.
        """
        items = [item for result in self._state.results for item in result.tensors]
        made = (self._updated(0), self._updated(1))
        same = [
            item.verdict.outcome is Outcome.SAME
            for item in items
            if item.pair.left in made[0] and item.pair.right in made[1]
        ]
        if not same or len(same) < len(made[0]) or not all(same):
            return None
        factor = self._common_factor()
        if factor is None:
            return None
        side, other = ("right", "left") if factor > 1 else ("left", "right")
        times = max(factor, 1 / factor)
        text = f"the {side}'s gradients are {times:.6g} times the {other}'s, and not when parameters are updated: a loss scale"
        self._state.remarks.append(text)
        return factor

    def _common_factor(self) -> float | None:
        """Factor between the gradients of all parameters of the right and those of the left; None if there is none, or it is 1."""
        items = [item for result in self._state.results for item in result.tensors]
        pairs = [item.pair for item in items if item.pair.part is Part.PARAMETER_GRADIENT]
        factors = [self._state.recomputation.factor((pair.left, pair.right), pair.layout) for pair in pairs]
        known = [factor for factor in factors if factor is not None]
        if not known or len(known) < len(factors) or max(known) - min(known) > _FACTOR * max(known):
            return None
        return known[0] if abs(known[0] - 1) > _FACTOR else None

    def _with_factor(self, results: list[CallResult]) -> list[CallResult]:
        """The results, with a factor on the loss as the cause of gradients that nothing else explains."""
        open_ = [mistake for result in results for mistake in result.mistakes if mistake.backward and not mistake.why]
        factor = self._common_factor() if open_ else None
        if factor is None:
            return results
        why = (
            f"all gradients of the right are {factor:.6g} times the left's: another factor on the loss, or another mean"
        )
        advice = "look at how the two losses are averaged, scaled and accumulated"
        return [
            replace(
                result,
                mistakes=tuple(
                    replace(mistake, why=why, advice=advice) if mistake in open_ else mistake
                    for mistake in result.mistakes
                ),
            )
            if result.mistakes
            else result
            for result in results
        ]

    def _updated(self, which: int) -> set[int]:
        """New values of parameters and states that the updates of one side made."""
        side = self._state.sides[which]
        return {
            number
            for call in side.calls
            if call.site.phase is Phase.UPDATE and side.is_leaf(call)
            for number in outputs_of(call).values()
            if side.tensor(number).spec.shape
        }

    def _is_scaled(self, which: int, number: int, partner: int) -> bool:
        """True if a result is the other side's times the loss scale."""
        if self._scale is None:
            return False
        left, right = (number, partner) if which == 0 else (partner, number)
        factor = self._state.recomputation.factor((left, right), Layout())
        return factor is not None and abs(factor - self._scale) <= _FACTOR * self._scale

    def _is_settled(self, which: int, call: Call, ends: Mapping[int, Call], handled: Collection[int]) -> bool:
        """True if all results that depend on a call without a partner were compared; or if it clears a gradient."""
        side = self._state.sides[which]
        if any(self._is_cleared_gradient(which, call, number) for number in outputs_of(call).values()):
            return True
        waiting = [*outputs_of(call).values()]
        if _writes_in_place(call):
            waiting += [copy for number in waiting for copy in side.copies_of(number)]
        seen, reached, scaling = set(waiting), set(), self._is_of_scaler(call)
        while waiting:
            number = waiting.pop()
            scaling = scaling or any(map(self._is_of_scaler, side.takers(number)))
            if number in ends:
                reached.add(number)
            if number in self._state.known[which]:
                continue
            more = [made for taker in side.takers(number) for made in outputs_of(taker).values() if made not in seen]
            seen.update(more)
            waiting += more
        return (scaling or bool(reached)) and reached <= self._state.known[which] | set(handled)

    def _is_of_scaler(self, call: Call) -> bool:
        """True if a call keeps the loss scale: that is nobody's result."""
        return self._scale is not None and "_amp_" in name_of(call)

    def ends(self, which: int) -> dict[int, Call]:
        """Results of a run and the calls that made them: outputs of outermost modules, losses, and what nobody takes where there is
        no module.
        """
        side = self._state.sides[which]
        modules = [call for call in side.calls if call.parent is None and call.site.kind is Kind.MODULE]
        trained = any(call.gradients for call in side.calls)
        found: dict[int, Call] = {}
        for call in modules:
            found.update(dict.fromkeys(outputs_of(call).values(), call))
        for call in side.calls:
            if not side.is_leaf(call) or call.site.phase is Phase.BACKWARD:
                continue
            inner = call.parent is not None or (trained and not call.gradients)
            if (modules and inner and call.site.phase is not Phase.UPDATE) or traits_named(name_of(call)).uninitialised:
                continue
            made = [number for number in outputs_of(call).values() if not self._is_taken(which, call, number)]
            if call.site.phase is Phase.UPDATE:  # counts of steps are nobody's result
                specs = {number: side.tensor(number).spec for number in made}
                made = [number for number in made if specs[number].shape and specs[number].dtype[0] not in "iu"]
            found.update(dict.fromkeys(made, call))
        return found | self._written_state(which)

    def _is_taken(self, which: int, maker: Call, number: int) -> bool:
        """True if a call takes a value, and not its shape alone: the backward pass begins with ones like the loss. What a kernel
        makes for its backward pass alone is nobody's result.
        """
        side = self._state.sides[which]
        if maker.site.kind is Kind.OP:
            workspace = side.tensor(number).spec.dtype == "u8" and traits_named(name_of(maker)).recurrent
            if workspace or number in _kept_for_backward(maker):
                return True
        for own in (number, *(side.copies_of(number) if _writes_in_place(maker) else ())):
            meanings = [side.meaning(call) for call in side.takers(own)]
            if any(
                meaning is None or any(item.tensor == own for _, item in meaning.operands()) for meaning in meanings
            ):
                return True
        return False

    def _written_state(self, which: int) -> dict[int, Call]:
        """State that a step leaves in tensors that were there before it, as it is last: buffers and attributes."""
        side = self._state.sides[which]
        there = {number for call in side.calls for number in call.buffers.values()}
        last: dict[int, Call] = {}
        for call in sorted(side.calls, key=lambda item: item.order):
            if not call.mutates or not side.is_leaf(call) or call.site.phase is not Phase.FORWARD:
                continue
            taken, made = inputs_of(call), outputs_of(call)
            for slot in call.mutates:
                before, after = taken.get(slot), made.get(f"after.{slot}", made.get(""))
                if before is None or after is None or (before not in there and side.maker(before) is not None):
                    continue
                if before not in there and self._is_cleared_gradient(which, call, after):
                    continue
                last.pop(before, None)
                last[after] = call
                there.add(after)
        return {number: call for number, call in last.items() if is_float(side.tensor(number).spec.dtype)}

    def _is_cleared_gradient(self, which: int, call: Call, after: int) -> bool:
        """True if a call sets to zero what has the shape of a parameter and what nobody takes, in a step that ends with an update:
        a gradient of the step before, where others let it go.
        """
        side = self._state.sides[which]
        meaning = side.meaning(call)
        if meaning is None or meaning.operation != "fill" or meaning.arguments.get("value") != 0 or side.takers(after):
            return False
        shape = side.tensor(after).spec.shape
        return any(
            call.site.phase is Phase.UPDATE
            and any(side.tensor(number).spec.shape == shape for number in inputs_of(call).values())
            for call in side.calls
        )

    def _is_other_mask(self, mistake: Mistake, ends: Mapping[int, Call]) -> bool:
        """True if all that a mistake changes is the value by which a mask hides elements, and no result of the right is changed by
        that: -inf and -1e9 are one mask, beside another mistake as well.
        """
        if mistake.kind != "meaning" or mistake.backward or mistake not in self._state.origins:
            return False
        changed = self._state.choices([mistake])
        if not changed or not self._state.recomputation.hide_the_same(*next(iter(changed.values()))):
            return False
        from ..operations.replay import effect

        return all(effect(self._state.recomputation, changed, end) == 0.0 for end in ends)

    def _for_other_steps(
        self, results: Sequence[CallResult], judged: Mapping[int, Mapping[int, Judged]]
    ) -> set[Mistake]:
        """Mistakes in operands of calls that were not compared any further, because they go other ways to the same result: what is
        hidden for one side's mask, what is shown for the other's.
        """
        found: set[Mistake] = set()
        for number, result in enumerate(results):
            own = [
                judged[number].get(place) for place, item in enumerate(result.tensors) if item.pair.part is Part.OUTPUT
            ]
            if own and all(item is not None and item.discarded for item in own):
                found |= {
                    mistake
                    for mistake in result.mistakes
                    if mistake in self._state.origins and self._state.origins[mistake][0].part is Part.INPUT
                }
        return found

    def _small_effects(
        self, results: Sequence[CallResult], reached: Collection[Mistake], ends: Mapping[int, Call]
    ) -> set[Mistake]:
        """Mistakes that were lost in the rounding of the run on their way, and change a result if nothing is rounded.

        They are tried together: two that undo each other have no effect.
        """
        settled = {*reached, *self._state.undone}
        made = [mistake for result in results for mistake in result.mistakes if mistake not in settled]
        # A large difference that is gone later was undone: a factor before a product that the other side has after it.
        small = [mistake for mistake in made if mistake.kind == "leaf" or mistake.size < SMALL]
        gone = [mistake for mistake in small if mistake in self._state.origins and not mistake.backward][:_TRIED]
        changed = self._state.choices(gone)  # the others alone would not undo each other
        if not changed:
            return set()
        from ..operations.replay import effect

        leaf = any(mistake.kind == "leaf" for mistake in gone)
        for end in ends:
            seen = effect(self._state.recomputation, changed, end)
            if (seen is None and leaf) or (seen or 0.0) > (_LEAF_EFFECT if leaf else EXACT):
                return set(gone)
        return set()

    def _effects_of_kernels(
        self,
        results: Sequence[CallResult],
        reached: Collection[Mistake],
        ends: tuple[Mapping[int, Call], Mapping[int, Call]],
    ) -> set[Mistake]:
        """Wrong results of kernels that were lost in the rounding of the run on their way, and change a result of their own side if
        nothing is rounded: one element of a 16-bit product.
        """
        from ..operations.replay import effect

        found = set()
        made = {mistake for result in results for mistake in result.mistakes if mistake not in reached}
        for mistake in [mistake for mistake in made if mistake in self._state.kernels and not mistake.backward][
            :_TRIED
        ]:
            which, call, number = self._state.kernels[mistake]
            both = self._state.recomputation.computed(which, call, number)
            if both is None:
                continue
            seen = [effect(self._state.recomputation, {number: both}, end, which) for end in ends[which]]
            if any((size or 0.0) > EXACT for size in seen):
                found.add(mistake)
        return found

    def _other_results(
        self, results: list[CallResult], ends: tuple[Mapping[int, Call], Mapping[int, Call]]
    ) -> tuple[list[CallResult], tuple[set[int], set[int]]]:
        """Results that one side goes on to compute from what is the other's result: a loss that is divided on one side only.

        Returns the results with these mistakes, and the numbers of both sides that are told by them.
        """
        handled: tuple[set[int], set[int]] = (set(), set())
        for which in (0, 1):
            for number, call in ends[which].items():
                if number in self._state.known[which] or _writes_state(call):
                    continue
                rest = self._state.sides[which].slice(number, self._state.known[which])
                partners = [self._state.partner(which, edge) for edge in rest.edge]
                shape = self._state.sides[which].tensor(number).spec.shape
                # Of several, the one that it may be: a loss, and not the output that a part of the loss is made of.
                candidates = sorted(
                    (item for item in partners if item is not None and item in ends[1 - which]),
                    key=lambda item: self._state.sides[1 - which].tensor(item).spec.shape != shape,
                )
                found = [(partner, self._beyond(which, rest, partner)) for partner in candidates]
                told = [(partner, difference) for partner, difference in found if difference is not None]
                if not told:
                    continue
                handled[which].add(number)
                if all(difference.significant for _, difference in told) and not self._is_scaled(
                    which, number, told[0][0]
                ):
                    partner, difference = told[0]
                    left, right = _beside(which, rest, partner)
                    pair = TensorPair(Part.OUTPUT, "", "", left.tensor, right.tensor)
                    cause = self._explainer.cause(left, right, pair)
                    mistake = self._explainer.meaning_mistake(left, right, pair, difference, cause)
                    results = self._add_mistake(results, which, rest, mistake)
        return results, handled

    def _beyond(self, which: int, rest: Slice, partner: int) -> Difference | None:
        """Difference that the calls of a slice make to the other side's result that it begins with; None if not known."""
        try:
            return self._state.recomputation.difference(*_beside(which, rest, partner), self._state.bound, Layout())
        except not_recomputable():
            return None

    def _match_results(
        self, ends: tuple[Mapping[int, Call], Mapping[int, Call]], handled: tuple[set[int], set[int]]
    ) -> None:
        """Adds to `handled` the results that were compared with none, and are what the other side computes by other calls (a loss,
        a running average), or what their own side has computed before (a layer that is run again in the backward pass).
        """
        for which in (0, 1):
            side = self._state.sides[which]
            compared = self._state.known[which] | handled[which]
            lone = [number for number in ends[which] if number not in compared]
            bits = {side.tensor(number).fingerprint for number in self._state.known[which]} - {None} if lone else set()
            for number in lone:
                again = side.tensor(number).fingerprint in bits
                if again and not _writes_state(ends[which][number]):
                    handled[which].add(number)
                    continue
                partner = self._same_result(which, number, ends)
                if partner is not None:
                    handled[which].add(number)
                    handled[1 - which].add(partner)

    def _match_parts(
        self, ends: tuple[Mapping[int, Call], Mapping[int, Call]], handled: tuple[set[int], set[int]]
    ) -> None:
        """Adds to `handled` new values of a weight that are parts of the other side's: queries, keys and values in one. Optimizers
        work on each element alone: if the two steps have the same settings, parts that are near each other are the same.
        """
        lone = [
            [
                number
                for number, call in ends[which].items()
                if call.site.phase is Phase.UPDATE and number not in self._state.known[which] | handled[which]
            ]
            for which in (0, 1)
        ]
        parts: dict[tuple[int, int], dict[int, int]] = {}
        for left in lone[0]:
            for right in lone[1]:
                distance, place = self._state.recomputation.nearest_block(left, right)
                if distance > _PART or not self._same_steps(ends[0][left], ends[1][right]):
                    continue
                sizes = self._size(0, left), self._size(1, right)
                which = 0 if sizes[0] > sizes[1] else 1  # the side that has them in one
                parts.setdefault((which, (left, right)[which]), {})[place] = (left, right)[1 - which]
        for (which, whole), found in parts.items():
            if sum(self._size(1 - which, part) for part in found.values()) != self._size(which, whole):
                continue  # a part of it is like none of the other side's
            handled[which].add(whole)
            handled[1 - which].update(found.values())
            for part in found.values():
                left, right = (whole, part) if which == 0 else (part, whole)
                prints = self._state.sides[0].tensor(left).fingerprint, self._state.sides[1].tensor(right).fingerprint
                if prints[0] and prints[1]:
                    self._state.left_behind[prints[0], prints[1]] = Status.CLEAN, frozenset()

    def _size(self, which: int, number: int) -> int:
        return math.prod(self._state.sides[which].tensor(number).spec.shape)

    def _same_steps(self, left: Call, right: Call) -> bool:
        """True if two optimizers' steps are one operation with the same settings."""
        from ..operations import different_arguments
        from ..operations.optimizers import of_one_parameter

        one, two = self._state.sides[0].meaning(left), self._state.sides[1].meaning(right)
        if one is None or two is None or one.operation != two.operation:
            return False
        first = [of_one_parameter(item, next(iter(item.results), -1)) for item in (one, two)]
        return not different_arguments(*first)

    def _same_result(self, which: int, number: int, ends: tuple[Mapping[int, Call], Mapping[int, Call]]) -> int | None:
        """A result of the other side that is computed otherwise of the same values, and means the same; None if there is none."""
        state = self._state
        shape = state.sides[which].tensor(number).spec.shape
        writes = _writes_state(ends[which][number])
        for other, call in ends[1 - which].items():
            if _writes_state(call) != writes or state.sides[1 - which].tensor(other).spec.shape != shape:
                continue
            left, right = (number, other) if which == 0 else (other, number)
            apart, size = state.recomputation.distance((left, right), Layout())
            if not apart <= SHARES * size or not size:
                continue
            slices = state.recomputation.from_same_values(
                state.sides[0].slice(left, state.known[0]),
                state.sides[1].slice(right, state.known[1]),
                state.bound,
                state.known,
                state.agrees,
            )
            try:
                different = state.recomputation.difference(*slices, state.bound, Layout()).significant
            except not_recomputable():
                continue
            if not different and state.incoming(*slices).status in (Status.SAME, Status.CLEAN):
                prints = state.sides[0].tensor(left).fingerprint, state.sides[1].tensor(right).fingerprint
                if prints[0] and prints[1]:
                    state.left_behind[prints[0], prints[1]] = Status.CLEAN, frozenset()
                return other
        return None

    def _add_mistake(self, results: list[CallResult], which: int, part: Slice, mistake: Mistake) -> list[CallResult]:
        """The results with a mistake that counts, at the pair that made what a slice begins with."""
        self._state.always.add(mistake)
        for place, result in enumerate(results):
            made = [item.pair for item in result.tensors if item.pair.part is Part.OUTPUT]
            if any((pair.left, pair.right)[which] in part.edge for pair in made):
                results = list(results)
                results[place] = replace(result, mistakes=(*result.mistakes, mistake))
                break
        return results

    def _lone_gradients(self, results: list[CallResult]) -> list[tuple[str, bool]]:
        """Gradients of parameters that one side alone has. One of zeros is what a framework gives for a parameter without use."""
        found = []
        sides = (
            ("left", "right", self._state.alignment.stray_left),
            ("right", "left", self._state.alignment.stray_right),
        )
        for which, (side, other, strays) in enumerate(sides):
            for stray in strays:
                known = self._state.sides[which].tensor(stray.tensor).statistics
                value = self._state.sides[which].parameter(stray.slot)
                compared = value is None or value in self._state.known[which]
                if not compared or (known is not None and not known.norm):
                    continue
                if value is not None and self._state.sides[1 - which].is_buffer(self._state.partner(which, value)):
                    self._state.remarks.append(f"{stray.slot} is a parameter on the {side} and a buffer on the {other}")
                    continue
                tie = self._tie(which, stray.slot, value)
                explained = tie or self._gradients.cut_off(1 - which)
                if explained is not None:
                    mistake, call = explained
                    if mistake not in self._state.always:
                        self._state.always.add(mistake)
                        attach(results, call, which if tie is not None else 1 - which, mistake)
                    continue
                text = (
                    f"only the {side} has a gradient of {stray.slot}: is it frozen, or out of the loss, on the {other}?"
                )
                found.append((text, True))
        return found

    def _tie(self, which: int, name: str, value: int | None) -> tuple[Mistake, Call] | None:
        """A weight of its own on one side, which the other shares with another layer."""
        if value is None:
            return None
        side, other = ("left", "right") if which == 0 else ("right", "left")
        spec = self._state.sides[which].tensor(value).spec
        for call in (call for call in self._state.sides[which].calls if value in inputs_of(call).values()):
            match = self._state.match_of[which].get(call.id)
            for partner in (match.left, match.right)[1 - which] if match is not None else ():
                shared = None
                for number in inputs_of(partner).values():
                    own = self._state.partner(1 - which, number)
                    if own in (None, value) or own in inputs_of(call).values():
                        continue
                    if (
                        self._state.sides[1 - which].tensor(number).spec == spec
                        and len(self._state.sides[1 - which].takers(number)) > 1
                    ):
                        shared = self._state.sides[1 - which].parameter_name(number)
                if shared is None:
                    continue
                what = f"{name} is not tied: a weight of its own on the {side}, one with {shared} on the {other}"
                why = f"on the {other} the weight is shared (tied to {shared}), so that its gradient has a part more"
                calls = ((call,), (partner,)) if which == 0 else ((partner,), (call,))
                mistake = Mistake(
                    "gradient", what, why, f"tie {name} to {shared} on both sides or on none", backward=True,
                    left=calls[0], right=calls[1],
                )  # fmt: skip
                return mistake, call
        return None

    def _forgotten_updates(
        self,
        results: list[CallResult],
        ends: tuple[Mapping[int, Call], Mapping[int, Call]],
        handled: tuple[set[int], set[int]],
    ) -> None:
        """Mistakes of optimizers that do not take a parameter which the other side's updates. What becomes of it in later steps
        comes from that, and its state is no result of its own.
        """
        for which, side in enumerate(("left", "right")):
            other = ("right", "left")[which]
            updates = [call for call in self._state.sides[1 - which].calls if call.site.phase is Phase.UPDATE]
            taken = {number for call in updates for number in inputs_of(call).values()}
            found: dict[int, tuple[Call, list[tuple[int, int, str]]]] = {}
            for number, call in ends[which].items():
                if number in self._state.known[which] or number in handled[which]:
                    continue
                partner = self._forgotten(which, call, number, taken)
                if partner is not None:
                    name = self._state.sides[which].parameter_name(_updated(call, number) or -1) or "a parameter"
                    found.setdefault(call.id, (call, []))[1].append((number, partner, name))
            for call, forgotten in found.values():
                names = ", ".join(name for *_, name in forgotten[:_NAMED])
                names += f" and {len(forgotten) - _NAMED} more" if len(forgotten) > _NAMED else ""
                mistake = Mistake(
                    "meaning",
                    f"only the {side}'s optimizer updates {names}",
                    f"the {other}'s optimizer is not given {names}",
                    f"give {names} to the {other}'s optimizer",
                    other,
                )
                earlier = [self._state.standing(which, _updated(call, number) or -1) for number, *_ in forgotten]
                if any(judged.status is not Status.PARTED for judged in earlier):  # else an earlier step has told it
                    self._state.always.add(mistake)
                    attach(results, call, which, mistake)
                for number, partner, _ in forgotten:
                    handled[which].update({number, *_state_beside(call, number)})
                    numbers = (partner, number) if which else (number, partner)
                    prints = [self._state.sides[i].tensor(item).fingerprint for i, item in enumerate(numbers)]
                    if prints[0] and prints[1]:
                        self._state.left_behind[prints[0], prints[1]] = Status.PARTED, frozenset((mistake,))

    def _forgotten(self, which: int, call: Call, number: int, taken: Collection[int]) -> int | None:
        """The other side's value of a parameter that one side's optimizer updates and the other's does not take, though the
        network has it. `taken` are the tensors that the other's takes.
        """
        before = _updated(call, number) if call.site.phase is Phase.UPDATE else None
        partner = None if before is None else self._state.partner(which, before)
        other = self._state.sides[1 - which]
        if before is None or partner is None or not taken:
            return None
        if math.prod(other.tensor(partner).spec.shape) != math.prod(self._state.sides[which].tensor(before).spec.shape):
            return None
        return None if partner in taken else partner

    def _is_own_state(self, which: int, call: Call, number: int) -> bool:
        """True of an optimizer's state that the other side keeps otherwise, or that is noise there, where both steps mean the same.

        The parameters show what became of it; a kernel that is wrong was told by its audit.
        """
        slot = next((slot for slot, made in outputs_of(call).items() if made == number), "")
        match = self._state.match_of[which].get(call.id)
        if call.site.phase is not Phase.UPDATE or not slot.startswith("state.") or match is None:
            return False
        meaning = self._state.sides[which].meaning(call)
        for partner in (match.left, match.right)[1 - which]:
            other = self._state.sides[1 - which].meaning(partner)
            if meaning is None or other is None or meaning.operation != other.operation:
                return False
            if different_arguments(meaning, other).keys() - FRAMEWORKS_OWN:
                return False
        return True

    def _lone_results(
        self, ends: tuple[Mapping[int, Call], Mapping[int, Call]], handled: tuple[set[int], set[int]]
    ) -> list[tuple[str, bool]]:
        """Results that one side alone has: (sentence, whether it is a mistake)."""
        compared = [self._state.known[which] | handled[which] for which in (0, 1)]
        alone = [
            {number: call for number, call in ends[which].items() if number not in compared[which]} for which in (0, 1)
        ]
        found = []
        for which, side in enumerate(("left", "right")):
            other = ("right", "left")[which]
            for number, call in alone[which].items():
                if self._is_own_state(which, call, number):
                    continue
                spec = self._state.sides[which].tensor(number).spec
                maker = self._state.sides[which].maker(number) or call
                if _writes_state(call):
                    found.append((f"only the {side} changes a state of the network, {spec}, by {name_of(call)}", True))
                elif call.gradients and call.site.kind is not Kind.MODULE:
                    found.append((f"only the {side} computes {name_of(maker)} of the result, {spec}", True))
                elif call.site.kind is not Kind.MODULE or alone[1 - which]:
                    found.append(
                        (
                            f"the {side}'s result of {name_of(maker)}, {spec}, was compared with none of the {other}'s",
                            False,
                        )
                    )
        return found


def _beside(which: int, part: Slice, partner: int) -> tuple[Slice, Slice]:
    """A slice of one side and a value of the other, as it is."""
    here = Slice(partner, (), (partner,))
    return (part, here) if which == 0 else (here, part)


def _updated(call: Call, number: int) -> int | None:
    """The parameter that an optimizer's step made a new value of, as it was before; None of anything else."""
    slot = next((slot for slot, made in outputs_of(call).items() if made == number), "")
    place = slot.rpartition("parameters.")[2]
    return inputs_of(call).get(f"0.{place}") if place.isdigit() else None


def _state_beside(call: Call, number: int) -> list[int]:
    """The state that an optimizer's step keeps of a parameter, by the parameter's new value."""
    made = outputs_of(call)
    place = next((slot for slot, item in made.items() if item == number), "").rpartition(".")[2]
    return [item for slot, item in made.items() if slot.startswith(f"state.{place}.")]


def _writes_state(call: Call) -> bool:
    """True if a call of the forward pass writes to something that was there before it."""
    return bool(call.mutates) and call.site.kind is not Kind.MODULE and call.site.phase is Phase.FORWARD


def _is_end(item: TensorResult, ends: Mapping[int, Call]) -> bool:
    part = item.pair.part
    return part is Part.PARAMETER_GRADIENT or part is Part.AFTER or (part is Part.OUTPUT and item.pair.left in ends)


def _returned(match: Match) -> str:
    """Numbers, texts and truth values that two outermost modules return differently; empty if none."""
    if len(match.left) != 1 or len(match.right) != 1:
        return ""
    one, two = match.left[0], match.right[0]
    if one.site.kind is not Kind.MODULE or one.parent is not None or two.parent is not None:
        return ""
    ours, theirs = dict(leaves(one.output)), dict(leaves(two.output))
    for slot in ours.keys() & theirs.keys():
        left, right = ours[slot], theirs[slot]
        if isinstance(left, TensorRef) or isinstance(right, TensorRef) or left == right:
            continue
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if numbers and abs(left - right) <= _RETURNED * max(abs(left), abs(right)):  # type: ignore[operator,arg-type]
            continue
        if numbers or (isinstance(left, str | bool) and isinstance(right, str | bool)):
            return f"the result {slot or ''} is {left!r} | {right!r}".replace("  ", " ")
    return ""


def _writes_in_place(call: Call) -> bool:
    """True of a kernel that writes in place. PyTorch notes the write after it, so that others take the result as an unseen copy."""
    return call.site.kind is Kind.OP and bool(call.mutates)


def _kept_for_backward(call: Call) -> frozenset[int]:
    """Results that a kernel makes beside its own for its backward pass: statistics of a norm, sums and seeds of an attention."""
    if family_of(name_of(call)) not in _WITH_STATISTICS:
        return frozenset()
    return frozenset([leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)][1:])
