"""Verdicts by recomputation: which call is to blame, and for what.

    Recomputed(alignment, results, recomputation).judge()      the results again, with mistakes, terms and standing of each value

Values are gone through in the order of the data flow. The calls between two compared values and the compared values before them are
recomputed in float64, on both sides:

    in: clean    calls mean the same, each within its rounding      out: clean, whatever the distance
    in: clean    they mean something else                           out: parted, a mistake
    in: clean    a recorded result is not what its call computes    out: parted, a mistake of that side
    in: parted   …                                                  out: parted, until nothing of it is left
    in: unequal  a call has no known meaning, or no values          out: untold

Gradients go the other way, by the vector-Jacobian product of each call; what comes together at a value is added up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..model.pairs import Alignment, Bearing, Layout, Match, Part, TensorPair
from ..model.records import Call
from ..model.results import CallResult, Mistake, Status, TensorResult, Terms
from ..model.sites import Kind, Phase
from ..model.values import TensorRef, leaves
from ..model.verdicts import Outcome, Verdict
from ..operations.sides import Slice, inputs_of, name_of, outputs_of
from ..operations.traits import traits_of
from .rounding import unit

if TYPE_CHECKING:
    from ..operations.causes import Cause
    from ..operations.evaluation import Score
    from ..operations.meanings import Meaning
    from ..operations.recomputation import Bound, Difference, Recomputation

_LEAF_UNITS = 4.0
"""Leaves may differ by four units of the coarser element type: they were computed before recording, in another library."""
_SHARES = 1e-2
"""From this relative error on a difference is there for all to see, and its rest need not be computed."""

_SMALL = 100.0
"""Units of a run's rounding, below which another meaning is no larger than what its bounds allow, and still counts."""
_PRODUCTS = 3
"""Products of which most must have another element type before a run counts as one in another precision."""
_NOISE = 64.0
"""Units of the element type by which gradients may differ after many layers, relative to their norm."""
_UNAUDITED = 1 / 32
"""Relative error of gradients, at most, up to which a call on their way that could not be recomputed is taken to be right."""
_TRIED = 16
"""Mistakes without visible effect that are tried for a small one."""
_LEAF_EFFECT = 1e-6
"""The same where data differ: tables that were computed in float32 have its rounding."""
_EXACT = 1e-9
"""Relative effect at a result, of float64, that is more than its own rounding."""
_SINGLE = unit("f32", "f32")
_RETURNED = 1e-5
"""Relative difference of Python numbers that a run returns, beyond which they are not one number rounded twice in float32."""

_SELECTIVE = frozenset(("softmax", "log_softmax", "scaled_dot_product_attention", "relu", "clamp", "max_pool", "amax"))
"""Operations whose gradient forgets an operand where their result does: a masked score."""
_LINEAR = frozenset(("add", "sub", "neg", "sum", "mean", "cast", "masked_fill", "where"))
"""Operations whose gradient does not depend on the values that they take."""
_PICKING = frozenset(("getitem", "index_select", "gather", "take", "masked_select"))
"""Operations that take some elements of their first operand."""
_ORDER = {status: place for place, status in enumerate(Status)}


def worse(*statuses: Status) -> Status:
    """The worst of several standings."""
    return max(statuses, key=_ORDER.__getitem__, default=Status.SAME)


@dataclass(slots=True)
class Judged:
    """One pair of values, judged."""

    status: Status
    terms: Terms | None = None
    because: str = ""
    mistakes: tuple[Mistake, ...] = ()
    untold: str = ""
    sources: frozenset[Mistake] = frozenset()
    """Mistakes that have reached this value."""
    discarded: bool = False
    """True if the two values do not belong together after all."""
    unaudited: str = ""
    """Why a gradient on the way, which has no partner, could not be recomputed."""


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


Standing = tuple[Status, frozenset[Mistake]]
"""Status of a value that a step left behind, and the mistakes that it comes from."""


