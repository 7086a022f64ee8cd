"""Values and gradients that the range of an element type spoils on one side alone, and the call of that side that does it.

    RangeJudge(state).of_value(item, left, right, bound)      a mistake, or None
    RangeJudge(state).of_gradient(item)                       likewise, of gradients

    left     y ─ softmax ─────────────── finite
    right    y ─ exp ─ sum ─ div ─────── NaN: exp overflows, and each call is right for what it takes

The two mean the same in float64, and each call is within what its element type can hold. So neither the meaning nor the rounding
of a call tells it. Three signs do:

    infinite or NaN      on one side alone
    lost                 one side is far from its own exact result, the other near it: an infinity or a zero on the way
    gradients            infinite or NaN on one side alone

Both sides not finite in the same places, and infinities that a call makes on purpose (a mask of -inf beside one of -1e9), are no
mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..model.nonfinite import Counts, ValueRange
from ..model.records import Call
from ..model.results import Mistake, TensorResult
from ..model.tensors import LARGEST, Tensor
from ..operations.nonfinite import (
    Cause,
    by_position,
    cause_of_gradient,
    cause_of_result,
    cause_of_update,
    settings_of,
    terms_of,
)
from ..operations.sides import Bound, Slice, inputs_of, name_of, outputs_of
from ..operations.traits import traits_of
from .state import JudgeState, not_recomputable, only_call

if TYPE_CHECKING:
    from ..operations.meanings import Meaning

_SIDES = ("left", "right")
_LOST = 0.25
"""Relative error of a result from its own exact one at which nothing is left of it; a chain of bf16 calls has a few percent."""
_NEAR = 1 / 32
"""Relative error of the other side's, at most: else the operation cancels, and rounding is all that either has."""
_LONGEST = 64
"""Calls between compared values among which the one that loses the result is looked for."""
Beginning = tuple[Slice, Slice, Mapping[int, Bound]]
"""The calls that made two values, and the partners of what they begin with."""


