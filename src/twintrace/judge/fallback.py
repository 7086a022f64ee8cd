"""Verdicts on values that cannot be recomputed: settings still speak, and what norms call rounding is not proven.

    Fallback(state, explainer, ranges).judge(…)

It may accuse: by a wrong kernel on the way, by what the two calls say, by a difference far beyond what rounding explains. It never
clears: where it finds nothing, or where nothing is left of what it has found, the verdict is that it could not be told.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ..model.dtypes import LARGEST, UNITS
from ..model.results import Mistake, TensorResult
from ..model.sites import Phase
from ..model.verdicts import Outcome
from ..operations.meanings import Meaning
from ..operations.sides import Slice, name_of
from ..operations.traits import is_axis
from .explanations import Explainer
from .ranges import RangeJudge
from .rounding import unit
from .settings import other_arguments
from .state import JudgeState, Standing, times_bound

FAR = 1e3
"""Times what rounding explains from which on a difference arises where it is seen, if what came in is within rounding."""
_MET_UNITS = 16.0
"""Units of the element type by which statistics of the same values that were computed in two ways may differ."""


_MASKED = "it looks like one mask by -inf, and one by a large number"


def may_have_met(state: JudgeState, item: TensorResult, sources: Collection[Mistake]) -> bool:
    """True if nothing is left here of differences that were not recomputed: another way to the same, as far as norms tell."""
    return bool(sources) and item.verdict.outcome.good and is_near(item) and state.unproven.issuperset(sources)


def is_near(item: TensorResult) -> bool:
    """True if the statistics of two tensors differ by no more than those of the same values that were computed in two ways."""
    return (item.verdict.error or 0.0) <= _MET_UNITS * unit(item.left.spec.dtype, item.right.spec.dtype)


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
                return Standing(Outcome.UNKNOWN, None, item.verdict.because, sources=incoming.sources, untold=why)
            return Standing(Outcome.DIFFERENT, None, item.verdict.because, sources=incoming.sources)
        stated, kind = self._stated(left, right)
        if stated and (kind == "meaning" or not item.verdict.outcome.good):
            what = f"the two calls say that they compute something else: {stated}"
            return self._accused(item, Mistake(kind, what, f"{stated} (not proven: {why})"))
        if _hide_alike(item):
            return Standing(Outcome.UNKNOWN, audited.terms, item.verdict.because, untold=f"{_MASKED}: {why}")
        agreed = incoming.outcome in (Outcome.SAME, Outcome.ROUNDING) or self._came_in_alike(item, left, right)
        if item.verdict.outcome is Outcome.DIFFERENT and agreed:
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            spoiled = self._ranges.of_value(item, left, right, None)
            if spoiled is not None:
                return self._accused(item, spoiled)
            lone = self._lone_call(left, right)
            mistake = Mistake(
                "unproven", what, lone, f"look at it: {lone}" if lone else "", size=times_bound(item.verdict)
            )
            return self._accused(item, mistake)
        return Standing(Outcome.UNKNOWN, audited.terms, item.verdict.because, untold=why, sources=incoming.sources)

    def _accused(self, item: TensorResult, mistake: Mistake) -> Standing:
        self._state.stated.add(mistake)
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
            # Axes and sizes are settings of one shape, and an axis may be the same one in another order, which norms do not show.
            alike = self._shapes(0, left) == self._shapes(1, right)
            certain = alike and not all(is_axis(one.operation, name) for name in other_arguments(one, two))
            return settings, "meaning" if certain else "unproven"
        ours, theirs = dict(one.operands()), dict(two.operands())
        for path in sorted(set(ours) ^ set(theirs)):
            stated = self._number_beside(path, one, two)
            if stated:
                return stated, "meaning"
        bound = self._state.bound
        crossed = [
            path
            for path in sorted(ours.keys() & theirs.keys())
            if theirs[path].tensor in bound and bound[theirs[path].tensor].left != ours[path].tensor
        ]
        partners = {bound[theirs[path].tensor].left for path in crossed}
        if crossed and partners == {ours[path].tensor for path in crossed}:
            return f"{name_of(left.calls[0]).rpartition('.')[2]} takes the same values in another order", "unproven"
        return "", ""

    def _shapes(self, which: int, part: Slice) -> list[tuple[int, ...]]:
        """Shapes of the tensors that a call takes and gives: axes and sizes are settings of these alone."""
        meaning = self._state.sides[which].meaning(part.calls[0])
        taken = [operand.tensor for _, operand in meaning.operands()] if meaning else []
        return [self._state.sides[which].tensor(number).spec.shape for number in (part.tensor, *taken)]

    def _number_beside(self, path: str, left: Meaning, right: Meaning) -> str:
        """Difference in an argument that is a tensor on one side alone; empty if the other side's number is all that is in it."""
        which = int(path in dict(right.operands()))
        given = (left, right)[1 - which].arguments.get(path)
        tensor = self._state.sides[which].tensor(dict((left, right)[which].operands())[path].tensor)
        if given is None or isinstance(given, bool) or not isinstance(given, int | float) or tensor.constant is None:
            return f"only the {('left', 'right')[which]} has a {path}"
        held = given if abs(given) <= LARGEST.get(tensor.spec.dtype, math.inf) else math.copysign(math.inf, given)
        if math.isclose(held, tensor.constant, rel_tol=2 * UNITS.get(tensor.spec.dtype, 0.0)):
            return ""
        texts = [str(given), str(tensor.constant)]
        return f"{path}: {texts[1 - which]} | {texts[which]}"


def _hide_alike(item: TensorResult) -> bool:
    """True if the statistics of two values are those of scores that one side masks by -inf, and the other by a large number."""
    from ..operations.differences import HIDDEN

    one, two = item.left.statistics, item.right.statistics
    if one is None or two is None or bool(one.neginf) == bool(two.neginf):
        return False
    infinite, finite = (one, two) if one.neginf else (two, one)
    if infinite.min is None or infinite.max is None or finite.min is None or finite.max is None:
        return False
    near = _MET_UNITS * unit(item.left.spec.dtype, item.right.spec.dtype)
    alike = infinite.nan == finite.nan and infinite.posinf == finite.posinf
    return alike and math.isclose(infinite.max, finite.max, rel_tol=near) and finite.min <= HIDDEN < infinite.min
