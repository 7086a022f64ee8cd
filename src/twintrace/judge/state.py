"""Record of what has been judged, shared by the parts of the judge.

state.values[left, right]     one pair of values, judged
state.partner(0, number)      right tensor that a left one was compared with
state.incoming(left, right)   standing of the compared values that two slices begin with
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..model.pairs import Alignment, Layout, Match, Part, TensorPair
from ..model.records import Call
from ..model.results import CallResult, Mistake, TensorResult, Terms
from ..model.tensors import Tensor
from ..model.verdicts import BADNESS, Outcome, Verdict
from ..operations.sides import Bound, Slice, name_of
from .rounding import unit

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation
    from ..operations.scores import Score

SINGLE = unit("f32", "f32")
SHARES = 1e-2
"""From this relative error on a difference is there for all to see, and its rest need not be computed."""
SMALL = 100.0
"""Units of a run's rounding, below which another meaning is no larger than what its bounds allow, and still counts."""
EXACT = 1e-9
"""Relative effect at a result, of float64, that is more than its own rounding."""


@dataclass(slots=True)
class Standing:
    """Standing of a pair of values, or of what is made of them: an outcome, and the mistakes that it comes from."""

    outcome: Outcome
    terms: Terms | None = None
    because: str = ""
    mistakes: tuple[Mistake, ...] = ()
    untold: str = ""
    sources: frozenset[Mistake] = frozenset()
    """Mistakes that have reached this value."""
    discarded: bool = False
    """True if the two values do not belong together after all."""
    detour: bool = False
    """True if each side goes its own way here, and they meet again: see `detours.py`."""
    reordered: bool = False
    """True if the two differ because calls before them give results in any order, or choose among equal values."""
    unaudited: str = ""
    """Why a gradient on the way, which has no partner, could not be recomputed."""


UNSEEN = Standing(Outcome.SAME)


