"""The change that makes two calls compute the same, found by trying: a cause with its proof.

    cause_of(recomputation, left, right, bound, layout)      Cause("eps: 1e-05 | 1e-07", "3.1e-03 → 2.0e-08", …), or None

Tried, the likeliest first: settings that differ, operands that one side alone has, calls that one side alone makes, masks, the
other side's operation, known variants, operands exchanged or taken from elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..model.pairs import Layout
from ..model.records import Call
from ..model.sites import Phase
from ..model.values import tensor_slots
from .candidates import SIDES, Candidate, Cause, call_text, exchanged, with_substitute
from .evaluation import SINGLE, NotRecomputable, run
from .meanings import FRAMEWORKS_OWN, Argument, Meaning, Operand, different_arguments, told
from .optimizers import of_one_parameter
from .paths import operand_paths
from .sides import Bound, Slice, name_of, outputs_of
from .traits import traits_of
from .variants import variants

if TYPE_CHECKING:
    from .recomputation import Recomputation

Tensor = torch.Tensor

_PROVEN = 1e-6
"""Relative difference that may be left when a cause explains it: constants that one side holds in float32, and recorded values in
float32 that the other side recomputes.
"""
_HELD_OTHERWISE = 1e-3
"""Share of a difference that may be left between optimizers of two frameworks, which hold 1 - β and epsilon in other precisions."""
_SHARE = 0.1
"""Share of a difference, at most, that may be left: one that is no larger than that of constants to begin with must go away."""
HIDDEN = -1e3
"""Upper limit of what is added to a score to mask it: -1e4, -65504, -1e9, -3.4e38, -inf."""
_FEW = 6
"""Calls of a slice up to which each is left out for a try, although the other side makes one of its kind."""
_ORDERED = 4
"""Inputs up to which all orders are tried: 24 of four."""
_EXCHANGE = "exchange the two operands on the right"
_INPUTS = 8
"""Inputs up to which each is tried in the place of another: an optimizer has hundreds."""
_DEEDS = {
    "mul": "multiplies by", "div": "divides by", "add": "adds", "sub": "subtracts", "pow": "raises to the power",
}  # fmt: skip
_NUMBERS = {"mul": "factor", "div": "divisor", "add": "addend", "sub": "subtrahend", "pow": "exponent"}
"""Names of the second operand of arithmetic."""
_WRITTEN = 16
"""Numbers of calls that are tried as a setting of the call that does the same as all of them."""
_EPSILON = 1e-2
"""Constants that are added and smaller than this keep a division from failing."""


def cause_of(
    recomputation: Recomputation,
    left: Slice,
    right: Slice,
    bound: Mapping[int, Bound],
    layout: Layout,
    paths: bool = False,
) -> Cause | None:
    """The change that makes the two sides compute the same; None if none of those tried does.

    `paths`: operands of the left in the right's calls are tried instead. That says where a difference is, not why.
    """
    try:
        f, g, _ = recomputation.both(left, right, bound, layout)
        search = Search(recomputation, left, right, bound)
    except NotRecomputable:
        return None
    visible = _without_hidden(f, g)
    masked = visible[1] is not g
    before = recomputation.relative(*visible)
    foreign = recomputation.sides[0].framework != recomputation.sides[1].framework and all(
        part.calls and part.calls[-1].site.phase is Phase.UPDATE for part in (left, right)
    )
    enough = min(_PROVEN, _SHARE * before)
    nearly = _HELD_OTHERWISE * before if foreign else 0.0
    for candidate in operand_paths(search) if paths else search.candidates():
        changed, begun = (candidate.left, candidate.right), candidate.bound or bound
        if f.shape == g.shape and any(
            meanings is not None and recomputation.is_oversized(which, (left, right)[which], meanings)
            for which, meanings in enumerate(changed)
        ):
            continue
        try:
            after, other = recomputation.values_of_both(left, right, begun, layout, changed, f)
            now = recomputation.relative(after, _as_hidden(after, other) if masked else other)
            if now > max(enough, nearly):  # most candidates: their tolerance need not be computed
                continue
            after, other, limit = recomputation.both(left, right, begun, layout, changed)
        except NotRecomputable:
            continue
        other = _as_hidden(after, other) if masked else other
        rest = recomputation.difference_between(after, other, limit, SINGLE)
        now = recomputation.relative(after, other)
        if not (now <= enough and not rest.significant) and not (foreign and now <= nearly):
            continue
        was = "shapes differ" if f.shape != g.shape else f"{before:.1e}"
        return replace(candidate.cause, proof=f"{was} → {now:.1e}")
    return None


def _as_hidden(after: Tensor, other: Tensor) -> Tensor:
    """The second result with the first one's masked scores, where both have one."""
    if after.shape != other.shape:
        return other
    return torch.where((after <= HIDDEN) & (other <= HIDDEN), after, other)


