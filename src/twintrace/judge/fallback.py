"""Verdicts on values that cannot be recomputed: settings still speak, and what norms call rounding is not proven.

    Fallback(state, explainer, ranges).judge(…)

It may accuse: by a wrong kernel on the way, by what the two calls say, by a difference far beyond what rounding explains. It never
clears: where it finds nothing, or where nothing is left of what it has found, the verdict is that it could not be told.
"""

from __future__ import annotations

from collections.abc import Collection

from ..model.results import Mistake, TensorResult
from ..model.sites import Phase
from ..model.verdicts import Outcome
from ..operations.sides import Slice, name_of
from .explanations import Explainer
from .ranges import RangeJudge
from .rounding import unit
from .state import JudgeState, Standing, times_bound

FAR = 1e3
"""Times what rounding explains from which on a difference arises where it is seen, if what came in is within rounding."""
_MET_UNITS = 16.0
"""Units of the element type by which statistics of the same values that were computed in two ways may differ."""


def may_have_met(state: JudgeState, item: TensorResult, sources: Collection[Mistake]) -> bool:
    """True if nothing is left here of differences that were not recomputed: another way to the same, as far as norms tell."""
    near = (item.verdict.error or 0.0) <= _MET_UNITS * unit(item.left.spec.dtype, item.right.spec.dtype)
    return bool(sources) and item.verdict.outcome.good and near and state.unproven.issuperset(sources)


class Fallback:
    """Judges values that cannot be recomputed."""

    def __init__(self, state: JudgeState, explainer: Explainer, ranges: RangeJudge) -> None:
        self._state = state
        self._explainer = explainer
        self._ranges = ranges

    def judge(
        self, item: TensorResult, incoming: Standing, audited: Standing, why: str, left: Slice, right: Slice
    ) -> Standing:
        """Standing of a pair that cannot be recomputed, and `why`; `incoming` and `audited` are those of what made it."""
        mistakes = audited.mistakes
        if mistakes:
            return Standing(Outcome.DIFFERENT, audited.terms, mistakes[0].what, mistakes, sources=incoming.sources)
        if incoming.outcome is Outcome.DIFFERENT:
            if may_have_met(self._state, item, incoming.sources):
                return Standing(Outcome.UNKNOWN, None, item.verdict.because, untold=why)
            return Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=incoming.sources)
        stated, kind = self._stated(left, right)
        if stated and (kind == "meaning" or not item.verdict.outcome.good):
            what = f"the two calls say that they compute something else: {stated}"
            return self._accused(item, Mistake(kind, what, f"{stated} (not proven: {why})"))
        agreed = incoming.outcome in (Outcome.SAME, Outcome.ROUNDING) or self._came_in_alike(item, left, right)
        if item.verdict.outcome is Outcome.DIFFERENT and agreed:
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            spoiled = self._ranges.of_value(item, left, right, None)
            if spoiled is not None:
                return Standing(Outcome.DIFFERENT, None, spoiled.what, (spoiled,))
            lone = self._lone_call(left, right)
            mistake = Mistake(
                "unproven", what, lone, f"look at it: {lone}" if lone else "", size=times_bound(item.verdict)
            )
            return self._accused(item, mistake)
        return Standing(Outcome.UNKNOWN, audited.terms, item.verdict.because, untold=why, sources=incoming.sources)

    def _accused(self, item: TensorResult, mistake: Mistake) -> Standing:
        if item.verdict.outcome is Outcome.DIFFERENT:
            self._state.unproven.add(mistake)
        return Standing(Outcome.DIFFERENT, None, mistake.what, (mistake,))

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

    def _stated(self, left: Slice, right: Slice) -> tuple[str, str]:
        """Difference that the calls themselves state, without a look at values, and what kind of mistake it is: a setting, or
        another function or order of operands, which may be another way to the same result.
        """
        if len(left.calls) != 1 or len(right.calls) != 1:
            return "", ""
        one, two = self._state.sides[0].meaning(left.calls[0]), self._state.sides[1].meaning(right.calls[0])
        if one is None or two is None:
            return "", ""
        if one.operation != two.operation:
            return f"{one.operation} | {two.operation}", "unproven"
        settings = self._explainer.different_settings(left, right)
        if settings or left.calls[0].site.phase is Phase.UPDATE:  # one optimizer may begin without a state
            shapes = [
                self._state.sides[which].tensor(part.tensor).spec.shape for which, part in enumerate((left, right))
            ]
            return settings, "meaning" if shapes[0] == shapes[1] else "unproven"  # axes and sizes of other shapes
        ours, theirs = dict(one.operands()), dict(two.operands())
        lacking = sorted(set(ours) ^ set(theirs))
        if lacking:
            side = "left" if lacking[0] in ours else "right"
            return f"only the {side} has a {lacking[0]}", "meaning"
        crossed = [
            path
            for path, operand in theirs.items()
            if operand.tensor in self._state.bound and self._state.bound[operand.tensor].left != ours[path].tensor
        ]
        partners = {self._state.bound[theirs[path].tensor].left for path in crossed}
        if crossed and partners == {ours[path].tensor for path in crossed}:
            return f"{name_of(left.calls[0]).rpartition('.')[2]} takes the same values in another order", "unproven"
        return "", ""
