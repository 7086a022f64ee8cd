"""Conclusion of one step of one rank: which mistakes reach a result of the run, and which results could not be told.

ends.py          results of the run
unpaired.py      partners of results that were compared with none
lone.py          results, gradients, updates and calls of one side alone
effects.py       mistakes that change a result though rounding hides it
loss_scale.py    a factor on all gradients that is taken off again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.pairs import Match, Part
from ..model.results import CallResult, Mistake
from ..model.sites import Kind
from ..model.values import TensorRef, leaves
from ..model.verdicts import Outcome
from ..operations.traits import writes
from .backward import Gradients
from .effects import effects_of_kernels, for_other_steps, hides_the_same, small_effects
from .ends import Ends
from .explanations import Explainer
from .lone import Lone
from .loss_scale import LossScale
from .settings import other_arguments
from .split_parameters import SplitParameters
from .state import JudgeState, Standing, attach, name_of_pair
from .unpaired import Unpaired

_RETURNED = 1e-5
"""Relative difference of Python numbers that a run returns, beyond which they are not one number rounded twice in float32."""


def _is_of_gradient(mistake: Mistake) -> bool:
    return mistake.backward and mistake.kind == "gradient" and bool(mistake.left or mistake.right)


def _blamed(mistake: Mistake) -> tuple[str, list[int], list[int]]:
    return mistake.why, [call.id for call in mistake.left], [call.id for call in mistake.right]


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
    in_parts: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    """Gradients of each side that were compared with parts of the other's, or as parts of it."""


