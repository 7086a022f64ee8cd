"""Mistakes with their causes: what explains a difference between two slices.

explainer.meaning_mistake(…)     another setting, operand or function, proven by recomputing with it
explainer.precision_mistake(…)   a cast, or a layer in another element type, that one side alone has
explainer.random_mistake(…)      random numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.pairs import Layout, Part, TensorPair
from ..model.records import Call, Role
from ..model.results import Mistake, TensorResult
from ..model.verdicts import Outcome
from ..operations.beginnings import from_same_values
from ..operations.sides import Slice, name_of, outputs_of
from ..operations.traits import traits_of
from .rounding import unit
from .settings import other_arguments
from .state import SINGLE, JudgeState, Standing, is_float, only_call

if TYPE_CHECKING:
    from ..operations.candidates import Cause
    from ..operations.differences import Difference
    from ..operations.meanings import Meaning

_PRODUCTS = 3
"""Products of which most must have another element type before a run counts as one in another precision."""


class Explainer:
    """Finds causes of differences between what two sides compute from the same values."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._explained: dict[tuple[object, ...], Mistake] = {}
        """Mistakes by their cause and the calls to blame."""
        self._precisions: bool | None = None

    def draws(self, left: Slice, right: Slice) -> tuple[bool, bool] | None:
        """Which sides draw random numbers; None if neither does."""
        drawn = []
        for which, part in enumerate((left, right)):
            meanings = [self._state.sides[which].meaning(call) for call in part.calls]
            drawn.append(any(meaning is not None and traits_of(meaning).random for meaning in meanings))
        return (drawn[0], drawn[1]) if any(drawn) else None

    def random_mistake(
        self, item: TensorResult, left: Slice, right: Slice, random: tuple[bool, bool], incoming: Standing
    ) -> Standing:
        """Standing of two values of which the sides that `random` names drew the numbers."""
        if incoming.outcome in (Outcome.DIFFERENT, Outcome.UNKNOWN):
            because = "random numbers, applied to values that differ already"
            return Standing(incoming.outcome, because=because, sources=incoming.sources)
        drawing = tuple(self._drawing(which, part) for which, part in enumerate((left, right)))
        names = " | ".join(dict.fromkeys(name_of(call) for calls in drawing for call in calls))
        if all(random):
            settings = self.different_settings(left, right)
            if settings:
                what = f"{names} is set differently: {settings}"
                return Standing(Outcome.DIFFERENT, because=what, mistakes=(Mistake("meaning", what, why=settings),))
            what = f"{names} draws random numbers: another seed or generator state"
            advice = "seed both sides alike, or switch the random part off (dropout p=0, eval mode) and compare again"
            mistake = Mistake("random", what, what, advice, left=drawing[0], right=drawing[1])
            return Standing(Outcome.DIFFERENT, because=what, mistakes=(mistake,))
        which = 0 if random[0] else 1
        side, other = ("left", "right")[which], ("right", "left")[which]
        what = f"only the {side} draws random numbers: {names}"
        settings = self._settings_of_drawing(which, drawing[which], (left, right)[1 - which])
        why = f"{what}; {settings or f'is the {other} in eval mode, or its rate 0 (training, p)?'}"
        advice = f"switch it off on the {side} (eval mode, a rate of 0) where the {other} does without it"
        mistake = Mistake("random", what, why, advice, side, left=drawing[0], right=drawing[1])
        return Standing(Outcome.DIFFERENT, because=what, mistakes=(mistake,))

    def _settings_of_drawing(self, which: int, drawing: Sequence[Call], others: Slice) -> str:
        """Settings in which a call that draws random numbers differs from its like in the other side's calls, as text."""
        own = self._state.sides[which].meaning(drawing[0]) if drawing else None
        theirs = map(self._state.sides[1 - which].meaning, others.calls)
        like = next(
            (item for item in theirs if own is not None and item is not None and item.operation == own.operation), None
        )
        if own is None or like is None:
            return ""
        return _settings_told(like, own) if which else _settings_told(own, like)

    def _drawing(self, which: int, part: Slice) -> tuple[Call, ...]:
        """The first call of a slice that draws random numbers."""
        for call in part.calls:
            meaning = self._state.sides[which].meaning(call)
            if meaning is not None and traits_of(meaning).random:
                return (call,)
        return ()

    def different_settings(self, left: Slice, right: Slice) -> str:
        """Settings that differ between two calls of one operation, as text."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return ""
        one, two = self._state.sides[0].meaning(left.calls[0]), self._state.sides[1].meaning(right.calls[0])
        if one is None or two is None or one.operation != two.operation:
            return ""
        return _settings_told(one, two)

    def cause(self, left: Slice, right: Slice, pair: TensorPair) -> Cause | None:
        """The change that explains a difference, proven from the values that both sides begin with; None if none does."""
        recomputation, bound = self._state.recomputation, self._state.partners(left, right)
        found = recomputation.causes(left, right, bound, pair.layout)
        if found is None:
            longer = from_same_values(self._state.sides, left, right, bound, self._state.known, self._state.agrees)
            found = recomputation.causes(*longer, bound, pair.layout) if longer != (left, right) else None
        found = found or self._earlier_cause(left, right, pair)
        return found or recomputation.causes(left, right, bound, pair.layout, paths=True)

    def meaning_mistake(
        self, left: Slice, right: Slice, pair: TensorPair, difference: Difference, cause: Cause | None
    ) -> Mistake:
        """The mistake of two slices that mean something else, with its cause if one was proven."""
        if difference.shapes is not None:
            what = f"the two results do not have the same shape: {list(difference.shapes[0])} | {list(difference.shapes[1])}"
        else:
            what = f"the two calls mean something else: {difference.relative:.1e} apart on the same inputs"
        if cause is None:
            why = self._guess(left, right)
            # What a call takes was made wrongly before it, by calls that nothing has paired.
            before = pair.part is Part.INPUT and bool(left.calls) and bool(right.calls)
            made = (left.calls[-1:], right.calls[-1:]) if before else ((), ())
            return Mistake("meaning", what, why, size=difference.units, left=made[0], right=made[1])
        why = f"{cause.text}; {cause.how} the results agree: {cause.proof}" if cause.proof else cause.text
        calls = cause.left, cause.right
        key = cause.text, *(tuple(call.id for call in own) for own in calls)
        last = left.calls[-1:], right.calls[-1:]
        if pair.part is Part.OUTPUT and not cause.lone and calls == last and self._are_paired(*last):
            calls = (), ()  # the pair says it, with the calls that belong to them
        mistake = Mistake("meaning", what, why, cause.advice, size=difference.units, left=calls[0], right=calls[1])
        if not any(key[1:]):
            return mistake
        return self._explained.setdefault(key, mistake)  # several values show what the same calls did

    def _are_paired(self, left: Sequence[Call], right: Sequence[Call]) -> bool:
        """True if two calls belong to one pair of calls or regions."""
        matches = [
            self._state.match_of[which].get(own[0].id) if own else None for which, own in enumerate((left, right))
        ]
        return matches[0] is matches[1] is not None

    def precision_mistake(
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
            call = casts[which]
            assert call is not None
            return self._cast_mistake(which, call, apart, size / coarse)
        types = self._computed_in(0, left), self._computed_in(1, right)
        if not all(map(is_float, types)) or unit(types[0], types[0]) == unit(types[1], types[1]):
            return None  # complex numbers of two f32 have the precision of f32
        # Neither is finer; a cast to f32 and back loses nothing.
        both_half = all(unit(dtype, dtype) > SINGLE for dtype in types)
        finer = 0 if unit(types[0], types[0]) < unit(types[1], types[1]) else 1
        dtype = self._state.sides[1 - finer].tensor(numbers[1 - finer]).spec.dtype
        if not both_half and self._is_cast_next(finer, numbers[finer], dtype):
            return None  # a norm written out in f32 in a bf16 run: kernels of bf16 compute so inside
        own_type = self._state.sides[finer].tensor(numbers[finer]).spec.dtype
        if (
            not both_half
            and unit(dtype, dtype) > SINGLE
            and own_type == dtype
            and len((left, right)[1 - finer].calls) == 1
        ):
            return None  # the same with the cast, beside one kernel
        pairs = [(self._state.bound[number].left, number) for number in right.edge if number in self._state.bound]
        before = [
            tuple(self._state.sides[which].dtype_before_casts(own) for which, own in enumerate(pair)) for pair in pairs
        ]
        # Of a run in one 16-bit type, what is computed in the other one was cast to that.
        other_half = not both_half and all(types[1 - finer] not in entry for entry in before)
        entries = [
            entry
            if both_half or other_half
            else tuple(self._state.sides[which].tensor(own).spec.dtype for which, own in enumerate(pair))
            for pair, entry in zip(pairs, before, strict=True)
        ]
        if not any(one == two and is_float(one) for one, two in entries):
            return None
        what = f"the two compute in another precision: {types[0]} | {types[1]}"
        why = f"dtype: {types[0]} | {types[1]}, where most of the two runs have one precision (a cast, a layer in half precision)"
        return Mistake("meaning", what, why, "compute in the same precision on both sides", size=size / coarse)

    def round_trip(self, which: int, number: int) -> Mistake | None:
        """A cast to another type and back that one side alone makes, which leaves the values as they are and changes the gradient:
        float16 holds the activations of a bf16 run, and not its gradients.
        """
        side = self._state.sides[which]
        last = side.maker(number)
        if last is None or last.id in self._state.match_of[which] or self._other_precision():
            return None
        calls, value = [last], number
        while True:
            meaning = side.meaning(calls[0])
            if meaning is None or meaning.operation != "cast":
                return None
            value = next(operand.tensor for _, operand in meaning.operands())
            before = side.maker(value)
            if side.tensor(value).spec.dtype == side.tensor(number).spec.dtype:
                break
            if before is None or before.id in self._state.match_of[which]:
                return None
            calls.insert(0, before)
        sent = [
            side.tensor(gradient.tensor).fingerprint
            for call, role in ((calls[0], Role.INPUT), (last, Role.OUTPUT))
            for gradient in call.gradients
            if gradient.role is role
        ]
        if len(calls) < 2 or len(sent) != 2 or sent[0] == sent[1]:
            return None
        return self._cast_mistake(
            which, calls[0], "a cast leaves the values as they are, and changes the gradient", 0.0
        )

    def _cast_mistake(self, which: int, call: Call, what: str, size: float) -> Mistake:
        side = ("left", "right")[which]
        to = " | ".join(self._state.sides[which].tensor(number).spec.dtype for number in outputs_of(call).values())
        why = f"only the {side} casts to {to} in between ({name_of(call)}), and loses precision"
        left, right = only_call(which, call)
        advice = "compute in the same precision on both sides"
        return Mistake("meaning", what, why, advice, side, size, left=left, right=right)

    def _is_cast_next(self, which: int, number: int, dtype: str) -> bool:
        """True if all that is done with a value is to cast it to an element type, after it was moved or not."""
        side = self._state.sides[which]
        waiting, seen, cast = [number], {number}, False
        while waiting:
            takers = side.takers(waiting.pop())
            for meaning in map(side.meaning, takers):
                if meaning is None:
                    return False
                if meaning.operation == "cast" and all(
                    side.tensor(made).spec.dtype == dtype for made in meaning.results
                ):
                    cast = True
                    continue
                if not traits_of(meaning).moves:
                    return False
                waiting += [made for made in meaning.results if made not in seen]
                seen.update(meaning.results)
            if not takers:
                return False
        return cast

    def _computed_in(self, which: int, part: Slice) -> str:
        """Element type of the last value of a slice that was computed, not cast or moved."""
        side = self._state.sides[which]
        for call in reversed(part.calls):
            meaning = side.meaning(call)
            if meaning is not None and not traits_of(meaning).casts and not traits_of(meaning).moves:
                taken = [operand.tensor for _, operand in meaning.operands()] if traits_of(meaning).widens else []
                return next((side.tensor(number).spec.dtype for number in (*taken, *meaning.results)), "")
        return ""

    def _coarse_cast(self, which: int, part: Slice, partner: int) -> Call | None:
        """A cast in a slice to an element type that is coarser than what goes in and than the other side's result."""
        side, other = self._state.sides[which], self._state.sides[1 - which]
        meanings = [(call, side.meaning(call)) for call in part.calls]
        casts = [(call, meaning) for call, meaning in meanings if meaning is not None and meaning.operation == "cast"]
        if not casts:  # before all else: an optimizer's step begins with thousands of values
            return None
        ends = [*(side.tensor(number).spec.dtype for number in part.edge), other.tensor(partner).spec.dtype]
        taken = [self._state.sides[1 - which].meaning(call) for call in other.takers(partner)]
        if any(meaning is not None and traits_of(meaning).casts for meaning in taken):
            return None  # the other side casts it next
        finest = max((unit(dtype, dtype) for dtype in ends if is_float(dtype)), default=1.0)
        for call, meaning in casts:
            made = [side.tensor(number).spec.dtype for number in meaning.results]
            if any(is_float(dtype) and unit(dtype, dtype) > finest for dtype in made):
                return call
        return None

    def _other_precision(self) -> bool:
        """True if one whole run has another precision than the other: its weights, or all that autocast computes, have."""
        if self._precisions is None:
            weights, products = [], []
            for result in self._state.results:
                calls = result.match.left
                meaning = self._state.sides[0].meaning(calls[-1]) if calls else None
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
        """The cause among the calls that laid out the inputs in another order, or another shape, on one side."""
        straight = [key for key, layout in self._state.layouts.items() if layout == Layout()]
        turned = [key for key, layout in self._state.layouts.items() if layout != Layout()]
        # A value that was compared as it is, too, is one that both begin with.
        lefts, rights = ({key[which] for key in turned} - {key[which] for key in straight} for which in (0, 1))
        if not lefts & set(left.edge) and not rights & set(right.edge):
            return None
        known = self._state.known[0] - lefts, self._state.known[1] - rights
        longer = from_same_values(
            self._state.sides,
            self._state.sides[0].slice(pair.left, known[0]),
            self._state.sides[1].slice(pair.right, known[1]),
            self._state.bound,
            known,
            self._state.agrees,
        )
        causes, bound = self._state.recomputation.causes, self._state.bound
        return causes(*longer, bound, pair.layout) or causes(*longer, bound, pair.layout, paths=True)

    def _guess(self, left: Slice, right: Slice) -> str:
        """Something to begin with where no single change explains it."""
        settings = self.different_settings(left, right)
        if settings:
            return f"none of the changes that were tried explains it alone; set differently: {settings}"
        names = [
            " → ".join(dict.fromkeys(name_of(call).rpartition(".")[2] for call in part.calls)) for part in (left, right)
        ]
        if names[0] != names[1]:
            return f"none of the changes that were tried explains it; left: {names[0]}; right: {names[1]}"
        return "none of the changes that were tried explains it"


def _settings_told(one: Meaning, two: Meaning) -> str:
    return ", ".join(f"{name}: {ours} | {theirs}" for name, (ours, theirs) in other_arguments(one, two).items())