class Search:
    """Changes worth trying for two slices."""

    def __init__(self, recomputation: Recomputation, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> None:
        self._re = recomputation
        self._slices = left, right
        self._bound = bound
        self._left, self._right = (  # optimizers may have their parameters in another order
            [of_one_parameter(meaning, part.tensor) for meaning in recomputation.meanings(which, part)]
            for which, part in enumerate((left, right))
        )
        self.pairs = list(_partners(self._left, self._right))

    def candidates(self) -> Iterator[Candidate]:
        """Everything worth trying, the likeliest first."""
        for one, two in self.pairs:
            yield from self._settings(one, two)
            for candidate in self._operands(one, two):
                yield self._at(one, two, candidate)
        yield from self._all_settings()
        yield from self._factors()
        for which in (0, 1):
            yield from self._lone_calls(which)
        for which in (0, 1):
            yield from self._lone_modules(which)
        yield from self._masks()
        for one, two in self.pairs:
            for candidate in self._operations(one, two):
                yield self._at(one, two, candidate)
        yield from self._written_numbers()
        for which in (1, 0):
            yield from self._variants(which)
        yield from self._exchanged_inputs()
        yield from self._exchanged_transposed()
        yield from self._other_inputs()
        yield from self._other_leaves()
        for which in (0, 1):  # the other side may make such calls for something else, inside what is one call here
            if len(self._slices[which].calls) <= _FEW:
                yield from self._lone_calls(which, every=True)

    def _at(self, one: Meaning, two: Meaning, candidate: Candidate) -> Candidate:
        """A change of two calls, with these to blame."""
        cause = replace(candidate.cause, left=(self.call(0, one),), right=(self.call(1, two),))
        return replace(candidate, cause=cause)

    def call(self, which: int, meaning: Meaning) -> Call:
        """The recorded call of a meaning."""
        meanings = self.meanings(which)
        return self._slices[which].calls[next(place for place, item in enumerate(meanings) if item is meaning)]

    def values(self, which: int) -> Callable[[Operand], Tensor]:
        """Values of one side's operands, both from the values that the left begins with. Raises NotRecomputable."""
        part = self._slices[which]
        given = self._re.from_left(self._bound) if which else self._re.values[0]
        with torch.no_grad():
            made = run(self.meanings(which), given, part.copies, self._re.values[which].spec)

        def value(operand: Operand) -> Tensor:
            number = part.copies.get(operand.tensor, operand.tensor)
            return made[number] if number in made else given(number)

        return value

    def meanings(self, which: int) -> list[Meaning]:
        """Meanings of one side's calls, in their order."""
        return self._right if which else self._left

    def taking_an_input(self, which: int, cause: Cause) -> Iterator[Candidate]:
        """One side with a value that it begins with in place of its result, each that has its shape."""
        part, spec = self._slices[which], self._re.values[which].spec
        for number in part.edge:
            if spec(number).shape == spec(part.tensor).shape and number != part.tensor:
                copy = [Meaning("torch.Tensor.clone", {"0": Operand(number)}, {part.tensor: 0}, "clone")]
                yield Candidate(cause, right=copy) if which else Candidate(cause, left=copy)

    def makers(self, which: int, number: int) -> list[Meaning]:
        """Calls of a slice that make a value, in their order."""
        part, needed, found = self._slices[which], {number}, []
        for meaning in reversed(self.meanings(which)):
            if (
                needed & {part.copies.get(result, result) for result in meaning.results}
                or needed & meaning.results.keys()
            ):
                needed |= {part.copies.get(operand.tensor, operand.tensor) for _, operand in meaning.operands()}
                found.append(meaning)
        return found[::-1]

    def with_operands(self, meaning: Meaning, operands: Mapping[int, Tensor], cause: Cause) -> Candidate:
        """The right's calls, one of which takes other values."""
        changed = [meaning]
        for number, value in operands.items():
            changed = with_substitute(changed, number, Operand(self._re.constant(value)))
        arguments = {**changed[0].arguments, **({"enable_gqa": False} if "enable_gqa" in meaning.arguments else {})}
        return Candidate(cause, right=exchanged(self._right, meaning, replace(changed[0], arguments=arguments)))

    # --- settings and operands ------------------------------------------------------------------------------------------

    def _settings(self, one: Meaning, two: Meaning) -> Iterator[Candidate]:
        settings = different_arguments(one, two)
        fixed = {name: settings.pop(name)[0] for name in FRAMEWORKS_OWN & settings.keys()}
        for name, (mine, other) in sorted(settings.items()):
            shown = _NUMBERS.get(two.operation, name) if name == "other" else name
            if shown == "addend" and all(isinstance(item, float) and 0 < item < 0.1 for item in (mine, other)):
                shown = "eps"
            cause = Cause(
                f"{shown}: {told(mine)} | {told(other)}", setting=name, advice=f"set {shown}={told(mine)} on the right"
            )
            yield self._at(one, two, Candidate(cause, right=self._with(two, {**fixed, name: mine})))
        if len(settings) > 1:
            names = ", ".join(
                f"{name}: {told(mine)} | {told(other)}" for name, (mine, other) in sorted(settings.items())
            )
            advice = f"set {', '.join(sorted(settings))} as on the left"
            changed = {name: mine for name, (mine, _) in settings.items()}
            cause = Cause(names, setting=min(settings), advice=advice)
            yield self._at(one, two, Candidate(cause, right=self._with(two, {**fixed, **changed})))

    def _all_settings(self) -> Iterator[Candidate]:
        """All settings of all calls between: a reshape and a permutation that belong together."""
        changed, names = list(self._right), []
        for one, two in self.pairs:
            for name, (mine, other) in sorted(different_arguments(one, two).items()):
                names.append(f"{name} of {two.operation}: {told(mine)} | {told(other)}")
                place = next(place for place, item in enumerate(changed) if item.results.keys() == two.results.keys())
                changed[place] = replace(changed[place], arguments={**changed[place].arguments, name: mine})
        if len(names) > 1:
            yield Candidate(Cause(", ".join(names), advice="set these as on the left"), right=changed)

    def _factors(self) -> Iterator[Candidate]:
        """Numbers by which values are scaled in other ways: a divisor here, a factor there, the scale of an attention."""
        for one in self._left:
            for two in self._right:
                mine, other = self._factor(0, one), self._factor(1, two)
                if mine is None or other is None or mine == other:
                    continue
                divisors = one.operation == two.operation == "div"
                shown = (1 / mine, 1 / other) if divisors else (mine, other)
                name = "divisor" if divisors else "scale"
                cause = Cause(
                    f"{name}: {told(shown[0])} | {told(shown[1])}",
                    setting=name,
                    advice=f"{'divide' if divisors else 'scale'} by {told(shown[0])} on the right",
                )
                argument = "scale" if two.operation == "scaled_dot_product_attention" else "other"
                own = 1 / mine if two.operation == "div" else mine
                yield self._at(one, two, Candidate(cause, right=self._with(two, {argument: own})))

    def _factor(self, which: int, meaning: Meaning) -> float | None:
        """The number, or the tensor of one number, that a call scales by; None if it scales by none."""
        if meaning.operation == "scaled_dot_product_attention":
            scale = meaning.arguments.get("scale")
            return scale if isinstance(scale, float) else None
        other = meaning.arguments.get("other")
        if meaning.operation not in ("mul", "div"):
            return None
        if isinstance(other, Operand) and math.prod(self._re.values[which].spec(other.tensor).shape) == 1:
            try:
                other = float(self._re.values[which](other.tensor).double())
            except NotRecomputable:
                return None
        if not isinstance(other, int | float) or not other or not math.isfinite(other):
            return None
        return 1 / other if meaning.operation == "div" else float(other)

    def _written_numbers(self) -> Iterator[Candidate]:
        """Settings of one call with the numbers of the calls that do the same on the other side, one after the other: the momentum
        of an optimizer's kernel, which is a factor where its step is written out.
        """
        for which in (0, 1):
            own, others = self.meanings(which), self.meanings(1 - which)
            if len(own) != 1 or own[0].operation in {meaning.operation for meaning in others}:
                continue
            fused = own[0]
            given = (_number(item) for meaning in others for item in meaning.arguments.values())
            numbers = {number for number in given if number is not None}
            numbers |= {1 - number for number in numbers if 0 < number < 1}
            settings = [name for name, value in fused.arguments.items() if isinstance(value, float)]
            for name, number in itertools.product(settings, sorted(numbers)[:_WRITTEN]):
                values = (fused.arguments[name], number) if which == 0 else (number, fused.arguments[name])
                if values[0] != values[1]:
                    advice = f"set {name}={told(values[0])} on the right"
                    cause = Cause(f"{name}: {told(values[0])} | {told(values[1])}", setting=name, advice=advice)
                    changed = replace(fused, arguments={**fused.arguments, name: number})
                    yield self._changed(cause, which, fused, changed)

    def _with(self, meaning: Meaning, arguments: Mapping[str, Argument]) -> list[Meaning]:
        changed = replace(meaning, arguments={**meaning.arguments, **arguments})
        return exchanged(self._right, meaning, changed)

    def _operands(self, one: Meaning, two: Meaning) -> Iterator[Candidate]:
        """Operands that one side alone has: a bias, a mask."""
        for which, has, lacks in ((0, one, two), (1, two, one)):
            for name, argument in has.arguments.items():
                if not isinstance(argument, Operand) or lacks.arguments.get(name, argument) is not None:
                    continue
                without = replace(has, arguments={**has.arguments, name: None})
                spec = self._re.values[which].spec(argument.tensor)
                side, other = SIDES[which], SIDES[1 - which]
                cause = Cause(
                    f"the {side} has a {name}, {spec}; the {other} has none",
                    setting=name,
                    advice=f"give the {other} its {name}",
                )
                yield self._changed(cause, which, has, without)

    def _changed(self, cause: Cause, which: int, old: Meaning, new: Meaning) -> Candidate:
        if which == 0:
            return Candidate(cause, left=exchanged(self._left, old, new))
        return Candidate(cause, right=exchanged(self._right, old, new))

    # --- calls ----------------------------------------------------------------------------------------------------------

    def _lone_calls(self, which: int, every: bool = False) -> Iterator[Candidate]:
        """Calls that one side alone makes (or `every` call), left out: one of their operands is handed on. The last one first: what
        it does with the result is what those before it were made for.
        """
        meanings, others = (self._left, self._right) if which == 0 else (self._right, self._left)
        more = Counter(item.operation for item in meanings) - Counter(item.operation for item in others)
        for place, meaning in reversed([*enumerate(meanings)]):
            if not every and meaning.operation not in more and any(meaning is pair[which] for pair in self.pairs):
                continue
            advice = (
                "remove it from the right, or see why the left does without"
                if which
                else "add it on the right, or see why the left has it"
            )
            text = f"only the {SIDES[which]} {self._deed(which, meaning)}"
            calls = (self._slices[which].calls[place],)
            at = ((), calls) if which else (calls, ())
            cause = Cause(text, "", meaning.operation, advice, True, at[0], at[1], "without it")
            for rest in _left_out(meanings, place):
                yield Candidate(cause, right=rest) if which else Candidate(cause, left=rest)

    def _lone_modules(self, which: int) -> Iterator[Candidate]:
        """Modules of several calls, left out with all that is in them: what they were given is handed on. A norm that is written
        out is no single call.
        """
        side, calls = self._re.sides[which], self._slices[which].calls
        meanings = self.meanings(which)
        modules = {call.parent: side.around(call) for call in reversed(calls)}
        for module in modules.values():
            inside = {call.id for call in calls if module is not None and call.parent == module.id}
            given = [number for _, number in tensor_slots(module.args, module.kwargs)] if module is not None else []
            made = list(outputs_of(module).values()) if module is not None else []
            if len(inside) < 2 or len(made) != 1 or len(given) != 1:
                continue
            assert module is not None
            if self._re.values[which].spec(made[0]).shape != self._re.values[which].spec(given[0]).shape:
                continue
            rest = [item for item, call in zip(meanings, calls, strict=True) if call.id not in inside]
            for result in (made[0], *side.originals(made[0])):
                rest = with_substitute(rest, result, Operand(given[0]))
                if result == self._slices[which].tensor:
                    rest.append(Meaning("torch.Tensor.clone", {"0": Operand(given[0])}, {result: 0}, "clone"))
            advice = (
                "remove it from the right, or see why the left does without"
                if which
                else "add it on the right, or see why the left has it"
            )
            at = ((), (module,)) if which else ((module,), ())
            text = f"only the {SIDES[which]} calls {module.site.name} ({module.site.type})"
            cause = Cause(text, "", module.site.type or "", advice, True, at[0], at[1], "without it")
            yield Candidate(cause, right=rest) if which else Candidate(cause, left=rest)

    def _deed(self, which: int, meaning: Meaning) -> str:
        """An operation as people would say it: multiplies by 0.125 (torch.Tensor.mul)."""
        called = meaning.called or meaning.operation
        other = meaning.arguments.get("other", meaning.arguments.get("exponent"))
        if meaning.operation == "add" and isinstance(other, float) and 0 < other < _EPSILON:
            return f"adds an epsilon of {told(other)} ({called})"
        if meaning.operation in _DEEDS and isinstance(other, int | float):
            return f"{_DEEDS[meaning.operation]} {told(other)} ({called})"
        if meaning.operation in ("add", "sub") and isinstance(other, Operand):
            spec = self._re.values[which].spec(other.tensor)
            role = "a bias, " if len(spec.shape) == 1 and self._re.sides[which].maker(other.tensor) is None else ""
            return f"{_DEEDS[meaning.operation]} {role}{spec} ({called})"
        bias = meaning.arguments.get("bias")
        if meaning.operation == "bias_add" and isinstance(bias, Operand):
            return f"adds a bias, {self._re.values[which].spec(bias.tensor)} ({called})"
        if meaning.operation == "cast":
            return f"casts to {told(meaning.arguments.get('dtype'))} ({called})"
        return f"calls {called}"

    def _operations(self, one: Meaning, two: Meaning) -> Iterator[Candidate]:
        """The left's operation on the right's operands."""
        if one.operation == two.operation or not set(dict(one.operands())) & set(dict(two.operands())):
            return
        swapped = _as_other(two, one)
        if swapped is not None:
            text = f"the left computes {call_text(one)}, the right {call_text(two)}"
            cause = Cause(text, setting=one.operation, advice=f"call {one.operation} on the right")
            yield Candidate(cause, right=exchanged(self._right, two, swapped))

    # --- inputs ---------------------------------------------------------------------------------------------------------

    def _variants(self, which: int) -> Iterator[Candidate]:
        """Known variants of the calls of one side: the one that gives the other's result is what the other computes."""
        for meaning in self.meanings(which):
            for text, variant in variants(meaning, self._re.values[which].spec):
                name = meaning.called or meaning.operation
                said = f"{name}: {text} on the {SIDES[1 - which]}, not on the {SIDES[which]}"
                blamed = self._blamed(which, meaning)
                cause = Cause(
                    said, setting=meaning.operation, how="with it on both sides", left=blamed[0], right=blamed[1]
                )
                yield self._changed(cause, which, meaning, variant)

    def _blamed(self, which: int, meaning: Meaning) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        """The call of a meaning and its counterpart: its partner, or the last call of the other side."""
        partner = next((pair[1 - which] for pair in self.pairs if pair[which] is meaning), None)
        own = (self.call(which, meaning),)
        other = self._slices[1 - which].calls[-1:] if partner is None else (self.call(1 - which, partner),)
        return (tuple(other), own) if which else (own, tuple(other))

    def _exchanged_inputs(self) -> Iterator[Candidate]:
        """Inputs of one shape in each other's places: two exchanged, or all of them in another order."""
        known = [number for number in self._slices[1].edge if number in self._bound]
        if len(known) > _INPUTS:
            return
        alike: dict[object, list[int]] = {}
        for number in known:
            alike.setdefault(self._re.values[1].spec(number), []).append(number)
        for numbers in alike.values():
            for i, one in enumerate(numbers):
                for two in numbers[i + 1 :]:
                    cause = Cause("two operands are exchanged", setting="operands", advice=_EXCHANGE)
                    yield from self._reordered(cause, (one, two), (two, one))
        for numbers in alike.values():
            for order in itertools.permutations(numbers) if 2 < len(numbers) <= _ORDERED else ():
                if all(one != two for one, two in zip(numbers, order, strict=True)):
                    text = f"{len(numbers)} operands are in another order"
                    yield from self._reordered(
                        Cause(text, setting="operands", advice="give them in the left's order on the right"),
                        numbers,
                        order,
                    )

    def _exchanged_transposed(self) -> Iterator[Candidate]:
        """Two inputs in each other's places, of which one lies the other way: keys are transposed before a product."""
        known = [number for number in self._slices[1].edge if number in self._bound]
        value = self._re.from_left(self._bound)
        shapes = {number: self._re.values[1].spec(number).shape for number in known}
        for one, two in itertools.combinations(known if len(known) <= _INPUTS else (), 2):
            shape = shapes[two]
            if len(shape) < 2 or shapes[one] != (*shape[:-2], shape[-1], shape[-2]):
                continue
            changed = list(self._right)
            for number, other in ((one, two), (two, one)):
                turned = self._re.constant(value(other).transpose(-1, -2))
                changed = with_substitute(changed, number, Operand(turned))
            cause = Cause("two operands are exchanged", setting="operands", advice=_EXCHANGE)
            yield Candidate(cause, right=changed)

    def _reordered(self, cause: Cause, numbers: Sequence[int], order: Sequence[int]) -> Iterator[Candidate]:
        """The right with some of its inputs in other places, if these are different values."""
        if len({self._bound[number].left for number in numbers}) == len(numbers):
            moved = {number: self._bound[other] for number, other in zip(numbers, order, strict=True)}
            yield Candidate(cause, bound={**self._bound, **moved})

    def _other_inputs(self) -> Iterator[Candidate]:
        """An input of the right that is another value than the left's: keys where there were queries."""
        left, right = self._slices
        known = [number for number in right.edge if number in self._bound]
        if len(known) > _INPUTS or len(left.edge) > _INPUTS:
            return
        taken = {self._bound[number].left for number in known}
        partners = {bound.left for bound in self._bound.values()}
        for number in known:
            for mine in left.edge:
                same = self._re.values[0].spec(mine).shape == self._re.values[1].spec(number).shape
                if mine in taken or mine not in partners or not same:
                    continue
                text = (
                    f"the right takes {self._origin(1, number)} where the left takes {self._origin(0, mine)}: "
                    "are the two exchanged?"
                )
                bound = {**self._bound, number: replace(self._bound[number], left=mine)}
                yield Candidate(
                    Cause(text, setting="operands", advice="take the same operand on the right"), bound=bound
                )

    def _other_leaves(self) -> Iterator[Candidate]:
        """The left's tables and constants in place of the right's, which nothing paired: the sines of another base, cast."""
        taken = {bound.left for bound in self._bound.values()}
        leaves = [
            [number for number in part.edge if side.maker(number) is None]
            for side, part in zip(self._re.sides, self._slices, strict=True)
        ]
        ours = [number for number in leaves[0] if number not in taken]
        theirs = [number for number in leaves[1] if number not in self._bound]
        if not ours or len(ours) != len(theirs) or len(ours) > _INPUTS:
            return
        specs = [[self._re.values[w].spec(number) for number in own] for w, own in enumerate((ours, theirs))]
        if [spec.shape for spec in specs[0]] != [spec.shape for spec in specs[1]]:
            return
        given = {right: Bound(left, Layout()) for left, right in zip(ours, theirs, strict=True)}
        named = ", ".join(f"{one} | {two}" if one != two else str(one) for one, two in zip(*specs, strict=True))
        text = f"the two start from different constants, which no recorded call made: {named}"
        advice = "give both sides the same constants: how they are computed before is not recorded"
        yield Candidate(Cause(text, setting="constants", advice=advice), bound={**self._bound, **given})

    def _origin(self, which: int, number: int) -> str:
        side = self._re.sides[which]
        maker = side.maker(number)
        for _ in range(_INPUTS):  # the name of a layer says more than the transpose after it
            meaning = side.meaning(maker) if maker is not None else None
            if maker is None or meaning is None or not traits_of(meaning).moves:
                break
            first = next((operand.tensor for _, operand in meaning.operands()), None)
            before = side.maker(first) if first is not None else None
            if before is None:
                break
            maker = before
        if maker is None:
            return f"{self._re.values[which].spec(number)}, which no recorded call made"
        return f"the result of {name_of(maker)} in {maker.site.path or 'the model'}"

    # --- masks ----------------------------------------------------------------------------------------------------------

    def _masks(self) -> Iterator[Candidate]:
        """The right with the left's mask in place of its own."""
        mine, other = self._mask(0), self._mask(1)
        if mine is not None and other is not None:
            if _broadcastable(mine.allowed, other.allowed) and torch.equal(
                *torch.broadcast_tensors(mine.allowed, other.allowed)
            ):
                return
            text = f"the masks differ: the left masks {mine.text}, the right {other.text}"
            changed = other.exchanged(Operand(self._re.constant(mine.additive())))
            cause = Cause(text, setting="mask", advice="build the mask on the right as on the left")
            yield Candidate(cause, right=exchanged(self._right, other.meaning, changed))
            return
        for which, has in enumerate((mine, other)):
            if has is not None:
                side, lacks = SIDES[which], SIDES[1 - which]
                cause = Cause(
                    f"the {side} masks {has.text}; the {lacks} has no mask",
                    setting="mask",
                    advice=f"give the {lacks} the mask",
                )
                yield self._changed(cause, which, has.meaning, has.without())

    def _mask(self, which: int) -> _Mask | None:
        """The mask of an attention: an argument of its own, or what is added to the scores."""
        try:
            value = self.values(which)
        except NotRecomputable:
            return None
        # The last that is added to the scores: masks are built of masks.
        for meaning in reversed(self.meanings(which)):
            arguments = meaning.arguments
            own = arguments.get("attn_mask")
            if isinstance(own, Operand):
                return _Mask(meaning, "attn_mask", value(own))
            if arguments.get("is_causal") is True and isinstance(arguments.get("query"), Operand):
                query, key = arguments["query"], arguments["key"]
                assert isinstance(query, Operand)
                assert isinstance(key, Operand)
                rows, columns = value(query).shape[-2], value(key).shape[-2]
                return _Mask(meaning, "is_causal", torch.ones(rows, columns, dtype=torch.bool).tril())
            if meaning.operation in ("add", "masked_fill", "where"):
                for name in ("other", "input", "mask", "condition"):
                    operand = arguments.get(name)
                    if isinstance(operand, Operand):
                        tensor = value(operand)
                        if meaning.operation == "add" and tensor.is_floating_point() and bool((tensor < HIDDEN).any()):
                            return _Mask(meaning, name, tensor)
                        if meaning.operation == "masked_fill" and name == "mask" and tensor.dtype == torch.bool:
                            return _Mask(meaning, name, ~tensor)
        return None


@dataclass(frozen=True, slots=True)
class _Mask:
    """The mask of an attention, and the call that applies it."""

    meaning: Meaning
    argument: str
    tensor: Tensor

    @property
    def allowed(self) -> Tensor:
        return self.tensor if self.tensor.dtype == torch.bool else self.tensor > HIDDEN

    def additive(self) -> Tensor:
        return torch.zeros(self.allowed.shape, dtype=torch.float64).masked_fill(~self.allowed, -math.inf)

    @property
    def text(self) -> str:
        """Places that a mask leaves open: `12 of 100 places, a window of 4`."""
        open_ = f"{int((~self.allowed).sum())} of {self.allowed.numel()} places"
        if self.allowed.dim() < 2:  # of labels, not of scores
            return open_
        allowed = self.allowed.reshape(-1, *self.allowed.shape[-2:])[0]
        rows, columns = allowed.shape
        distance = torch.arange(rows)[:, None] - torch.arange(columns)[None] + (columns - rows)
        for kind, shape in (("causal", distance >= 0), ("", None)):
            if shape is not None and torch.equal(allowed, shape):
                return f"{open_} ({kind})"
        widths = distance[allowed]
        if (
            widths.numel()
            and int(widths.min()) == 0
            and torch.equal(allowed, (distance >= 0) & (distance <= int(widths.max())))
        ):
            return f"{open_} (causal, a sliding window of {int(widths.max()) + 1})"
        return open_

    def without(self) -> Meaning:
        """The call without its mask."""
        if self.argument == "is_causal":
            return replace(self.meaning, arguments={**self.meaning.arguments, "is_causal": False})
        if self.argument == "attn_mask":
            return replace(self.meaning, arguments={**self.meaning.arguments, "attn_mask": None})
        return replace(
            self.meaning,
            arguments={**self.meaning.arguments, self.argument: 0.0 if self.meaning.operation == "add" else False},
        )

    def exchanged(self, mask: Operand) -> Meaning:
        """The call with another mask, additive."""
        arguments = dict(self.meaning.arguments)
        if self.argument in ("attn_mask", "is_causal"):
            return replace(self.meaning, arguments={**arguments, "attn_mask": mask, "is_causal": False})
        if self.meaning.operation == "add":
            return replace(self.meaning, arguments={**arguments, self.argument: mask})
        source = arguments["input"]
        return replace(self.meaning, operation="add", arguments={"input": source, "other": mask, "alpha": 1})


def _without_hidden(f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Two results of which elements that both hide from a softmax count as equal: one hides with -inf, the other with -1e9."""
    if f.shape != g.shape or f.is_complex() or g.is_complex():
        return f, g
    hidden = (f <= HIDDEN) & (g <= HIDDEN)
    return (f, torch.where(hidden, f, g)) if bool(hidden.any()) and bool(((f != g) & ~hidden).any()) else (f, g)


def _broadcastable(one: Tensor, two: Tensor) -> bool:
    try:
        torch.broadcast_shapes(one.shape, two.shape)
    except RuntimeError:
        return False
    return True


def _partners(ours: Sequence[Meaning], theirs: Sequence[Meaning]) -> Iterator[tuple[Meaning, Meaning]]:
    """Meanings of both sides that may be each other's: of one operation in order, or the only ones left."""
    free, rest = list(theirs), list(ours)
    # An epsilon that is added is no residual that is added.
    for alike in (
        _signature,
        lambda meaning: meaning.operation,
    ):
        for one in tuple(rest):
            other = next((two for two in free if alike(two) == alike(one)), None)
            if other is not None:
                rest.remove(one)
                free.remove(other)
                yield one, other
    computing = (
        [item for item in rest if not traits_of(item).moves],
        [item for item in free if not traits_of(item).moves],
    )
    if len(computing[0]) == len(computing[1]) == 1:
        yield computing[0][0], computing[1][0]


def _signature(meaning: Meaning) -> object:
    return meaning.operation, tuple(path for path, _ in meaning.operands())


def _as_other(meaning: Meaning, other: Meaning) -> Meaning | None:
    """The operation of `other` on the operands of `meaning`."""
    ours = dict(meaning.operands())
    arguments: dict[str, Argument] = dict(other.arguments)
    for path, _ in other.operands():
        if path not in ours or "." in path:
            return None
        arguments[path] = ours[path]
    return replace(meaning, operation=other.operation, arguments=arguments)


def _left_out(meanings: Sequence[Meaning], place: int) -> Iterator[list[Meaning]]:
    """The calls without one of them, which hands one of its operands on: of several results each that of its own place in a list;
    nothing where there is no such list.
    """
    meaning = meanings[place]
    kept = [item for number, item in enumerate(meanings) if number != place]
    ways: list[dict[int, Operand]] = [dict.fromkeys(meaning.results, operand) for _, operand in meaning.operands()]
    if len(meaning.results) > 1:
        lists = [value for value in meaning.arguments.values() if isinstance(value, tuple)]
        ways = [
            {number: value[key] for number, key in meaning.results.items() if isinstance(key, int)}  # type: ignore[misc]
            for value in lists
            if len(value) == len(meaning.results) and all(isinstance(item, Operand) for item in value)
        ]
    for way in ways:
        changed = kept
        for result, substitute in way.items():
            changed = with_substitute(changed, result, substitute)
        last = [
            Meaning("torch.Tensor.clone", {"0": substitute}, {result: 0}, "clone")
            for result, substitute in way.items()
            if not any(result == operand.tensor for item in kept for _, operand in item.operands())
        ]
        yield [*changed, *last]


def _number(value: Argument) -> float | None:
    """An argument that is a finite number; None of any other."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None  # type: ignore[arg-type]