class Conclusion:
    """Follows mistakes to the results of the run."""

    def __init__(self, state: JudgeState, explainer: Explainer, gradients: Gradients, ends: Ends) -> None:
        self._state = state
        self._cuts = gradients.cuts
        self._agreed = gradients.agreed
        self._ends = ends
        self._scale = LossScale(state)
        self._unpaired = Unpaired(state, explainer, ends, self._scale)
        self._split = SplitParameters(state, gradients)
        self._lone = Lone(state, ends, self._scale, gradients, self._split)

    def conclude(self, results: list[CallResult], judged: Mapping[int, Mapping[int, Standing]]) -> Judgement:
        """The results, with the mistakes that reach a result of the run marked as effective."""
        state, lone = self._state, self._lone
        self._scale.find()
        for which, call, mistake in state.between:
            attach(results, call, which, mistake)
        reached, untold = self._at_the_ends(results, judged)
        self._unseen_state(results)
        self._unpaired.find_extended(results)
        self._unpaired.match()
        if self._scale.factor is None:
            self._split.find(results)
        self._unpaired.match_parts(self._split.noise)
        for which in (0, 1):
            own = (number for number, call in self._ends.of[which].items() if self._scale.keeps(call))
            self._ends.told[which].update(own)
        lone.find_forgotten_updates(results)
        lone.find_results()
        if self._scale.factor is None:
            lone.find_gradients(results)
        self._cuts.look_for(results)
        lone.find_calls()
        reached |= state.always
        same = self._told_twice(results)
        untold += self._open_gradients(results, reached | same)
        reached |= small_effects(state, results, reached, self._ends.of[1])
        reached |= effects_of_kernels(state, results, reached, self._ends.of)
        # Other weights always count: the next input may show them.
        reached |= {mistake for result in results for mistake in result.mistakes if mistake.kind == "weights"}
        idle = {mistake for mistake in reached if hides_the_same(state, mistake, self._ends.of[1])}
        idle |= for_other_steps(state, results, judged) & reached
        reached = reached - idle or reached  # something must explain what differs at the end
        finished = []
        for result in results:
            told = (mistake for mistake in result.mistakes if mistake not in same)
            made = tuple(replace(mistake, effective=mistake in reached) for mistake in told)
            returned = _returned(result.match) if not made else ""
            if returned:
                made = (Mistake("meaning", returned, "the two return something else that is no tensor"),)
                reached.add(made[0])
            finished.append(replace(result, mistakes=made) if made or result.mistakes else result)
        return Judgement(
            self._scale.explain(finished),
            tuple(dict.fromkeys(untold + self._split.untold + lone.untold)),
            bool(reached or lone.differences),
            tuple(lone.differences),
            self._notes(),
            frozenset(reached),
            (frozenset(self._split.compared[0]), frozenset(self._split.compared[1])),
        )

    def _at_the_ends(
        self, results: list[CallResult], judged: Mapping[int, Mapping[int, Standing]]
    ) -> tuple[set[Mistake], list[str]]:
        """Mistakes that have reached a result of the run; sentences on results that could not be told."""
        reached: set[Mistake] = set()
        untold: list[str] = []
        unknown = any(
            earlier.outcome is Outcome.DIFFERENT and not earlier.sources for earlier in self._state.before.values()
        )
        for number, result in enumerate(results):
            for place, item in enumerate(result.tensors):
                own = judged[number].get(place)
                if own is not None and self._ends.is_gradient_of_data(result.match, item):
                    if own.outcome is Outcome.DIFFERENT and self._scale.factor is None:
                        gone = (mistake for mistake in own.sources if self._agreed.is_gone(mistake))
                        reached |= own.sources - {*self._state.tables, *self._state.undone, *gone}
                    continue
                if own is None or not self._ends.has(item):
                    continue
                if self._scale.factor is not None and item.pair.part is Part.PARAMETER_GRADIENT:
                    continue
                if own.outcome is Outcome.DIFFERENT:
                    reached |= own.sources - self._state.tables or own.sources
                if own.outcome is Outcome.DIFFERENT and not own.sources and unknown:
                    untold.append(f"{name_of_pair(item.pair)} differs by what an earlier step left behind")
                if own.outcome is Outcome.UNKNOWN:
                    untold.append(
                        own.untold or f"{name_of_pair(item.pair)} depends on calls that could not be recomputed"
                    )
        return reached, untold

    def _told_twice(self, results: Sequence[CallResult]) -> set[Mistake]:
        """Mistakes in gradients that are those of one call which is told at its own place: a cut."""
        cuts = [_blamed(mistake) for mistake in self._state.always if _is_of_gradient(mistake)]
        return {
            mistake
            for result in results
            for mistake in result.mistakes
            if mistake not in self._state.always and _is_of_gradient(mistake)
            if _blamed(mistake) in cuts
        }

    def _open_gradients(self, results: list[CallResult], reached: set[Mistake]) -> list[str]:
        """Sentences on gradients that differ and were not followed to a parameter."""
        if self._scale.factor is not None:
            return []
        return [
            f"a gradient differs, and its way to the parameters is not known: {mistake.what}"
            for result in results
            for mistake in result.mistakes
            if mistake.backward and mistake.kind in ("unproven", "gradient")
            if mistake not in reached and mistake not in self._state.undone and not self._agreed.is_gone(mistake)
        ]

    def _notes(self) -> tuple[str, ...]:
        """Differences that nobody can set right, one sentence each."""
        unavoidable = [
            f"{names} differ by {size:.1e} on the same inputs: by where they add epsilon or hold their settings, which nothing sets"
            for names, size in self._state.notes.items()
        ]
        rounded = [
            f"{text}: {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            for text, names in self._state.rounded.items()
        ]
        return (*unavoidable, *self._state.remarks, *rounded)

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
            settings = other_arguments(one, two)
            if not settings:
                continue
            what = f"the two calls leave other values in {' and '.join(unseen)}, which this level does not record"
            why = ", ".join(f"{name}: {ours} | {theirs}" for name, (ours, theirs) in settings.items())
            advice = ", ".join(f"{name}={ours}" for name, (ours, _) in settings.items())
            mistake = Mistake("meaning", what, why, f"set {advice} on the right")
            attach(results, result.match.left[0], 0, mistake)
            self._state.always.add(mistake)


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