class Recomputed:
    """Judges the pairs of one step of one rank by recomputing them.

    Args:
        alignment: calls and tensors that belong together.
        results: verdicts without recomputation; they stand where nothing can be recomputed.
        recomputation: both sides, ready to be recomputed.
        before: standing of values that earlier steps left behind, by the fingerprints of both.
    """

    def __init__(
        self,
        alignment: Alignment,
        results: Sequence[CallResult],
        recomputation: Recomputation,
        before: Mapping[tuple[str, str], Standing] | None = None,
    ) -> None:
        self._alignment = alignment
        self._results = results
        self._re = recomputation
        self._sides = recomputation.sides
        self._before = before or {}
        self._values: dict[tuple[int, int], Judged] = {}
        self._gradients: dict[tuple[int, int], Judged] = {}
        self._bound: dict[int, Bound] = {}
        """Right tensors and the left ones they were compared with."""
        self._of_left: dict[int, Judged] = {}
        """The worst that was found of each left tensor."""
        self._known: tuple[set[int], set[int]] = (set(), set())
        self._gradient_of: tuple[dict[int, Judged], dict[int, Judged]] = ({}, {})
        self._gradient_bits = {
            self._sides[0].tensor(gradient.tensor).fingerprint: gradient.order
            for call in reversed(self._sides[0].calls)
            for gradient in call.gradients
        }
        """Earliest place of each gradient of the left, by its fingerprint."""
        self._gradient_by_bits: dict[tuple[str | None, str | None], Judged] = {}
        self._parameters: dict[tuple[int, int], int | None] = {}
        """Weights by the side and the number of a gradient that is called by a name that no module has."""
        self._notes: dict[str, float] = {}
        """Calls that differ by what no argument of their frameworks can change, and by how much."""
        self._remarks: list[str] = []
        self._origins: dict[Mistake, tuple[TensorPair, Slice, Slice]] = {}
        """Values at which mistakes were made, and the calls that made them."""
        self._explained: dict[tuple[object, ...], Mistake] = {}
        """Mistakes by their cause and the calls to blame."""
        self._always: set[Mistake] = set()
        """Mistakes that count because they are in a result."""
        self._between: list[tuple[int, Call, Mistake]] = []
        """Mistakes in gradients that are in no pair, with the side and the call that sent them back."""
        self._precisions: bool | None = None
        self._told: set[int] = set()
        """Mistakes that have their place, by identity."""
        self._accused: set[tuple[int, int]] = set()
        """Calls that were told already, by side."""
        self._senders = tuple(side.senders() for side in self._sides)
        self._received = tuple(side.received() for side in self._sides)
        self._left_behind: dict[tuple[str, str], Standing] = {}
        self._match_of: tuple[dict[int, Match], dict[int, Match]] = ({}, {})
        for match in alignment.matches:
            for which, calls in enumerate((match.left, match.right)):
                for call in calls:
                    self._match_of[which].setdefault(call.id, match)

    @property
    def left_behind(self) -> Mapping[tuple[str, str], Standing]:
        """Standing of the values that this step made, by the fingerprints of both sides."""
        return {**self._before, **self._left_behind}

    def judge(self) -> Judgement:
        """The results with what recomputation says of them."""
        judged: dict[int, dict[int, Judged]] = {number: {} for number in range(len(self._results))}
        gradients = self._gradient_numbers()
        for number, result in enumerate(self._results):
            if any(self._takes_gradient(result, item, gradients[0]) for item in result.tensors if _comes_in(item.pair)):
                self._judge_gradients(judged)  # clipping, a norm, an optimizer's step: the backward pass is over
            for incoming in (True, False):
                for place, item in enumerate(result.tensors):
                    if not item.pair.part.backward and _comes_in(item.pair) is incoming:
                        judged[number][place] = self._turned(result, item) or self._value(item)
        self._judge_gradients(judged)
        made = {
            (item.pair.left, item.pair.right)
            for result in self._results
            for item in result.tensors
            if item.pair.part is Part.OUTPUT
        }
        results = [self._result(result, judged[number], made) for number, result in enumerate(self._results)]
        return self._conclude(results, judged)

    def _judge_gradients(self, judged: Mapping[int, dict[int, Judged]]) -> None:
        for number in sorted(judged, key=lambda index: _backward_order(self._results[index])):
            for part in (Part.OUTPUT_GRADIENT, Part.INPUT_GRADIENT, Part.PARAMETER_GRADIENT):
                for place, item in enumerate(self._results[number].tensors):
                    if item.pair.part is part and place not in judged[number]:
                        judged[number][place] = self._gradient(item)

    def _gradient_numbers(self) -> tuple[set[int], set[int]]:
        """Numbers of all recorded gradients, of both sides."""
        found: tuple[set[int], set[int]] = (set(), set())
        for which, side in enumerate(self._sides):
            found[which].update(gradient.tensor for call in side.calls for gradient in call.gradients)
        for result in self._results:
            for item in result.tensors:
                if item.pair.part is Part.PARAMETER_GRADIENT:
                    found[0].add(item.pair.left)
                    found[1].add(item.pair.right)
        return found

    def _takes_gradient(self, result: CallResult, item: TensorResult, gradients: Collection[int]) -> bool:
        """True if a call takes a gradient: by its number, or one that was there before, by its bits."""
        if item.pair.left in gradients:
            return True
        since = self._gradient_bits.get(item.left.fingerprint)
        return since is not None and bool(result.match.left) and since < result.match.left[0].order

    # --- values ---------------------------------------------------------------------------------------------------------

    def _value(self, item: TensorResult) -> Judged:
        key = item.pair.left, item.pair.right
        if key not in self._values:
            judged = self._judge_value(item)
            if judged.discarded:
                return judged
            if judged.mistakes and self._is_by_the_way(0, item.pair.left) != self._is_by_the_way(1, item.pair.right):
                # Paired by chance: a variance that a norm puts out beside its result, and a sum on the way to it.
                return Judged(Status.SAME, because="one side does nothing with it")
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            self._values[key] = judged
            from ..operations.recomputation import Bound

            self._bound.setdefault(item.pair.right, Bound(item.pair.left, item.pair.layout))
            known = self._of_left.get(item.pair.left)
            if known is None or _ORDER[known.status] < _ORDER[judged.status]:
                self._of_left[item.pair.left] = judged
            self._known[0].add(item.pair.left)
            self._known[1].add(item.pair.right)
            if item.left.fingerprint and item.right.fingerprint:
                self._left_behind[item.left.fingerprint, item.right.fingerprint] = judged.status, judged.sources
        return self._values[key]

    def _turned(self, result: CallResult, item: TensorResult) -> Judged | None:
        """Verdict on a result of the run that lies in another order than its partner, which was compared inside; else None."""
        pair, bound = item.pair, self._bound.get(item.pair.right)
        if pair.part is not Part.OUTPUT or bound is None or bound.left != pair.left or bound.layout == Layout():
            return None
        roots = [call for call in (*result.match.left, *result.match.right) if call.site.kind is Kind.MODULE]
        if not roots or any(call.parent is not None for call in roots):
            return None
        specs = f"{item.left.spec} | {item.right.spec}"
        order = "another shape" if bound.layout.axes is None else "another order"
        if pair.layout == bound.layout:  # two programs, which may return it as each likes
            self._remarks.append(f"the results are returned in {order} ({bound.layout}): {specs}")
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
            meanings = [self._sides[which].meaning(call) for call in part.calls]
            kinds.append(sorted(meaning.operation for meaning in meanings if meaning and not traits_of(meaning).moves))
        makers = [*self._sides[0].makers(item.pair.left), *self._sides[1].makers(item.pair.right)]
        taken = self._sides[0].takers(item.pair.left) and self._sides[1].takers(item.pair.right)
        if taken and self._picks_rows(0, left) != self._picks_rows(1, right):
            return (
                True  # an expert, or a layer, for the tokens that need it on one side and for all of them on the other
            )
        if any(call.site.kind is Kind.MODULE for call in makers):
            return False
        moved = (
            not kinds[0] and not kinds[1] and bool(taken)
        )  # the same values in another shape: who takes them will tell
        return kinds[0] != kinds[1] or moved

    def _picks_rows(self, which: int, part: Slice) -> bool:
        """True if a call of a slice takes some rows of a tensor, which another tensor says."""
        for call in part.calls:
            meaning = self._sides[which].meaning(call)
            if meaning is not None and meaning.operation in _PICKING and len(list(meaning.operands())) > 1:
                return True
        return False

    def _is_by_the_way(self, which: int, number: int) -> bool:
        """True if a tensor is one of several that a call puts out, and nobody takes it."""
        side = self._sides[which]
        makers = side.makers(number)
        alone = any(len(outputs_of(call)) < 2 or call.site.kind is Kind.MODULE for call in makers)
        return bool(makers) and not alone and not side.takers(number)

    def _judge_value(self, item: TensorResult) -> Judged:
        pair = item.pair
        if item.verdict.outcome is Outcome.SAME and item.left.spec.shape == item.right.spec.shape:
            return Judged(Status.SAME)
        known = pair.left in self._known[0], pair.right in self._known[1]
        if all(known):
            return self._crossed(pair)
        # A value that was compared with another one before stands for itself: only what the other side does since then is asked.
        left = Slice(pair.left, (), (pair.left,)) if known[0] else self._sides[0].slice(pair.left, self._known[0])
        right = Slice(pair.right, (), (pair.right,)) if known[1] else self._sides[1].slice(pair.right, self._known[1])
        if self._is_uninitialised(0, left) or self._is_uninitialised(1, right):
            return Judged(Status.SAME, because="memory that nothing has written to yet")
        if self._is_leaf(0, left) and self._is_leaf(1, right):
            sizes = math.prod(item.left.spec.shape), math.prod(item.right.spec.shape)
            modules = [*self._sides[0].takers(pair.left), *self._sides[1].takers(pair.right)]
            if sizes[0] != sizes[1] and pair.part is Part.INPUT and modules and not item.left.requires_grad:
                # A mask for all heads, and one for each: what is made of it will tell.
                return Judged(Status.SAME, because="given in another shape", discarded=True)
            if sizes[0] != sizes[1] and self._re.is_part(pair.left, pair.right):
                # One weight for several layers, and one for each of them: what is made of it will tell.
                return Judged(Status.SAME, because="rows of one weight, in several", discarded=True)
            return self._leaf(item)
        incoming = self._incoming(left, right)
        random = self._random(left, right)
        if random is not None:
            return self._drawn(item, left, right, random, incoming)
        audited = self._audited(left, right)
        mistakes = [mistake for mistake in audited.mistakes]
        terms = audited.terms or Terms()
        try:
            difference = self._meaning(left, right, pair.layout)
        except _not_recomputable() as error:
            return self._fallback(item, incoming, audited, str(error), left, right)
        if difference is not None and difference.shapes is not None and self._are_other_steps(item, left, right):
            return Judged(Status.SAME, because="other steps on the way to the same result", discarded=True)
        terms = replace(terms, inherited=self._re.inherited(left, right, self._bound))
        precise = self._precision(item, left, right, difference)
        if precise is not None:
            mistakes.append(precise)
        elif difference is not None:
            terms = replace(terms, meaning=difference.relative)
            if difference.significant and self._re.is_unavoidable(left, right):
                names = " and ".join(dict.fromkeys(name_of(call) for call in (*left.calls, *right.calls)))
                if (
                    difference.relative < _SHARES
                ):  # beyond that it is gradients of noise, which an optimizer makes full steps of
                    self._notes[names] = max(self._notes.get(names, 0.0), difference.relative)
            elif difference.significant:
                cause = self._cause(left, right, pair)
                if cause is None and self._are_moves(left, right, pair):
                    return Judged(
                        Status.SAME, because="other values, for other steps to the same result", discarded=True
                    )
                mistakes.append(self._meant(left, right, pair, difference, cause))
                self._origins.setdefault(mistakes[-1], (pair, left, right))
        if audited.untold and not mistakes:
            return self._fallback(item, incoming, audited, audited.untold, left, right)
        if mistakes:
            return Judged(Status.PARTED, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if incoming.status is Status.PARTED and not self._still_visible(item, terms.inherited, right, incoming.sources):
            incoming = Judged(Status.CLEAN)
        return Judged(
            worse(Status.CLEAN, incoming.status), terms, _told(terms, incoming.status), sources=incoming.sources
        )

    def _crossed(self, pair: TensorPair) -> Judged:
        """Operands in the same place of two calls that were each compared with another one: the calls take other values."""
        known = [self._of_left[pair.left], self._values[self._bound[pair.right].left, pair.right]]
        status = worse(*(judged.status for judged in known))
        sources = frozenset().union(*(judged.sources for judged in known))
        return Judged(
            status, because="the two calls take other values here: each was compared elsewhere", sources=sources
        )

    def _incoming(self, left: Slice, right: Slice) -> Judged:
        """Standing of the compared values that two slices begin with."""
        found = [self._values[self._bound[number].left, number] for number in right.edge if number in self._bound]
        found += [self._of_left[number] for number in left.edge if number in self._of_left]
        sources = frozenset().union(*(judged.sources for judged in found))
        return Judged(worse(*(judged.status for judged in found)), sources=sources)

    def _leaf(self, item: TensorResult) -> Judged:
        """Data, weights, buffers, state: nothing recorded made them."""
        left, right, pair = item.left, item.right, item.pair
        inherited = self._before.get((left.fingerprint or "", right.fingerprint or ""))
        if inherited is not None:
            return Judged(inherited[0], because="an earlier step left it so", sources=inherited[1])
        gradient = self._gradients.get((pair.left, pair.right))
        if gradient is None and pair.left in self._gradient_of[0] and pair.right in self._gradient_of[1]:
            gradient = _together([self._gradient_of[0][pair.left], self._gradient_of[1][pair.right]])
        gradient = gradient or self._gradient_by_bits.get((left.fingerprint, right.fingerprint))
        if gradient is not None:
            return Judged(gradient.status, because="a gradient of the backward pass", sources=gradient.sources)
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Judged(Status.UNTOLD, untold=item.verdict.because)
        if "module" in (self._sides[0].level, self._sides[1].level) and pair.part is Part.INPUT and self._values:
            return self._between_modules(item)
        measured = item.measurement
        coarse = unit(left.spec.dtype, right.spec.dtype)
        if measured is not None and coarse and measured.max_ulp is not None and measured.max_ulp <= _LEAF_UNITS:
            return Judged(Status.CLEAN, because=f"within {_LEAF_UNITS:.0f} units of {left.spec.dtype}")
        held = pair.part in (Part.PARAMETER, Part.BUFFER) or (left.requires_grad and right.requires_grad)
        if held and self._before and item.verdict.outcome.good:
            why = f"{_name(pair)} was changed between two steps by something that was not recorded"
            if "module" in (self._sides[0].level, self._sides[1].level):
                why += ": record with level='mix'"
            return Judged(Status.UNTOLD, untold=why)
        if measured is None and item.verdict.outcome.good:
            return Judged(Status.UNTOLD, untold=f"{_name(pair)} differs, and its values were not kept")
        kind = {Part.PARAMETER: "weights", Part.BUFFER: "buffers"}.get(pair.part, "data")
        if kind == "data" and held:  # a function takes its weight as an argument
            kind = "weights"
        shapes = left.spec.shape != right.spec.shape
        what = (
            f"{_name(pair)} is {left.spec} | {right.spec}"
            if shapes
            else f"the two start from different {kind}: {_name(pair)}"
        )
        mistake = Mistake(
            "leaf" if kind == "data" else "weights",
            what,
            "" if shapes else self._re.relation(pair.left, pair.right),
            size=(item.verdict.error or 0.0) / coarse if coarse else 0.0,
            advice=f"give both sides the same {kind}",
        )
        self._origins[mistake] = pair, Slice(pair.left, (), (pair.left,)), Slice(pair.right, (), (pair.right,))
        return Judged(Status.PARTED, because=what, mistakes=(mistake,))

    def _between_modules(self, item: TensorResult) -> Judged:
        """Level module does not show the functions between modules: a difference there cannot be taken apart."""
        before = _together([judged for judged in self._values.values() if judged.status is Status.PARTED])
        if before.status is Status.PARTED:
            return Judged(Status.PARTED, because=item.verdict.because, sources=before.sources)
        if item.verdict.outcome is Outcome.DIFFERENT:
            what = f"{_name(item.pair)} differs, by code between the modules that this level does not record"
            return Judged(
                Status.PARTED, because=what, mistakes=(Mistake("unproven", what, advice="record with level='mix'"),)
            )
        return Judged(
            Status.UNTOLD,
            untold=f"{_name(item.pair)} was made between the modules, which level 'module' does not show: record level='mix'",
        )

    def _is_leaf(self, which: int, part: Slice) -> bool:
        """True if a value is a leaf, or one that was only moved or cast since."""
        meanings = [self._sides[which].meaning(call) for call in part.calls]
        if any(number in self._known[which] for number in part.edge if number != part.tensor) or len(part.edge) != 1:
            return not part.calls
        if not all(
            meaning is not None and (traits_of(meaning).moves or traits_of(meaning).casts) for meaning in meanings
        ):
            return False
        edge, own = self._sides[which].tensor(part.edge[0]), self._sides[which].tensor(part.tensor)
        same = edge.spec == own.spec and edge.fingerprint is not None and edge.fingerprint == own.fingerprint
        return not part.calls or same

    def _is_uninitialised(self, which: int, part: Slice) -> bool:
        """True if a value is memory as it was: made by `empty`, and only looked at since."""
        meanings = [self._sides[which].meaning(call) for call in part.calls]
        kinds = [traits_of(meaning) for meaning in meanings if meaning is not None]
        return (
            bool(kinds)
            and len(kinds) == len(meanings)
            and any(kind.uninitialised for kind in kinds)
            and all(kind.uninitialised or kind.moves for kind in kinds)
        )

    # --- random numbers -------------------------------------------------------------------------------------------------

    def _random(self, left: Slice, right: Slice) -> tuple[bool, bool] | None:
        """Which sides draw random numbers; None if neither does."""
        drawn = []
        for which, part in enumerate((left, right)):
            meanings = [self._sides[which].meaning(call) for call in part.calls]
            drawn.append(any(meaning is not None and traits_of(meaning).random for meaning in meanings))
        return (drawn[0], drawn[1]) if any(drawn) else None

    def _drawn(
        self, item: TensorResult, left: Slice, right: Slice, random: tuple[bool, bool], incoming: Judged
    ) -> Judged:
        if incoming.status in (Status.PARTED, Status.UNTOLD):
            because = "random numbers, applied to values that differ already"
            return Judged(incoming.status, because=because, sources=incoming.sources)
        drawing = tuple(self._drawing(which, part) for which, part in enumerate((left, right)))
        names = " | ".join(dict.fromkeys(name_of(call) for calls in drawing for call in calls))
        if all(random):
            settings = self._different_settings(left, right)
            if settings:
                what = f"{names} is set differently: {settings}"
                return Judged(Status.PARTED, because=what, mistakes=(Mistake("meaning", what, why=settings),))
            what = f"{names} draws random numbers: another seed or generator state"
            advice = "seed both sides alike, or switch the random part off (dropout p=0, eval mode) and compare again"
            mistake = Mistake("random", what, what, advice, left=drawing[0], right=drawing[1])
            return Judged(Status.PARTED, because=what, mistakes=(mistake,))
        side = "left" if random[0] else "right"
        what = f"only the {side} draws random numbers: {names}"
        why = f"{what}; is the other side in eval mode, or its rate 0 (training, p)?"
        mistake = Mistake("random", what, why, side=side, left=drawing[0], right=drawing[1])
        return Judged(Status.PARTED, because=what, mistakes=(mistake,))

    def _drawing(self, which: int, part: Slice) -> tuple[Call, ...]:
        """The first call of a slice that draws random numbers."""
        for call in part.calls:
            meaning = self._sides[which].meaning(call)
            if meaning is not None and traits_of(meaning).random:
                return (call,)
        return ()

    def _different_settings(self, left: Slice, right: Slice) -> str:
        from ..operations import different_arguments
        from ..operations.meanings import FRAMEWORKS_OWN, told

        if len(left.calls) != 1 or len(right.calls) != 1:
            return ""
        one, two = self._sides[0].meaning(left.calls[0]), self._sides[1].meaning(right.calls[0])
        if one is None or two is None or one.operation != two.operation:
            return ""
        return ", ".join(
            f"{name}: {told(mine)} | {told(other)}"
            for name, (mine, other) in different_arguments(one, two).items()
            if name not in FRAMEWORKS_OWN
        )

    # --- roundings and meaning -----------------------------------------------------------------------------------------

    def _audited(self, left: Slice, right: Slice) -> Judged:
        """Own roundings of the calls of both sides: terms, mistakes of kernels, why something could not be told."""
        ratios: list[float | None] = [None, None]
        mistakes: list[Mistake] = []
        untold = ""
        self._re.audit_both(left.calls, right.calls)
        for which, part in enumerate((left, right)):
            for call in part.calls:
                audit = self._re.audit(which, call)
                untold = untold or audit.failure
                for number, score in audit.forward.items():
                    ratios[which] = max(ratios[which] or 0.0, score.ratio)
                    if score.ratio > 1 and (which, number) not in self._accused:
                        self._accused.add((which, number))
                        mistakes.append(_kernel_mistake(which, call, score))
        return Judged(
            Status.CLEAN, Terms(ratios[0], 0.0 if not untold else None, None, ratios[1]), "", tuple(mistakes), untold
        )

    def _meaning(self, left: Slice, right: Slice, layout: Layout) -> Difference | None:
        if self._re.same_meaning(left, right, self._bound):
            return None
        return self._re.difference(left, right, self._bound, layout)

    def _cause(self, left: Slice, right: Slice, pair: TensorPair) -> Cause | None:
        return self._re.causes(left, right, self._bound, pair.layout) or self._earlier_cause(left, right, pair)

    def _are_moves(self, left: Slice, right: Slice, pair: TensorPair) -> bool:
        """True if both sides only moved values, which others take: halves on one side, every second one on the other. If that is
        a mistake, what is made of them will tell.
        """
        if not left.calls or not right.calls:
            return False
        for which, part in enumerate((left, right)):
            meanings = [self._sides[which].meaning(call) for call in part.calls]
            if not all(meaning is not None and traits_of(meaning).moves for meaning in meanings):
                return False
        makers = [*self._sides[0].makers(pair.left), *self._sides[1].makers(pair.right)]
        taken = self._sides[0].takers(pair.left) and self._sides[1].takers(pair.right)
        return bool(taken) and not any(call.site.kind is Kind.MODULE for call in makers)

    def _meant(
        self, left: Slice, right: Slice, pair: TensorPair, difference: Difference, cause: Cause | None
    ) -> Mistake:
        if difference.shapes is not None:
            what = f"the two results do not have the same shape: {list(difference.shapes[0])} | {list(difference.shapes[1])}"
        else:
            what = f"the two calls mean something else: {difference.relative:.1e} apart on the same inputs"
        if cause is None:
            why = self._guess(left, right)
            return Mistake("meaning", what, why, size=difference.units)
        why = f"{cause.text}; {cause.how} the results agree: {cause.proof}" if cause.proof else cause.text
        calls = cause.left, cause.right
        key = cause.text, *(tuple(call.id for call in own) for own in calls)
        if pair.part is Part.OUTPUT and not cause.lone and calls == (left.calls[-1:], right.calls[-1:]):
            calls = (), ()  # the pair says it, with the calls that belong to them
        mistake = Mistake("meaning", what, why, cause.advice, size=difference.units, left=calls[0], right=calls[1])
        if not any(key[1:]):
            return mistake
        return self._explained.setdefault(key, mistake)  # several values show what the same calls did

    def _precision(
        self, item: TensorResult, left: Slice, right: Slice, difference: Difference | None
    ) -> Mistake | None:
        """A cast or a computation in a coarser element type that one side alone has, in runs of the same precision."""
        size = (difference.relative if difference is not None else 0.0) or item.verdict.error or 0.0
        apart = f"the two calls mean something else: {size:.1e} apart on the same inputs"
        coarse = unit(item.left.spec.dtype, item.right.spec.dtype) or 1.0
        if self._other_precision():
            return None
        numbers = item.pair.left, item.pair.right
        casts = [self._coarse_cast(which, part, numbers[1 - which]) for which, part in enumerate((left, right))]
        if (casts[0] is None) != (casts[1] is None):
            which = 0 if casts[0] is not None else 1
            side, call = ("left", "right")[which], casts[which]
            assert call is not None
            to = " | ".join(self._sides[which].tensor(number).spec.dtype for number in outputs_of(call).values())
            why = f"only the {side} casts to {to} in between ({name_of(call)}), and loses precision"
            blamed = ((call,), ()) if which == 0 else ((), (call,))
            return Mistake(
                "meaning", apart, why, "compute in the same precision on both sides", side, size / coarse,
                left=blamed[0], right=blamed[1],
            )  # fmt: skip
        types = self._computed_in(0, left), self._computed_in(1, right)
        if not all(map(_is_float, types)) or unit(types[0], types[0]) == unit(types[1], types[1]):
            return None  # complex numbers of two f32 have the precision of f32
        both_half = all(
            unit(dtype, dtype) > _SINGLE for dtype in types
        )  # neither is finer; a cast to f32 and back loses nothing
        entries = [
            tuple(
                self._dtype_before_casts(which, own) if both_half else self._sides[which].tensor(own).spec.dtype
                for which, own in enumerate((self._bound[number].left, number))
            )
            for number in right.edge
            if number in self._bound
        ]
        if not any(one == two and _is_float(one) for one, two in entries):
            return None
        what = f"the two compute in another precision: {types[0]} | {types[1]}"
        why = f"dtype: {types[0]} | {types[1]}, where most of the two runs have one precision (a cast, a layer in half precision)"
        return Mistake("meaning", what, why, "compute in the same precision on both sides", size=size / coarse)

    def _dtype_before_casts(self, which: int, number: int) -> str:
        """Element type that a value was computed in, before it was cast or moved."""
        side, seen = self._sides[which], {number}
        while True:
            maker = side.maker(number)
            meaning = side.meaning(maker) if maker is not None else None
            if meaning is None or not (traits_of(meaning).casts or traits_of(meaning).moves):
                return side.tensor(number).spec.dtype
            taken = [operand.tensor for _, operand in meaning.operands()]
            if len(taken) != 1 or taken[0] in seen:
                return side.tensor(number).spec.dtype
            number = taken[0]
            seen.add(number)

    def _computed_in(self, which: int, part: Slice) -> str:
        """Element type of the last value of a slice that was computed, not cast or moved."""
        side = self._sides[which]
        for call in reversed(part.calls):
            meaning = side.meaning(call)
            if meaning is not None and not traits_of(meaning).casts and not traits_of(meaning).moves:
                return side.tensor(next(iter(meaning.results))).spec.dtype
        return ""

    def _coarse_cast(self, which: int, part: Slice, partner: int) -> Call | None:
        """A cast in a slice to an element type that is coarser than what goes in and than the other side's result."""
        side, other = self._sides[which], self._sides[1 - which]
        ends = [*(side.tensor(number).spec.dtype for number in part.edge), other.tensor(partner).spec.dtype]
        taken = [self._sides[1 - which].meaning(call) for call in other.takers(partner)]
        if any(meaning is not None and traits_of(meaning).casts for meaning in taken):
            return None  # the other side casts it next
        finest = max((unit(dtype, dtype) for dtype in ends if _is_float(dtype)), default=1.0)
        for call in part.calls:
            meaning = side.meaning(call)
            if meaning is None or meaning.operation != "cast":
                continue
            made = [side.tensor(number).spec.dtype for number in meaning.results]
            if any(_is_float(dtype) and unit(dtype, dtype) > finest for dtype in made):
                return call
        return None

    def _other_precision(self) -> bool:
        """True if one whole run has another precision than the other: its weights, or all that autocast computes, have."""
        if self._precisions is None:
            weights, products = [], []
            for result in self._results:
                calls = result.match.left
                meaning = self._sides[0].meaning(calls[-1]) if calls else None
                product = meaning is not None and traits_of(meaning).product
                for item in result.tensors:
                    other = item.left.spec.dtype != item.right.spec.dtype
                    if item.pair.part is Part.PARAMETER:
                        weights.append(other)
                    elif item.pair.part is Part.OUTPUT and product:
                        products.append(other)
            most = [sum(kind) * 2 > len(kind) for kind in (weights, products)]
            self._precisions = most[0] or (most[1] and len(products) >= _PRODUCTS)
        return self._precisions

    def _earlier_cause(self, left: Slice, right: Slice, pair: TensorPair) -> Cause | None:
        """The cause among the calls that laid out the inputs in another order on one side."""
        turned = {number: bound.left for number, bound in self._bound.items() if bound.layout.axes is not None}
        if not turned.keys() & set(right.edge):
            return None
        longer = (
            self._sides[0].slice(pair.left, self._known[0] - set(turned.values())),
            self._sides[1].slice(pair.right, self._known[1] - turned.keys()),
        )
        return self._re.causes(*longer, self._bound, pair.layout)

    def _guess(self, left: Slice, right: Slice) -> str:
        """Something to begin with where no single change explains it."""
        settings = self._different_settings(left, right)
        if settings:
            return f"none of the changes that were tried explains it alone; set differently: {settings}"
        names = [
            " → ".join(dict.fromkeys(name_of(call).rpartition(".")[2] for call in part.calls)) for part in (left, right)
        ]
        if names[0] != names[1]:
            return f"none of the changes that were tried explains it; left: {names[0]}; right: {names[1]}"
        return "none of the changes that were tried explains it"

    def _still_visible(
        self, item: TensorResult, inherited: float | None, right: Slice, sources: Collection[Mistake]
    ) -> bool:
        """True if a mistake before is more than rounding here. One that never was more cannot be gone by that."""
        if any(mistake.kind in ("meaning", "leaf") and mistake.size < _SMALL for mistake in sources):
            return True
        error = item.verdict.error or 0.0
        measured = item.measurement
        if measured is not None and measured.rmse is not None and measured.rms_left:
            error = measured.rmse / max(measured.rms_left, measured.rms_right or 0.0)
        if error >= _SHARES or measured is None:
            return True
        try:
            visible = self._re.is_visible(inherited, right, self._bound)
        except _not_recomputable():
            return True
        return visible and not self._is_forgotten(item, right, sources)

    def _is_forgotten(self, item: TensorResult, right: Slice, sources: Collection[Mistake]) -> bool:
        """True if a selective operation drops what a mistake changed, so that all that is left of the difference is rounding."""
        meanings = [self._sides[1].meaning(call) for call in right.calls]
        if not any(meaning is not None and meaning.operation in _SELECTIVE for meaning in meanings):
            return False
        if not all(mistake in self._origins for mistake in sources):
            return False
        changed = self._choices(sources)
        if not changed:
            return False
        from ..operations.replay import effect

        seen = effect(self._re, changed, item.pair.right)
        return seen is not None and seen <= _EXACT

    def _choices(self, mistakes: Collection[Mistake]) -> dict[int, Any] | None:
        """Results of both sides, from the same inputs, at the places of mistakes, by the right's numbers; None if not known."""
        changed = {}
        for mistake in mistakes:
            pair, left, right = self._origins[mistake]
            both = self._re.choices(left, right, self._bound, pair.layout)
            if both is None or both[0].shape != both[1].shape:
                return None
            changed[pair.right] = both
        return changed

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
        if item.verdict.outcome is Outcome.DIFFERENT and incoming.status in (Status.SAME, Status.CLEAN):
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            lone = self._lone_call(left, right)
            mistake = Mistake("unproven", what, lone, f"look at it: {lone}" if lone else "", size=_times(item.verdict))
            return Judged(Status.PARTED, None, what, (mistake,))
        return Judged(Status.UNTOLD, audited.terms, item.verdict.because, untold=why, sources=incoming.sources)

    def _lone_call(self, left: Slice, right: Slice) -> str:
        """The last call between that one side alone makes; empty if there is none."""
        for which, side, part in ((0, "left", left), (1, "right", right)):
            for call in reversed(part.calls):
                if call.id not in self._match_of[which]:
                    return f"only the {side} calls {name_of(call)} before it"
        return ""

    def _stated(self, left: Slice, right: Slice) -> str:
        """Difference that the calls themselves state, without a look at values: a setting, another function, exchanged operands."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return ""
        one, two = self._sides[0].meaning(left.calls[0]), self._sides[1].meaning(right.calls[0])
        if one is None or two is None:
            return ""
        if one.operation != two.operation:
            return f"{one.operation} | {two.operation}"
        settings = self._different_settings(left, right)
        if (
            settings or left.calls[0].site.phase is Phase.UPDATE
        ):  # one optimizer has a state where another begins without
            return settings
        ours, theirs = dict(one.operands()), dict(two.operands())
        lacking = sorted(set(ours) ^ set(theirs))
        if lacking:
            side = "left" if lacking[0] in ours else "right"
            return f"only the {side} has a {lacking[0]}"
        crossed = [
            path
            for path, operand in theirs.items()
            if operand.tensor in self._bound and self._bound[operand.tensor].left != ours[path].tensor
        ]
        partners = {self._bound[theirs[path].tensor].left for path in crossed}
        if crossed and partners == {ours[path].tensor for path in crossed}:
            return f"{name_of(left.calls[0]).rpartition('.')[2]} takes the same values in another order"
        return ""

    # --- gradients ------------------------------------------------------------------------------------------------------

    def _gradient(self, item: TensorResult) -> Judged:
        key = item.pair.left, item.pair.right
        if key not in self._gradients:
            judged = self._judge_gradient(item)
            if judged.mistakes:
                judged.sources = judged.sources | frozenset(judged.mistakes)
            self._gradients[key] = judged
            if item.left.fingerprint and item.right.fingerprint:
                self._gradient_by_bits[item.left.fingerprint, item.right.fingerprint] = judged
            for which, number in enumerate(key):
                known = self._gradient_of[which].get(number)
                if known is None or _ORDER[known.status] < _ORDER[judged.status]:
                    self._gradient_of[which][number] = judged
        return self._gradients[key]

    def _judge_gradient(self, item: TensorResult) -> Judged:
        if item.verdict.outcome is Outcome.SAME:
            return Judged(Status.SAME)
        parts = self._parts(item.pair)
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
            side, value = self._sides[which], values[which]
            if pair.part is Part.INPUT_GRADIENT:
                senders = self._senders[which].get(number, ())
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
            audit = self._re.audit(which, call)
            score = audit.backward.get(number)
            incoming = _together([incoming, self._comes_back(which, call)])
            if score is None:
                untold = (
                    untold or audit.backward_failure or audit.failure or f"{name_of(call)} has no gradient in float64"
                )
                continue
            ratios[which] = score.ratio
            if score.ratio > 1 and (which, number) not in self._accused:
                self._accused.add((which, number))
                mistakes.append(replace(_kernel_mistake(which, call, score), backward=True))
        terms = Terms(ratios[0], None, None, ratios[1])
        if mistakes:
            return Judged(Status.PARTED, terms, mistakes[0].what, tuple(mistakes), sources=incoming.sources)
        if untold:
            return self._untold_gradient(item, incoming, untold)
        unexplained = self._unexplained(item, incoming, (left, right))
        if unexplained is not None:
            return unexplained
        return Judged(incoming.status, terms, _told(terms, incoming.status), sources=incoming.sources)

    def _comes_back(self, which: int, call: Call) -> Judged:
        """Standing of what the backward pass of a call is made of: the gradients of its results, its operands and results."""
        found = [
            self._standing_of_gradient(which, gradient.tensor, set())
            for gradient in call.gradients
            if gradient.role == "output"
        ]
        return _together([*found, *self._behind_gradients(which, call)])

    def _behind_gradients(self, which: int, call: Call) -> list[Judged]:
        """Standings of the values that the gradients of a call depend on."""
        meaning = self._sides[which].meaning(call)
        if meaning is not None and (traits_of(meaning).moves or meaning.operation in _LINEAR):
            # Gradients go where the values came from, whatever these are: only a mask decides.
            masks = [operand.tensor for path, operand in meaning.operands() if path in ("mask", "condition")]
            return [self._standing(which, number) for number in masks]
        made = [self._standing(which, number) for number in outputs_of(call).values()]
        taken = [self._standing(which, number) for number in inputs_of(call).values()]
        lost = all(judged.status is not Status.PARTED for judged in made)
        if lost and meaning is not None and meaning.operation in _SELECTIVE:
            taken = [judged for judged in taken if judged.status is not Status.PARTED]
        return [*made, *taken]

    def _standing(self, which: int, number: int) -> Judged:
        """Standing of a value by one side's number; one that was not compared has none."""
        if not which:
            return self._of_left.get(number, _UNSEEN)
        bound = self._bound.get(number)
        return self._values[bound.left, number] if bound is not None else _UNSEEN

    def _standing_of_gradient(self, which: int, number: int, seen: set[int]) -> Judged:
        """Standing of a gradient; of one that was not compared, that of what it was made of."""
        known = self._gradient_of[which].get(number)
        if known is not None or number in seen:
            return known or _UNSEEN
        seen.add(number)
        found: list[Judged] = []
        for call, _ in self._senders[which].get(number, ()):
            found.append(self._audited_gradient(which, call, number))
            found += [
                self._standing_of_gradient(which, gradient.tensor, seen)
                for gradient in call.gradients
                if gradient.role == "output"
            ]
            found += self._behind_gradients(which, call)
        for _, value in self._received[which].get(number, ()):
            for _, other in self._sides[which].contributions(value):
                if other != number:
                    found.append(self._standing_of_gradient(which, other, seen))
        return _together(found)

    def _audited_gradient(self, which: int, call: Call, number: int) -> Judged:
        """Standing of what a call sent back, by its own vector-Jacobian product alone."""
        audit = self._re.audit(which, call)
        score = audit.backward.get(number)
        if score is None:
            why = audit.backward_failure or audit.failure or f"{name_of(call)} has no gradient in float64"
            return Judged(Status.SAME, unaudited=why)
        if score.ratio <= 1:
            return _UNSEEN
        if (which, number) not in self._accused:
            self._accused.add((which, number))
            at = ((call,), ()) if which == 0 else ((), (call,))
            mistake = replace(_kernel_mistake(which, call, score), backward=True, left=at[0], right=at[1])
            self._between.append((which, call, mistake))
            return Judged(Status.PARTED, mistakes=(mistake,), sources=frozenset((mistake,)))
        return Judged(Status.PARTED)

    def _added_up(self, item: TensorResult, parts: Sequence[Sequence[tuple[Call, int]]]) -> Judged:
        """A gradient that is the sum of what the calls that took its value sent back."""
        numbers = (item.pair.left, item.pair.right)
        if not parts[0] and not parts[1]:
            return self._leaf_gradient(item)
        values = self._values_of_gradient(item.pair)
        summed = [self._summands(which, numbers[which], values[which], parts[which]) for which in (0, 1)]
        parts = [parts[which] if summed[which] is None else summed[which] or () for which in (0, 1)]
        lone = [self._lone_parts(which, parts) for which in (0, 1)]
        incoming = _together(
            [self._standing_of_gradient(which, gradient, set()) for which in (0, 1) for _, gradient in parts[which]]
        )
        if bool(lone[0]) != bool(lone[1]):
            which = 0 if lone[0] else 1
            parts_alone = [gradient for call, gradient in parts[which] if call in lone[which]]
            told = self._re.is_the_difference(which, item.pair.left, item.pair.right, item.pair.layout, parts_alone)
            # Without the values, a part that only one side recorded is no difference where the gradients have none.
            if told or (told is None and item.verdict.outcome is Outcome.DIFFERENT):
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
        cut = self._cut_off(0) or self._cut_off(1)
        if cut is not None:
            return Judged(Status.PARTED, None, cut[0].what, (cut[0],))
        if max(map(len, parts)) > 1:
            return self._untold_gradient(item, incoming, "the two are added up of what other calls sent back")
        why = f"{_name(item.pair)} differs, and none of the recorded calls that sent it back explains it"
        return Judged(Status.UNTOLD, None, item.verdict.because, untold=why)

    def _are_apart(self, item: TensorResult, parts: Sequence[Sequence[tuple[Call, int]]]) -> bool:
        """True if two gradients differ by more than many layers' rounding of what each was added up of: its parts, or the terms of
        the only part, which may cancel.
        """
        numbers = item.pair.left, item.pair.right
        least = self._least
        half = (
            unit(item.left.spec.dtype, item.right.spec.dtype) > _SINGLE
        )  # what comes in was rounded, too, and may cancel
        several = max(map(len, parts)) > 1
        if (item.verdict.error or 0.0) < least or ((half or several) and item.verdict.outcome is not Outcome.DIFFERENT):
            return False
        if several:
            return self._re.apart(numbers, item.pair.layout, [[part for _, part in own] for own in parts]) >= least
        limit = 0.0
        for which, own in enumerate(parts):
            for call, number in own:
                score = self._re.audit(which, call).backward.get(number)
                if score is None:
                    return False
                limit += score.limit
        distance, size = self._re.distance(numbers, item.pair.layout)
        return distance >= max(_SHARES * size, _NOISE * limit) > 0

    @property
    def _least(self) -> float:
        """Relative distance of two gradients beyond which they are no longer one gradient that was rounded in many layers."""
        return max(_SHARES, _NOISE * self._coarsest)

    @cached_property
    def _coarsest(self) -> float:
        """Unit of the coarsest element type of the two runs: a gradient in float32 has the rounding of 16-bit ones before it."""
        types = {
            tensor.spec.dtype
            for result in self._results
            for item in result.tensors
            for tensor in (item.left, item.right)
        }
        return max((unit(dtype, dtype) for dtype in types), default=0.0)

    def _summands(
        self, which: int, number: int, value: int | None, parts: Sequence[tuple[Call, int]]
    ) -> Sequence[tuple[Call, int]] | None:
        """The parts whose sum a gradient is, of the calls that took its value or the same weight under another number."""
        more = [] if value is None else self._sides[which].other_contributions(value)
        for offered in ([*parts], [*parts, *more]) if more else ([*parts],):
            chosen = self._re.summands(which, number, [gradient for _, gradient in offered])
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
                value for _, value in (*self._received[which].get(number, ()), *self._senders[which].get(number, ()))
            ]
            if not values and pair.part is Part.PARAMETER_GRADIENT:
                parameter = self._sides[which].parameter((pair.left_slot, pair.right_slot)[which])
                if parameter is None:
                    parameter = self._parameter_by_gradient(which, number)
                values = [] if parameter is None else [parameter]
            found.append(values)
        for right in found[1]:
            bound = self._bound.get(right)
            if bound is not None and bound.left in found[0]:
                return bound.left, right
        return next(iter(found[0]), None), next(iter(found[1]), None)

    def _parameter_by_gradient(self, which: int, gradient: int) -> int | None:
        """The weight whose parts add up to a gradient, for one that is used under another name than it is kept (a tied one)."""
        key = which, gradient
        if key not in self._parameters:
            side = self._sides[which]
            leaves = side.leaves_of(side.tensor(gradient).spec.shape)
            fitting = (
                leaf for leaf in leaves if self._summands(which, gradient, leaf, side.contributions(leaf)) is not None
            )
            self._parameters[key] = next(fitting, None)
        return self._parameters[key]

    def _lone_parts(self, which: int, parts: Sequence[Sequence[tuple[Call, int]]]) -> list[Call]:
        """Calls of one side that send a part of a gradient back which has no counterpart on the other."""
        other = parts[1 - which]
        theirs = {
            id(self._match_of[1 - which].get(call.id)) for call, _ in other if call.id in self._match_of[1 - which]
        }
        found = []
        for call, gradient in parts[which]:
            match = self._match_of[which].get(call.id)
            if match is None or id(match) not in theirs:
                if gradient in self._gradient_of[which]:
                    continue
                found.append(call)
        return found

    def _lone_gradient(self, item: TensorResult, which: int, call: Call) -> Judged:
        side, other = (("left", "right"), ("right", "left"))[which]
        what = f"the {side}'s gradient has a part that the {other}'s lacks: it comes back from {name_of(call)}"
        cut = self._cut_off(1 - which)
        if cut is not None:
            mistake = replace(cut[0], what=f"{what}: {cut[0].what}")
        else:
            match = self._match_of[which].get(call.id)
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
        side, other = self._sides[which], self._sides[1 - which]
        for call in reversed(side.calls):
            meaning = side.meaning(call) if side.is_leaf(call) else None
            if meaning is None or meaning.operation != "detach" or call.id in self._match_of[which]:
                continue
            for _, operand in meaning.operands():
                partner = self._partner(which, operand.tensor)
                used = any(side.leads_to_gradients(number) for number in meaning.results)
                if used and partner is not None and other.has_gradient(partner):
                    return call
        return None

    def _leaf_gradient(self, item: TensorResult) -> Judged:
        if item.verdict.outcome is Outcome.UNKNOWN:
            return Judged(Status.UNTOLD, untold=item.verdict.because)
        measured = item.measurement
        if measured is not None and measured.max_ulp is not None and measured.max_ulp <= _LEAF_UNITS:
            return Judged(Status.CLEAN)
        if any(judged.status is not Status.SAME for judged in (*self._gradient_of[0].values(), *self._values.values())):
            return self._untold_gradient(item, Judged(Status.SAME), "no recorded call sends this gradient back")
        what = f"{_name(item.pair)} differs where the backward pass begins"
        return Judged(Status.PARTED, None, what, (Mistake("gradient", what, backward=True),))

    def _untold_gradient(self, item: TensorResult, incoming: Judged, why: str) -> Judged:
        if incoming.status is Status.PARTED:
            return Judged(Status.PARTED, None, item.verdict.because, sources=incoming.sources)
        if item.verdict.outcome is Outcome.DIFFERENT and incoming.status in (Status.SAME, Status.CLEAN):
            what = f"different, judged without recomputation ({why}): {item.verdict.because}"
            return Judged(
                Status.PARTED, None, what, (Mistake("unproven", what, size=_times(item.verdict), backward=True),)
            )
        return Judged(Status.UNTOLD, None, item.verdict.because, untold=why)

    # --- the whole ------------------------------------------------------------------------------------------------------

    def _result(
        self, result: CallResult, judged: Mapping[int, Judged], made: Collection[tuple[int, int]]
    ) -> CallResult:
        tensors = []
        mistakes: list[Mistake] = []
        untold = ""
        for place, item in enumerate(result.tensors):
            own = judged.get(place)
            if own is None:
                tensors.append(item)
                continue
            tensors.append(replace(item, verdict=_verdict(item, own), terms=own.terms))
            untold = untold or own.untold
            if own.mistakes and not (_comes_in(item.pair) and (item.pair.left, item.pair.right) in made):
                # A value goes through the modules around its call as well: a mistake is told where it was made.
                mistakes += [mistake for mistake in own.mistakes if id(mistake) not in self._told]
                self._told.update(map(id, own.mistakes))
        values = [item.verdict for item in tensors if not item.pair.part.backward]
        gradients = [item.verdict for item in tensors if item.pair.part.backward]
        forward = [mistake for mistake in mistakes if not mistake.backward]
        return replace(
            result,
            tensors=tuple(tensors),
            forward=_worst(values) if result.forward is not None else None,
            backward=_worst(gradients) if result.backward is not None else None,
            introduced_forward=bool(forward),
            introduced_backward=len(mistakes) > len(forward),
            mistakes=tuple(mistakes),
            untold=untold,
            absorbed_forward=False,
            absorbed_backward=False,
        )

    def _conclude(self, results: list[CallResult], judged: Mapping[int, Mapping[int, Judged]]) -> Judgement:
        """True if a mistake reaches a result of the run, and which results could not be told."""
        ends = self._ends(0), self._ends(1)
        for which, call, mistake in self._between:
            _attach(results, call, which, mistake)
        untold: list[str] = []
        reached: set[Mistake] = set()
        unknown = any(status is Status.PARTED and not sources for status, sources in self._before.values())
        for number, result in enumerate(results):
            for place, item in enumerate(result.tensors):
                own = judged[number].get(place)
                if own is None or not _is_end(item, ends[0]):
                    continue
                reached |= own.sources if own.status is Status.PARTED else set()
                if own.status is Status.PARTED and not own.sources and unknown:
                    untold.append(f"{_name(item.pair)} differs by what an earlier step left behind")
                if own.status is Status.UNTOLD:
                    untold.append(own.untold or f"{_name(item.pair)} depends on calls that could not be recomputed")
        for result in results:
            for mistake in result.mistakes:
                if mistake.backward and mistake.kind in ("unproven", "gradient") and mistake not in reached:
                    untold.append(f"a gradient differs, and its way to the parameters is not known: {mistake.what}")
        results, handled = self._other_results(results, ends)
        lone = [*self._lone_results(ends, handled), *self._lone_gradients(results)]
        self._look_for_cuts(results)
        reached |= self._always
        for which, side in enumerate(("left", "right")):
            for alone in (self._alignment.only_left, self._alignment.only_right)[which]:
                ended = {*outputs_of(alone.call).values()} & handled[which]
                if not alone.skipped and alone.bearing is Bearing.OPEN and not ended:
                    lone.append(
                        (f"only the {side} calls {name_of(alone.call)}, and what comes of it was not compared", False)
                    )
        untold += [text for text, counts in lone if not counts]
        mistakes = [text for text, counts in lone if counts]
        reached |= self._small_effects(results, reached, ends[1])
        # Other weights always count: the next input may show them.
        reached |= {mistake for result in results for mistake in result.mistakes if mistake.kind == "weights"}
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
            for names, size in self._notes.items()
        ) + tuple(self._remarks)
        parted = bool(reached or mistakes)
        return Judgement(finished, tuple(dict.fromkeys(untold)), parted, tuple(mistakes), notes, frozenset(reached))

    def _ends(self, which: int) -> dict[int, Call]:
        """Results of a run and the calls that made them: outputs of outermost modules, losses, and what nobody takes where there is
        no module.
        """
        side = self._sides[which]
        modules = [call for call in side.calls if call.parent is None and call.site.kind is Kind.MODULE]
        trained = any(call.gradients for call in side.calls)
        found: dict[int, Call] = {}
        for call in modules:
            found.update(dict.fromkeys(outputs_of(call).values(), call))
        for call in side.calls:
            if not side.is_leaf(call) or call.site.phase is Phase.BACKWARD:
                continue
            inner = call.parent is not None or (trained and not call.gradients)
            if modules and inner and call.site.phase is not Phase.UPDATE:
                continue
            made = [number for number in outputs_of(call).values() if not side.takers(number)]
            if call.site.phase is Phase.UPDATE:  # counts of steps are nobody's result
                specs = {number: side.tensor(number).spec for number in made}
                made = [number for number in made if specs[number].shape and specs[number].dtype[0] not in "iu"]
            found.update(dict.fromkeys(made, call))
        return found | self._state(which)

    def _state(self, which: int) -> dict[int, Call]:
        """State that a step leaves in tensors that were there before it, as it is last: buffers and attributes."""
        side = self._sides[which]
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
                last.pop(before, None)
                last[after] = call
                there.add(after)
        return {number: call for number, call in last.items() if side.tensor(number).spec.dtype[0] not in "iub"}

    def _small_effects(
        self, results: Sequence[CallResult], reached: Collection[Mistake], ends: Mapping[int, Call]
    ) -> set[Mistake]:
        """Mistakes that were lost in the rounding of the run on their way, and change a result if nothing is rounded.

        They are tried together: two that undo each other have no effect.
        """
        made = [mistake for result in results for mistake in result.mistakes if mistake not in reached]
        # What was large in its place and is gone later was undone: by a factor before a product that the other has after it.
        small = [mistake for mistake in made if mistake.kind == "leaf" or mistake.size < _SMALL]
        gone = [mistake for mistake in small if mistake in self._origins and not mistake.backward][:_TRIED]
        changed = self._choices(gone)  # the others alone would not undo each other
        if not changed:
            return set()
        from ..operations.replay import effect

        least = _LEAF_EFFECT if any(mistake.kind == "leaf" for mistake in gone) else _EXACT
        for end in ends:
            if (effect(self._re, changed, end) or 0.0) > least:
                return set(gone)
        return set()

    def _other_results(
        self, results: list[CallResult], ends: tuple[Mapping[int, Call], Mapping[int, Call]]
    ) -> tuple[list[CallResult], tuple[set[int], set[int]]]:
        """Results that one side goes on to compute from what is the other's result: a loss that is divided on one side only.

        Returns the results with these mistakes, and the numbers of both sides that are told by them.
        """
        handled: tuple[set[int], set[int]] = (set(), set())
        for which in (0, 1):
            for number, call in ends[which].items():
                if number in self._known[which] or _writes_state(call):
                    continue
                rest = self._sides[which].slice(number, self._known[which])
                partners = [self._partner(which, edge) for edge in rest.edge]
                partner = next((item for item in partners if item is not None and item in ends[1 - which]), None)
                if partner is None:
                    continue
                handled[which].add(number)
                here = Slice(partner, (), (partner,))
                left, right = (rest, here) if which == 0 else (here, rest)
                pair = TensorPair(Part.OUTPUT, "", "", left.tensor, right.tensor)
                try:
                    difference = self._re.difference(left, right, self._bound, pair.layout)
                except _not_recomputable():
                    handled[which].discard(number)
                    continue
                if difference.significant:
                    results = self._add_mistake(
                        results, which, rest, self._meant(left, right, pair, difference, self._cause(left, right, pair))
                    )
        return results, handled

    def _add_mistake(self, results: list[CallResult], which: int, part: Slice, mistake: Mistake) -> list[CallResult]:
        """The results with a mistake that counts, at the pair that made what a slice begins with."""
        self._always.add(mistake)
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
        sides = (("left", "right", self._alignment.stray_left), ("right", "left", self._alignment.stray_right))
        for which, (side, other, strays) in enumerate(sides):
            for stray in strays:
                known = self._sides[which].tensor(stray.tensor).statistics
                value = self._sides[which].parameter(stray.slot)
                compared = value is None or value in self._known[which]
                if not compared or (known is not None and not known.norm):
                    continue
                if value is not None and self._sides[1 - which].is_buffer(self._partner(which, value)):
                    self._remarks.append(f"{stray.slot} is a parameter on the {side} and a buffer on the {other}")
                    continue
                tie = self._tie(which, stray.slot, value)
                explained = tie or self._cut_off(1 - which)
                if explained is not None:
                    mistake, call = explained
                    if mistake not in self._always:
                        self._always.add(mistake)
                        _attach(results, call, which if tie is not None else 1 - which, mistake)
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
        spec = self._sides[which].tensor(value).spec
        for call in (call for call in self._sides[which].calls if value in inputs_of(call).values()):
            match = self._match_of[which].get(call.id)
            for partner in (match.left, match.right)[1 - which] if match is not None else ():
                shared = None
                for number in inputs_of(partner).values():
                    own = self._partner(1 - which, number)
                    if own in (None, value) or own in inputs_of(call).values():
                        continue
                    if (
                        self._sides[1 - which].tensor(number).spec == spec
                        and len(self._sides[1 - which].takers(number)) > 1
                    ):
                        shared = self._sides[1 - which].parameter_name(number)
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

    def _cut_off(self, which: int) -> tuple[Mistake, Call] | None:
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

    def _look_for_cuts(self, results: list[CallResult]) -> None:
        """A call that stops a gradient on one side alone is a mistake if the gradients of what it takes differ."""
        for which in (0, 1):
            cut = self._cut_off(which)
            if cut is None or any(mistake.why == cut[0].why for mistake in self._always):
                continue
            if any(mistake.why == cut[0].why for result in results for mistake in result.mistakes):
                continue
            (value,) = {operand.tensor for _, operand in self._meaning_of(which, cut[1]).operands()} or {-1}
            partner = self._partner(which, value)
            here, there = self._sides[which].gradient(value), self._sides[1 - which].gradient(partner)
            if there is None or (here is not None and not self._differ(which, here, there)):
                continue
            self._always.add(cut[0])
            _attach(results, cut[1], which, cut[0])

    def _meaning_of(self, which: int, call: Call) -> Meaning:
        meaning = self._sides[which].meaning(call)
        assert meaning is not None
        return meaning

    def _differ(self, which: int, here: int, there: int) -> bool:
        """True if two gradients of the same value differ by more than many layers' rounding."""
        left, right = (here, there) if which == 0 else (there, here)
        return self._re.apart((left, right), Layout(), [[left], [right]]) >= self._least

    def _partner(self, which: int, number: int) -> int | None:
        """The other side's tensor that one was compared with."""
        if which:
            bound = self._bound.get(number)
            return bound.left if bound is not None else None
        return next((right for right, bound in self._bound.items() if bound.left == number), None)

    def _forgotten(self, which: int, call: Call, number: int) -> str:
        """Name of a parameter that one side's optimizer updates and the other's does not take, though the network has it."""
        before = _updated(call, number) if call.site.phase is Phase.UPDATE else None
        partner = None if before is None else self._partner(which, before)
        other = self._sides[1 - which]
        updates = [item for item in other.calls if item.site.phase is Phase.UPDATE]
        if before is None or partner is None or not updates:
            return ""
        if math.prod(other.tensor(partner).spec.shape) != math.prod(self._sides[which].tensor(before).spec.shape):
            return ""
        if any(partner in inputs_of(item).values() for item in updates):
            return ""
        return self._sides[which].parameter_name(before) or "a parameter"

    def _lone_results(
        self, ends: tuple[Mapping[int, Call], Mapping[int, Call]], handled: tuple[set[int], set[int]]
    ) -> list[tuple[str, bool]]:
        """Results that one side alone has: (sentence, whether it is a mistake)."""
        compared = [self._known[which] | handled[which] for which in (0, 1)]
        alone = [
            {number: call for number, call in ends[which].items() if number not in compared[which]} for which in (0, 1)
        ]
        found = []
        for which, side in enumerate(("left", "right")):
            other = ("right", "left")[which]
            for number, call in alone[which].items():
                spec = self._sides[which].tensor(number).spec
                maker = self._sides[which].maker(number) or call
                forgotten = self._forgotten(which, call, number)
                if forgotten:
                    found.append(
                        (
                            f"only the {side}'s optimizer updates {forgotten}, {spec}: is it given to the {other}'s?",
                            True,
                        )
                    )
                elif _writes_state(call):
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


