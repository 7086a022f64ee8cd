"""Effects of mistakes at the results of the run, if nothing is rounded on the way.

small_effects(…)         mistakes that the rounding of the run hides and that change a result all the same
effects_of_kernels(…)    wrong results of kernels, likewise, on their own side
hides_the_same(…)        a mask of -inf instead of -1e9, which changes no result
for_other_steps(…)       mistakes in operands of calls that go another way to the same result
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..model.pairs import Part
from ..model.records import Call
from ..model.results import CallResult, Mistake
from .state import EXACT, SMALL, JudgeState, Standing

_TRIED = 16
"""Mistakes without visible effect that are tried for a small one."""
_LEAF_EFFECT = 1e-6
"""Relative effect at a result of data that differ: tables that were computed in float32 have its rounding."""


def small_effects(
    state: JudgeState, results: Sequence[CallResult], reached: Collection[Mistake], ends: Mapping[int, Call]
) -> set[Mistake]:
    """Mistakes that were lost in the rounding of the run on their way, and change a result if nothing is rounded.

    They are tried together: two that undo each other have no effect.
    """
    settled = {*reached, *state.undone}
    made = [mistake for result in results for mistake in result.mistakes if mistake not in settled]
    # A large difference that is gone later was undone: a factor before a product that the other side has after it.
    small = [mistake for mistake in made if mistake.kind == "leaf" or mistake.size < SMALL]
    gone = [mistake for mistake in small if mistake in state.origins and not mistake.backward][:_TRIED]
    changed = state.choices(gone)  # the others alone would not undo each other
    if not changed:
        return set()
    from ..operations.replay import effect

    leaf = any(mistake.kind == "leaf" for mistake in gone)
    for end in ends:
        seen = effect(state.recomputation, changed, end)
        if (seen is None and leaf) or (seen or 0.0) > (_LEAF_EFFECT if leaf else EXACT):
            return set(gone)
    return set()


def effects_of_kernels(
    state: JudgeState,
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
    for mistake in [mistake for mistake in made if mistake in state.kernels and not mistake.backward][:_TRIED]:
        which, call, number = state.kernels[mistake]
        both = state.recomputation.computed(which, call, number)
        if both is None:
            continue
        seen = [effect(state.recomputation, {number: both}, end, which) for end in ends[which]]
        if any((size or 0.0) > EXACT for size in seen):
            found.add(mistake)
    return found


def hides_the_same(state: JudgeState, mistake: Mistake, ends: Mapping[int, Call]) -> bool:
    """True if all that a mistake changes is the value by which a mask hides elements, and no result of the right is changed by
    that: -inf and -1e9 are one mask, beside another mistake as well.
    """
    if mistake.kind != "meaning" or mistake.backward or mistake not in state.origins:
        return False
    from ..operations.differences import hide_the_same

    changed = state.choices([mistake])
    if not changed or not hide_the_same(*next(iter(changed.values()))):
        return False
    from ..operations.replay import effect

    return all(effect(state.recomputation, changed, end) == 0.0 for end in ends)


def for_other_steps(
    state: JudgeState, results: Sequence[CallResult], judged: Mapping[int, Mapping[int, Standing]]
) -> set[Mistake]:
    """Mistakes in operands of calls that were not compared any further, because they go other ways to the same result: what is
    hidden for one side's mask, what is shown for the other's.
    """
    found: set[Mistake] = set()
    for number, result in enumerate(results):
        own = [judged[number].get(place) for place, item in enumerate(result.tensors) if item.pair.part is Part.OUTPUT]
        if own and all(item is not None and item.discarded for item in own):
            found |= {
                mistake
                for mistake in result.mistakes
                if mistake in state.origins and state.origins[mistake][0].part is Part.INPUT
            }
    return found