class JudgeState:
    """Everything that is known of one step of one rank while it is judged; its arguments are those of `Recomputed`."""

    def __init__(
        self,
        alignment: Alignment,
        results: Sequence[CallResult],
        recomputation: Recomputation,
        before: Mapping[tuple[str, str], Standing],
    ) -> None:
        self.alignment = alignment
        self.results = results
        self.recomputation = recomputation
        self.sides = recomputation.sides
        self.before = before
        self.values: dict[tuple[int, int], Standing] = {}
        self._wrong: dict[int, set[int]] = {}
        """Values of the left beside which a value of the right was found wrong at some time."""
        self.gradients: dict[tuple[int, int], Standing] = {}
        self.bound: dict[int, Bound] = {}
        """Right tensors and the left ones they were compared with first."""
        self.layouts: dict[tuple[int, int], Layout] = {}
        """Layouts of the values that were compared."""
        self.right_of: dict[int, int] = {}
        """The first right tensor that each left one was compared with."""
        self.of_left: dict[int, Standing] = {}
        """The best that was found of each left tensor: one that agrees with a right one is right, whatever else it meets."""
        self.known: tuple[set[int], set[int]] = (set(), set())
        self.discarded: set[tuple[int, int]] = set()
        """Values that were paired and do not belong together."""
        self.gradient_of: tuple[dict[int, Standing], dict[int, Standing]] = ({}, {})
        self.gradient_by_bits: dict[tuple[str | None, str | None], Standing] = {}
        self.notes: dict[str, float] = {}
        """Calls that differ by what no argument of their frameworks can change, and by how much."""
        self.remarks: list[str] = []
        self.undone: set[Mistake] = set()
        """Mistakes of which nothing is left: see `detours.py`."""
        self.rounded: dict[str, list[str]] = {}
        """Leaves that one side has rounded in another way, by that way."""
        self.kernels: dict[Mistake, tuple[int, Call, int]] = {}
        """Side, call and result of the kernels that are wrong."""
        self.stated: set[Mistake] = set()
        """Mistakes that were told without recomputation, by what the calls say or by norms."""
        self.unproven: set[Mistake] = set()
        """Differences that were judged without recomputation, and are far beyond rounding where they are."""
        self.origins: dict[Mistake, tuple[TensorPair, Slice, Slice]] = {}
        """Values at which mistakes were made, and the calls that made them."""
        self.always: set[Mistake] = set()
        """Mistakes that count because they are in a result."""
        self.between: list[tuple[int, Call, Mistake]] = []
        """Mistakes in gradients that are in no pair, with the side and the call that sent them back."""
        self.tables: set[Mistake] = set()
        """Tables that each side computed for itself, apart by little: their effect at the results tells."""
        self.accused: dict[tuple[int, int], Mistake] = {}
        """Results of kernels that were told already, by side."""
        self.senders = tuple(side.senders() for side in self.sides)
        self.received = tuple(side.received() for side in self.sides)
        self.left_behind: dict[tuple[str, str], Standing] = {}
        self.match_of: tuple[dict[int, Match], dict[int, Match]] = ({}, {})
        for match in alignment.matches:
            for which, calls in enumerate((match.left, match.right)):
                for call in calls:
                    self.match_of[which].setdefault(call.id, match)

    @property
    def kernels_only(self) -> bool:
        """True at level op, where the kernels of the backward pass are calls."""
        return self.sides[0].level == self.sides[1].level == "op"

    def remember(self, item: TensorResult, judged: Standing) -> None:
        """Keeps the standing of a pair of values: slices of later ones begin there."""
        left, right = item.pair.left, item.pair.right
        self.values[left, right] = judged
        if judged.mistakes:
            self._wrong.setdefault(right, set()).add(left)
        self.layouts.setdefault((left, right), item.pair.layout)
        if judged.outcome is not Outcome.SAME and any(
            tensor.payload is None and tensor.statistics is None for tensor in (item.left, item.right)
        ):
            return  # a tensor inside of vmap: nothing can be computed from it. A jagged one has its values beside it
        self.bound.setdefault(right, Bound(left, item.pair.layout))
        self.right_of.setdefault(self.bound[right].left, right)
        known = self.of_left.get(left)
        if known is None or BADNESS[judged.outcome] < BADNESS[known.outcome]:
            self.of_left[left] = judged
        self.known[0].add(left)
        self.known[1].add(right)
        if not judged.detour:
            self.leave_behind((item.left, item.right), judged.outcome, judged.sources)

    def leave_behind(
        self, tensors: tuple[Tensor, Tensor], outcome: Outcome, sources: frozenset[Mistake] = frozenset()
    ) -> None:
        """Keeps the standing of a pair of values for later steps, which know them by their fingerprints."""
        left, right = tensors[0].fingerprint, tensors[1].fingerprint
        if left and right:
            self.left_behind[left, right] = Standing(outcome, sources=sources)

    def tensors(self, left: int, right: int) -> tuple[Tensor, Tensor]:
        """Tensors of both sides by their numbers."""
        return self.sides[0].tensor(left), self.sides[1].tensor(right)

    def remark_on(self, which: int, call: Call, score: Score, part: str) -> None:
        """Tells of a kernel that is right only if it adds up, or holds what it needs, in 16 bits: another one need not."""
        if score.coarse_inside:
            side = ("left", "right")[which]
            remark = (
                f"the {side}'s {name_of(call)} adds up in 16 bits ({part}): {score.relative:.1e} from the exact result"
            )
            if remark not in self.remarks:
                self.remarks.append(remark)

    def incoming(self, left: Slice, right: Slice) -> Standing:
        """Standing of the compared values that two slices begin with."""
        found = self.begins_with(left, right)
        sources = frozenset().union(*(judged.sources for judged in found))
        return Standing(worse(*(judged.outcome for judged in found)), sources=sources)

    def begins_with(self, left: Slice, right: Slice) -> list[Standing]:
        """The compared values that two slices begin with."""
        bound = self.partners(left, right)
        found = [self.values[bound[number].left, number] for number in right.edge if number in bound]
        return found + [self.of_left[number] for number in left.edge if number in self.of_left]

    def partners(self, left: Slice, right: Slice) -> Mapping[int, Bound]:
        """Partners of the right's values for two slices. A value that was compared with several, and found wrong beside the one
        that the left slice begins with, goes with that one: with its negative, if the left alone has negated it.
        """
        others, edge = {}, set(left.edge)  # of an optimizer's step thousands
        for number in right.edge:
            if number not in self._wrong or number not in self.bound or self.bound[number].left in edge:
                continue
            compared = [own for own in self._wrong[number] & edge if self.values[own, number].mistakes]
            if len(compared) == 1:
                others[number] = Bound(compared[0], self.layouts[compared[0], number])
        return {**self.bound, **others} if others else self.bound

    def choices(self, mistakes: Collection[Mistake]) -> dict[int, Any] | None:
        """Results of both sides, from the same inputs, at the places of mistakes, by the right's numbers; None if not known."""
        changed = {}
        for mistake in mistakes:
            pair, left, right = self.origins[mistake]
            both = self.recomputation.choices(left, right, self.partners(left, right), pair.layout)
            if both is None or both[0].shape != both[1].shape:
                return None
            changed[pair.right] = both
        return changed

    def kernel_mistake(self, which: int, call: Call, number: int, score: Score) -> Mistake:
        """A recorded result or gradient that is not what its call computes, with the setting that its kernel ignores, if any."""
        side = ("left", "right")[which]
        what = f"the {side}'s {name_of(call)} does not give what it says it computes: {score}"
        ignored, ratio = self.recomputation.ignored_setting(which, call, number)
        if ignored:
            why = (
                f"the {side}'s kernel ignores {ignored}: without it, its recorded operands give this result in float64 "
                f"({score.ratio:.3g} → {ratio:.2g} of its rounding)"
            )
            advice = f"take a kernel that heeds {ignored} on the {side}, or do without on both sides"
        else:
            why = (
                f"the {side}'s kernel: its recorded operands give another result in float64, {score.ratio:.3g} times "
                "beyond its rounding"
            )
            advice = f"look at the {side}'s kernel, its device and precision modes"
        mistake = Mistake("kernel", what, why, advice, side, score.ratio)
        self.kernels[mistake] = which, call, number
        return mistake

    def standing(self, which: int, number: int) -> Standing:
        """Standing of a value by one side's number; one that was not compared has none."""
        if not which:
            return self.of_left.get(number, UNSEEN)
        bound = self.bound.get(number)
        return self.values[bound.left, number] if bound is not None else UNSEEN

    @functools.cached_property
    def by_norms(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Tensors, by side and number, that were compared; those of them that are beyond what rounding explains, as norms tell."""
        compared: set[tuple[int, int]] = set()
        apart: set[tuple[int, int]] = set()
        for item in (item for result in self.results for item in result.tensors):
            both = {(0, item.pair.left), (1, item.pair.right)}
            compared |= both
            if item.verdict.outcome not in (Outcome.SAME, Outcome.ROUNDING):
                apart |= both
        return compared, apart

    def agrees(self, which: int, number: int) -> bool:
        """True if a value agrees with its partner: what comes after it need not begin with it."""
        return self.standing(which, number).outcome in (Outcome.SAME, Outcome.ROUNDING)

    def partner(self, which: int, number: int) -> int | None:
        """The other side's tensor that one was compared with."""
        if which:
            bound = self.bound.get(number)
            return bound.left if bound is not None else None
        return self.right_of.get(number)


def worse(*outcomes: Outcome) -> Outcome:
    """The worst of several standings."""
    return max(outcomes, key=BADNESS.__getitem__, default=Outcome.SAME)


def together(judged: Sequence[Standing]) -> Standing:
    """Standing of what is made of several values."""
    sources: frozenset[Mistake] = frozenset().union(*(item.sources for item in judged))
    unaudited = next((item.unaudited for item in judged if item.unaudited), "")
    reordered = any(item.reordered for item in judged)
    return Standing(
        worse(*(item.outcome for item in judged)), sources=sources, unaudited=unaudited, reordered=reordered
    )


def not_recomputable() -> type[Exception]:
    """The error of what cannot be recomputed; its module imports torch."""
    from ..operations.evaluation import NotRecomputable

    return NotRecomputable


def comes_in(pair: TensorPair) -> bool:
    """True of the operands of a call, and of what its module holds."""
    return pair.part in (Part.INPUT, Part.PARAMETER, Part.BUFFER)


def is_float(dtype: str) -> bool:
    """True of element types that round."""
    return unit(dtype, dtype) > 0


def times_bound(verdict: Verdict) -> float:
    """The error of a verdict over what rounding explains; 0 if either is not known."""
    return verdict.error / verdict.bound if verdict.error and verdict.bound else 0.0


def relative_rms(item: TensorResult) -> float:
    """Root mean square of a difference over that of the larger side; the error of the verdict where no values were read."""
    measured = item.measurement
    if measured is not None and measured.rmse is not None and measured.rms_left:
        return measured.rmse / max(measured.rms_left, measured.rms_right or 0.0)
    return item.verdict.error or 0.0


def name_of_pair(pair: TensorPair) -> str:
    """A pair in a sentence: its part and slots."""
    slots = " | ".join(dict.fromkeys(filter(None, (pair.left_slot, pair.right_slot))))
    return f"the {pair.part} {slots}".rstrip()


def told(terms: Terms, incoming: Outcome) -> str:
    """Reason of a verdict by recomputation: the roundings of both sides, and the outcome of what came in."""
    ratios = " | ".join(f"{item:.2g}" for item in (terms.left, terms.right) if item is not None)
    source = {
        Outcome.SAME: "",
        Outcome.ROUNDING: ", inputs apart by rounding",
        Outcome.UNKNOWN: ", inputs that could not be told",
        Outcome.DIFFERENT: ", inputs that differ",
    }
    return f"recomputed: {ratios or '0'} of what rounding allows{source[incoming]}"


def only_call(which: int, call: Call) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Calls to blame on the left and on the right: one, of one side."""
    return ((call,), ()) if which == 0 else ((), (call,))


def attach(results: list[CallResult], call: Call, which: int, mistake: Mistake) -> None:
    """Adds a mistake to the pair of a call, or to the one that ended last before it."""
    best = None
    for place, result in enumerate(results):
        calls = (result.match.left, result.match.right)[which]
        if any(item.id == call.id for item in calls):
            best = place
            break
        if calls and calls[-1].order <= call.order:
            best = place if best is None or calls[-1].order > _last(results[best], which) else best
    best = 0 if best is None else best
    results[best] = replace(results[best], mistakes=(*results[best].mistakes, mistake))


def _last(result: CallResult, which: int) -> int:
    return (result.match.left, result.match.right)[which][-1].order