_UNSEEN = Judged(Status.SAME)


def _updated(call: Call, number: int) -> int | None:
    """The parameter that an optimizer's step made a new value of, as it was before; None of anything else."""
    slot = next((slot for slot, made in outputs_of(call).items() if made == number), "")
    place = slot.rpartition("parameters.")[2]
    return inputs_of(call).get(f"0.{place}") if place.isdigit() else None


def _writes_state(call: Call) -> bool:
    """True if a call of the forward pass writes to something that was there before it."""
    return bool(call.mutates) and call.site.kind is not Kind.MODULE and call.site.phase is Phase.FORWARD


def _attach(results: list[CallResult], call: Call, which: int, mistake: Mistake) -> None:
    """Put a mistake at the pair of a call, or at the one that ended last before it."""
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


def _together(judged: Sequence[Judged]) -> Judged:
    """Standing of what is made of several values."""
    sources: frozenset[Mistake] = frozenset().union(*(item.sources for item in judged))
    unaudited = next((item.unaudited for item in judged if item.unaudited), "")
    return Judged(worse(*(item.status for item in judged)), sources=sources, unaudited=unaudited)


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


def _not_recomputable() -> type[Exception]:
    from ..operations.evaluation import NotRecomputable

    return NotRecomputable


def _kernel_mistake(which: int, call: Call, score: Score) -> Mistake:
    side = ("left", "right")[which]
    what = f"the {side}'s {name_of(call)} does not give what it says it computes: {score}"
    why = f"the {side}'s kernel: its recorded operands give another result in float64, {score.ratio:.3g} times beyond its rounding"
    return Mistake(
        "kernel", what, why, f"look at the {side}'s kernel, its device and precision modes", side, score.ratio
    )