class RangeJudge:
    """Finds what is not finite on one side alone."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._filled: set[int] = set()
        """Values of the right in which a mask is filled with the last number of their type instead of an infinity."""

    def of_value(
        self, item: TensorResult, left: Slice, right: Slice, bound: Mapping[int, Bound] | None
    ) -> Mistake | None:
        """The overflow, division by zero or the like of one side that two results of the same meaning differ by.

        `bound`: partners of the values that the slices begin with; None where these cannot be recomputed.
        """
        which = self._side(item, None if bound is None else (left, right, bound))
        if which is not None:
            number = (item.pair.left, item.pair.right)[which]
            call = self._maker(which, (left, right)[which]) or self._first_maker(which, number)
            return self._mistake(item, which, call, self._why(which, call))
        return self._lost(item, (left, right)) if bound is not None else None

    def _lost(self, item: TensorResult, parts: tuple[Slice, Slice]) -> Mistake | None:
        """The call of the one side whose result has nothing to do with its own exact one any more."""
        if (item.verdict.error or 0.0) < _LOST:
            return None
        errors = [self._error(which, part) for which, part in enumerate(parts)]
        lost = [error is not None and error >= _LOST for error in errors]
        near = [error is not None and error <= _NEAR for error in errors]
        for which in (0, 1):
            if lost[which] and near[1 - which] and not self._chooses(which, parts[which]):
                call = self._loser(which, parts[which])
                return self._mistake(
                    item, which, call, self._why(which, call), lost=(errors[0] or 0.0, errors[1] or 0.0)
                )
        return None

    def _is_wrong(self, which: int, call: Call) -> bool:
        """True if a call does not give what it computes of its own operands."""
        return any(score.ratio > 1 for score in self._state.recomputation.audit(which, call).forward.values())

    def _chooses(self, which: int, part: Slice) -> bool:
        """True if a call of a slice picks values by their size: of those that are rounded to one, any is right."""
        meanings = [self._state.sides[which].meaning(call) for call in part.calls]
        return any(meaning is not None and traits_of(meaning).chooses for meaning in meanings)

    def _error(self, which: int, part: Slice) -> float | None:
        """Relative distance of a recorded value from the exact one that its slice gives of its own values; None if not known."""
        try:
            return self._state.recomputation.lost(which, part)
        except (not_recomputable(), RuntimeError):
            return None

    def _loser(self, which: int, part: Slice) -> Call | None:
        """The first call of a slice whose result is lost."""
        if len(part.calls) > _LONGEST:
            return None
        for call in sorted(part.calls, key=lambda item: item.order):
            for number in outputs_of(call).values():
                error = self._error(which, self._state.sides[which].slice(number, part.edge))
                if error is not None and error >= _LOST:
                    return call
        return None

    def of_gradient(self, item: TensorResult) -> Mistake | None:
        """The same of two gradients; the call whose backward pass made it so is looked for on the way back to the loss."""
        which = self._side(item, None)
        if which is None:
            return None
        call, made = self._sender(which, (item.pair.left, item.pair.right)[which])
        return self._mistake(item, which, call, self._why_gradient(which, call, made), backward=True)

    def is_on_one_side(self, item: TensorResult) -> bool:
        """True if one of two values is not finite where the other is."""
        return self._side(item, None) is not None

    def _side(self, item: TensorResult, slices: Beginning | None) -> int | None:
        """The side that alone is not finite in some elements; None if there is none. If both are, each in places of its own, the
        right: its user looks for what differs from the left.
        """
        counts = [_count(tensor) for tensor in (item.left, item.right)]
        if not any(counts):
            return None
        try:
            odd = self._odd_elements(item, slices)
        except (not_recomputable(), RuntimeError):
            return None if counts[0] == counts[1] else int(counts[1] > counts[0])
        return 1 if odd[1] else 0 if odd[0] else None

    def _odd_elements(self, item: TensorResult, slices: Beginning | None) -> tuple[bool, bool]:
        """True of each side that has elements which are not finite, are so in the other, and were not meant to be."""
        from ..operations.differences import HIDDEN

        left, right = self._state.recomputation.recorded.laid_alike((item.pair.left, item.pair.right), item.pair.layout)
        finite = left.isfinite(), right.isfinite()
        odd = ~finite[0] & finite[1], ~finite[1] & finite[0]
        if slices is not None and (bool(odd[0].any()) or bool(odd[1].any())):
            f, g = self._state.recomputation.exact(*slices, item.pair.layout)
            # A fill of -inf beside one of -1e9: the functions differ, and this was found to make no difference.
            meant = f.isinf() != g.isinf()
            # MSAdapter fills with the last number of the type instead of -inf, which goes on from there, into other types, too.
            ends = self._largest(0, item.pair.left, slices[0]), self._largest(1, item.pair.right, slices[1])
            filled = (left.abs() >= ends[0]) & (right.abs() >= ends[1]) & (left.sgn() == right.sgn())
            if not self._filled.isdisjoint(slices[1].edge):
                filled |= (left <= HIDDEN) & (right <= HIDDEN)
            filled &= f.isinf() & (f == g)
            if bool((filled & (left != right)).any()):
                self._filled.add(item.pair.right)
            meant |= filled
            odd = odd[0] & ~(left.isinf() & f.isinf() & meant), odd[1] & ~(right.isinf() & g.isinf() & meant)
        return bool(odd[0].any()), bool(odd[1].any())

    def _largest(self, which: int, number: int, part: Slice) -> float:
        """Largest number that all types can hold which a value has on its way."""
        made = (made for call in part.calls for made in outputs_of(call).values())
        specs = (self._state.sides[which].tensor(value).spec for value in (number, *made))
        return min(LARGEST.get(spec.dtype, math.inf) for spec in specs)

    def _maker(self, which: int, part: Slice) -> Call | None:
        """The first call of a slice that makes a value that is not finite of values that are."""
        for call in sorted(part.calls, key=lambda item: item.order):
            if self._are_finite(which, inputs_of(call).values()) and not self._are_finite(
                which, outputs_of(call).values()
            ):
                return call
        return None

    def _first_maker(self, which: int, number: int) -> Call | None:
        """The first of all calls on the way to a value that makes one that is not finite of values that are."""
        side = self._state.sides[which]
        waiting, seen, found = [number], {number}, list[Call]()
        while waiting:
            call = side.maker(side.origin(waiting.pop()))
            if call is None:
                continue
            bad = [taken for taken in inputs_of(call).values() if not self._are_finite(which, (taken,))]
            found += [call] if not bad else []
            waiting += [taken for taken in bad if taken not in seen]
            seen.update(bad)
        return min(found, key=lambda call: call.order, default=None)

    def _sender(self, which: int, number: int) -> tuple[Call | None, int]:
        """The call whose backward pass made a gradient not finite of gradients that are, and what it sent back."""
        waiting, seen = [number], {number}
        last: tuple[Call | None, int] = (None, number)
        while waiting:
            current = waiting.pop()
            sent = [(call, current) for call, _ in self._state.senders[which].get(current, ())]
            values = [value for _, value in self._state.received[which].get(current, ())]
            parts = [part for value in values for part in self._state.sides[which].contributions(value)]
            for call, gradient in (*sent, *parts):
                if self._are_finite(which, (gradient,)):
                    continue
                last = call, gradient
                before = [item.tensor for item in call.gradients if item.role == "output"]
                if self._are_finite(which, before):
                    return last
                fresh = [item for item in before if item not in seen and not self._are_finite(which, (item,))]
                seen.update(fresh)
                waiting += fresh
        return last

    def _are_finite(self, which: int, numbers: Iterable[int]) -> bool:
        return not any(_count(self._state.sides[which].tensor(number)) for number in numbers)

    def _mistake(
        self,
        item: TensorResult,
        which: int,
        call: Call | None,
        cause: Cause | None,
        *,
        backward: bool = False,
        lost: tuple[float, float] | None = None,
    ) -> Mistake:
        side, other = _SIDES[which], _SIDES[1 - which]
        counts = [_counts(tensor) for tensor in (item.left, item.right)]
        if lost is None:
            theirs = f"has {counts[1 - which]}" if counts[1 - which] else "is finite"
            what = f"the {side} has {counts[which]} where the {other} {theirs}"
        else:
            what = (
                f"the {side}'s result is lost to rounding: {lost[which]:.1e} from what its calls compute in float64, "
                f"the {other}'s {lost[1 - which]:.1e}"
            )
        maker = "" if call is None else f"the {side}'s {'backward pass of ' * backward}{name_of(call)}"
        if cause is not None:
            why, advice = f"{maker}: {cause.why}", cause.advice
        elif call is not None and lost is not None and self._is_wrong(which, call):
            why = f"{maker} does not give what it computes of its own operands: no rounding explains that"
            advice = f"look at the {side}'s kernel: what it writes in place may be lost"
        elif maker:
            why = f"{maker} {'rounds it away' if lost else 'makes it of finite values'}"
            advice = "compute this in a type with a wider range, or scale what comes in" if lost else ""
        else:
            why = advice = ""
        left, right = self._blamed(which, call)
        return Mistake("range", what, why, advice, side, math.inf, backward=backward, left=left, right=right)

    def _blamed(self, which: int, call: Call | None) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        """The call that does it, beside its partner if it has one of its own."""
        if call is None:
            return (), ()
        match = self._state.match_of[which].get(call.id)
        if match is not None and len(match.left) == len(match.right) == 1:
            return match.left, match.right
        return only_call(which, call)

    def _why(self, which: int, call: Call | None) -> Cause | None:
        if call is None:
            return None
        meaning, operation = self._operation(which, call)
        taken = {number: self._range(which, number) for number in inputs_of(call).values()}
        step = cause_of_update(call, meaning, {item.spec.dtype for item in taken.values()})
        if step is not None:
            return step
        made = [self._range(which, number) for number in outputs_of(call).values()]
        made = [item for item in made if item.counts]
        if not made:  # the result is lost in the small numbers of its type
            return None
        terms = by_position(taken.values()) if meaning is None else terms_of(meaning, taken)
        return cause_of_result(operation, terms, {} if meaning is None else settings_of(meaning), made)

    def _why_gradient(self, which: int, call: Call | None, sent: int) -> Cause | None:
        if call is None:
            return None
        meaning, operation = self._operation(which, call)
        taken = {number: self._range(which, number) for number in inputs_of(call).values()}
        terms = by_position(taken.values()) if meaning is None else terms_of(meaning, taken)
        results = [self._range(which, number) for number in outputs_of(call).values()]
        given = [self._range(which, item.tensor) for item in call.gradients if item.role == "output"]
        settings = {} if meaning is None else settings_of(meaning)
        return cause_of_gradient(operation, terms, settings, results, given, [self._range(which, sent)])

    def _operation(self, which: int, call: Call) -> tuple[Meaning | None, str]:
        meaning = self._state.sides[which].meaning(call)
        return meaning, name_of(call).rpartition(".")[2] if meaning is None else meaning.operation.rpartition(".")[2]

    def _range(self, which: int, number: int) -> ValueRange:
        tensor = self._state.sides[which].tensor(number)
        return ValueRange("", tensor.spec, tensor.statistics, tensor.is_rough)


def _counts(tensor: Tensor) -> Counts:
    known = tensor.statistics
    return Counts() if known is None else Counts(known.nan, known.posinf, known.neginf)


def _count(tensor: Tensor) -> int:
    counts = _counts(tensor)
    return counts.nan + counts.inf
