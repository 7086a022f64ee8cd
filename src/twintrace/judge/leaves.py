"""Verdicts on leaves: data, weights, buffers and state, which no recorded call made. They are compared directly.

    Leaves(state).covers(0, part)      True if a slice of the left is a leaf, or one that was only moved or cast since
    Leaves(state).judge(item)          the standing of two leaves: within 4 units of the coarser element type they agree

A leaf that an earlier step left behind has the standing that it got there.
"""

from __future__ import annotations

from ..model.pairs import Part, TensorPair
from ..model.results import Mistake, TensorResult
from ..model.sites import Kind
from ..model.values import tensor_slots
from ..model.verdicts import Outcome
from ..operations.sides import Slice, outputs_of
from ..operations.traits import traits_of
from .counters import are_idle_counters
from .rounding import unit
from .state import SINGLE, SMALL, JudgeState, Standing, name_of_pair, together

LEAF_UNITS = 4.0
"""Leaves may differ by four units of the coarser element type: they were computed before recording, in another library."""
_COPIED_UNITS = 1.0
"""Units by which weights of 16 bits may differ: they were copied, and rounded once. A factor of 1.01 moves bf16 by up to three."""
PICKING = frozenset(("getitem", "index_select", "gather", "take", "masked_select"))
"""Operations that take some elements of their first operand."""


class Leaves:
    """Judges pairs of leaves."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state

    def covers(self, which: int, part: Slice) -> bool:
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

    def is_uninitialised(self, which: int, part: Slice) -> bool:
        """True if a value is memory as it was: made by `empty`, and only looked at since."""
        meanings = [self._state.sides[which].meaning(call) for call in part.calls]
        kinds = [traits_of(meaning) for meaning in meanings if meaning is not None]
        return (
            bool(kinds)
            and len(kinds) == len(meanings)
            and any(kind.uninitialised for kind in kinds)
            and all(kind.uninitialised or kind.moves for kind in kinds)
        )

    def judge(self, item: TensorResult) -> Standing:
        """Standing of two leaves."""
        left, right, pair = item.left, item.right, item.pair
        inherited = self._state.before.get((left.fingerprint or "", right.fingerprint or ""))
        if inherited is not None:
            return Standing(inherited.outcome, because="an earlier step left it so", sources=inherited.sources)
        gradient = self._state.gradients.get((pair.left, pair.right))
        if gradient is None and pair.left in self._state.gradient_of[0] and pair.right in self._state.gradient_of[1]:
            gradient = together([self._state.gradient_of[0][pair.left], self._state.gradient_of[1][pair.right]])
        gradient = gradient or self._state.gradient_by_bits.get((left.fingerprint, right.fingerprint))
        if gradient is not None:
            return Standing(gradient.outcome, because="a gradient of the backward pass", sources=gradient.sources)
        if are_idle_counters(self._state, pair):
            self._state.remarks.append(f"{name_of_pair(pair)} is a counter that differs, and nothing is computed of it")
            return Standing(Outcome.ROUNDING, because="a counter of which nothing is computed")
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Standing(Outcome.UNKNOWN, untold=item.verdict.because)
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
                return Standing(Outcome.ROUNDING, because=f"within {units:.0f} units of {left.spec.dtype}")
        held = pair.part in (Part.PARAMETER, Part.BUFFER) or (left.requires_grad and right.requires_grad)
        if held and self._state.before and item.verdict.outcome.good:
            why = f"{name_of_pair(pair)} was changed between two steps by something that was not recorded"
            if "module" in (self._state.sides[0].level, self._state.sides[1].level):
                why += ": record with level='mix'"
            return Standing(Outcome.UNKNOWN, untold=why)
        if measured is None and item.verdict.outcome.good:
            return Standing(Outcome.UNKNOWN, untold=f"{name_of_pair(pair)} differs, and its values were not kept")
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
        return Standing(Outcome.ROUNDING if table else Outcome.DIFFERENT, because=what, mistakes=(mistake,))

    def _error_of_taken(self, item: TensorResult) -> float:
        """Relative error of a leaf; of a table that calls take parts of, that of the parts: nobody sees the rest."""
        whole = item.verdict.error or 0.0
        takers = [self._state.sides[which].takers((item.pair.left, item.pair.right)[which]) for which in (0, 1)]
        for which, calls in enumerate(takers):
            meanings = [self._state.sides[which].meaning(call) for call in calls]
            if not meanings or any(meaning is None or meaning.operation not in PICKING for meaning in meanings):
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

    def _between_modules(self, item: TensorResult) -> Standing:
        """Level module does not show the functions between modules: a difference there cannot be taken apart."""
        before = together([judged for judged in self._state.values.values() if judged.outcome is Outcome.DIFFERENT])
        if before.outcome is Outcome.DIFFERENT:
            return Standing(Outcome.DIFFERENT, because=item.verdict.because, sources=before.sources)
        if item.verdict.outcome is Outcome.DIFFERENT:
            what = f"{name_of_pair(item.pair)} differs, by code between the modules that this level does not record"
            return Standing(
                Outcome.DIFFERENT, because=what, mistakes=(Mistake("unproven", what, advice="record with level='mix'"),)
            )
        return Standing(
            Outcome.UNKNOWN,
            untold=f"{name_of_pair(item.pair)} was made between the modules, "
            "which level 'module' does not show: record level='mix'",
        )