def _comes_in(pair: TensorPair) -> bool:
    return pair.part in (Part.INPUT, Part.PARAMETER, Part.BUFFER)


def _backward_order(result: CallResult) -> tuple[int, int]:
    orders = [gradient.order for call in result.match.left for gradient in call.gradients]
    return (0, min(orders)) if orders else (1, 0)


def _is_float(dtype: str) -> bool:
    return unit(dtype, dtype) > 0


def _times(verdict: Verdict) -> float:
    return verdict.error / verdict.bound if verdict.error and verdict.bound else 0.0


def _name(pair: TensorPair) -> str:
    slots = " | ".join(dict.fromkeys(filter(None, (pair.left_slot, pair.right_slot))))
    return f"the {pair.part} {slots}".rstrip()


def _told(terms: Terms, incoming: Status) -> str:
    ratios = " | ".join(f"{item:.2g}" for item in (terms.left, terms.right) if item is not None)
    source = {
        Status.SAME: "",
        Status.CLEAN: ", inputs apart by rounding",
        Status.UNTOLD: ", inputs that could not be told",
        Status.PARTED: ", inputs that differ",
    }
    return f"recomputed: {ratios or '0'} of what rounding allows{source[incoming]}"


_OUTCOMES = {
    Status.SAME: Outcome.SAME,
    Status.CLEAN: Outcome.ROUNDING,
    Status.UNTOLD: Outcome.UNKNOWN,
    Status.PARTED: Outcome.DIFFERENT,
}


def _verdict(item: TensorResult, judged: Judged) -> Verdict:
    old = item.verdict
    if judged.status is Status.SAME and old.outcome is Outcome.SAME:
        return old
    outcome = _OUTCOMES[judged.status]
    because = judged.because or judged.untold or old.because
    if judged.status is Status.UNTOLD and judged.untold and judged.untold not in because:
        because = f"not recomputed ({judged.untold}): {because}"
    return Verdict(outcome, because, old.error, old.bound)


def _worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    from ..model.results import badness

    return max(verdicts, key=badness, default=None)
