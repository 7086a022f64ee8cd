"""Two sides recomputed: what each call got wrong by itself, what the two mean differently, and which change makes them the same.

    Y_L - Y_R  =  [Y_L - f(X_L)]  +  [f(X_L) - g(X_L)]  +  [g(X_L) - g(X_R)]  +  [g(X_R) - Y_R]
                  left's rounding     meaning              inherited             right's rounding

f and g are the calls between two values and the compared values before them, computed in float64. Only the two roundings have a
bound (`evaluation.audit`). Meaning is exact: no recorded result is in it, so it is seen however coarse the run was.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..model.pairs import Layout
from ..model.records import Call
from ..model.sites import Phase
from ..model.tensors import UNITS
from .audits import Audit, audit
from .candidates import Cause
from .catalog import OPERATIONS
from .causes import HIDDEN, cause_of
from .evaluation import DTYPES, SINGLE, Gradients, NotRecomputable, Values, run
from .leaves import Trend, blocks, is_part, relation, trend
from .meanings import FRAMEWORKS_OWN, Argument, Meaning, Operand, different_arguments, told
from .optimizers import is_updated, of_one_parameter
from .rounding import RunningError
from .sides import Bound, Side, Slice, inputs_of, name_of, outputs_of
from .traits import traits_of
from .workers import both

Tensor = torch.Tensor

_EXACT = 64 * 2.0**-29
"""Bounds are for float32; float64 is finer by 2⁻²⁹. 64: the two sides may differ in the order of their float64 sums."""
_UNBOUNDED = 1e-4
"""Relative difference in meaning that is passed over where the running error bound is infinite."""
_LEAF_UNITS = 4.0
"""Units by which leaves may differ before they count as different; see `judge.values`."""
_WOBBLE = 4.0
"""Multiple of the effect of rounded constants that is no difference in meaning: their roundings add up differently."""
_ADDED = 16.0
"""Multiple of the rounding of a sum of gradients. MindSpore adds some up in another order than they are sent: 8 units were seen."""
_INFINITE = 3.4028e38
"""Numbers from here on are what float32 has for infinity: masks are filled with either."""
_GONE = 8.0
"""Units of the result below which a difference that came in is as small as rounding: gone."""
_SUMMANDS = 8
"""Parts of a gradient up to which all selections are tried: 255 sums."""
_CUTS = 64
"""Values at most that are passed over to find those that two slices both begin with."""
_FACTOR_UNITS = 64.0
"""Units by which gradients may differ that are a multiple of each other: those of many layers were rounded in other places."""
_FILL = 1e3
"""Least size of the value that a mask fills in, beside the other elements: -1e4 in 16 bits, -1e9, -3.4e38."""
_CONVERTED = 0.4
"""Share of the tolerance, in the root mean square, that the rounding of converted weights takes: it is for each element."""
_MOST = 0.5
"""A part of a gradient that one side alone has is missing on the other if the two differ by at least half of it."""


_RECENT_BYTES = 128 << 20

_LARGE = 1 << 18
"""Elements from which on the shapes of a changed calculation are computed before its values."""
_GROWTH = 4
"""Times the largest recorded value that a value of a changed calculation may have."""


class _Recent:
    """Tensors by number, the last ones up to a number of bytes."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, Tensor] = OrderedDict()
        self._bytes = 0

    def keep(self, number: int, tensor: Tensor) -> None:
        self._bytes += tensor.nbytes - (self._held[number].nbytes if number in self._held else 0)
        self._held[number] = tensor
        while self._bytes > _RECENT_BYTES and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes

    def get(self, number: int) -> Tensor | None:
        return self._held.get(number)


class Replayed:
    """Results that were replayed with two choices of some values, the last ones up to a number of bytes: the effect of a mistake is
    asked for at one value after the other.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[tuple[object, ...], tuple[Tensor, Tensor]]] = OrderedDict()
        self._bytes = 0
        self._choices: dict[int, object] = {}
        self._dependents: Callable[[int], Collection[int]] = lambda number: ()

    def begin(self, changed: Mapping[int, tuple[Tensor, Tensor]], dependents: Callable[[int], Collection[int]]) -> None:
        """Ask from now on for results with these choices; `dependents` are the tensors that a tensor changes."""
        self._choices = {number: (number, *map(_mark, changed[number])) for number in sorted(changed)}
        self._dependents = dependents

    def get(self, number: int) -> tuple[Tensor, Tensor] | None:
        """A result with each choice; None if it is not held, or was made with others."""
        found = self._held.get(number)
        return found[1] if found is not None and found[0] == self._choices_before(number) else None

    def keep(self, made: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        """Hold results that were made with the choices of `begin`, in the order in which they were made."""
        for number, results in made.items():
            self._drop(number)
            self._held[number] = self._choices_before(number), results
            self._bytes += sum(result.nbytes for result in results)
        while self._bytes > _RECENT_BYTES and self._held:
            self._drop(next(iter(self._held)))

    def _drop(self, number: int) -> None:
        if number in self._held:
            self._bytes -= sum(result.nbytes for result in self._held.pop(number)[1])

    def _choices_before(self, number: int) -> tuple[object, ...]:
        return tuple(choice for changed, choice in self._choices.items() if number in self._dependents(changed))


def _mark(value: Tensor) -> complex:
    """A number by which a tensor is known again; the order of its elements is in it. NaN equals nothing."""
    flat = value.detach().reshape(-1).to(torch.complex128 if value.is_complex() else torch.float64)
    return complex(flat @ torch.linspace(1, 2, flat.numel(), dtype=torch.float64).to(flat.dtype))


@dataclass(frozen=True, slots=True)
class Difference:
    """Meaning term of one pair of values."""

    significant: bool
    relative: float
    """Root mean square of f(X_L) - g(X_L) over that of f(X_L)."""
    units: float
    """The same, in units of the rounding of the recorded results."""
    index: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Shapes of two results that do not have the same number of elements."""


class Recomputation:
    """Both sides of one step, and what was recomputed of them so far."""

    def __init__(self, sides: tuple[Side, Side], values: tuple[Values, Values]) -> None:
        self.sides = sides
        self.values = values
        self._audits: dict[tuple[int, int], Audit] = {}
        self._computed: tuple[_Recent, _Recent] = (_Recent(), _Recent())
        """Results that the last audits computed, of each side."""
        self.replayed = Replayed(), Replayed()
        self._constants: dict[int, Tensor] = {}
        """Values that were made up to try a cause, by negative numbers."""
        for side in sides:
            side.index_gradients()

    # --- own rounding ---------------------------------------------------------------------------------------------------

    def audit_both(self, left: Iterable[Call], right: Iterable[Call]) -> None:
        """Audit calls of both sides at once; `audit` has the scores afterwards."""
        calls = left, right
        todo = [[call for call in calls[which] if (which, call.id) not in self._audits] for which in (0, 1)]
        if all(todo):
            both(lambda: [self.audit(0, call) for call in todo[0]], lambda: [self.audit(1, call) for call in todo[1]])

    def audit(self, which: int, call: Call, *, whole: bool = False) -> Audit:
        """Scores of the recorded results and gradients of one call, against its own recorded operands. `whole`: with the limits of
        its whole bound, where a smaller one would do.
        """
        key = which, call.id
        if key not in self._audits or (whole and not self._audits[key].whole):
            side = self.sides[which]
            meaning = side.meaning(call)
            if meaning is None:
                why = f"{name_of(call)} is not among the operations that can be recomputed"
                self._audits[key] = Audit({}, {}, why, why)
            elif traits_of(meaning).random:
                self._audits[key] = Audit({}, {}, "", "")
            else:
                self._audits[key] = audit(
                    meaning,
                    self.values[which],
                    self._gradients(which, call),
                    framework=side.framework,
                    operand_unit=side.operand_unit(call, meaning),
                    keep=self._computed[which].keep,
                    whole=whole,
                )
        return self._audits[key]

    def computed(self, which: int, call: Call, number: int) -> tuple[Tensor, Tensor] | None:
        """A result of a call as its recorded operands give it in float64, and as it was recorded; None if that is not known."""
        meaning = self.sides[which].meaning(call)
        if meaning is None or number not in meaning.results:
            return None
        try:
            with torch.no_grad():
                found = run([meaning], self.values[which])[number]
            recorded = self.values[which](number)
        except (NotRecomputable, RuntimeError, KeyError):
            return None
        return (found.reshape(recorded.shape), recorded) if found.numel() == recorded.numel() else None

    def ignored_setting(self, which: int, call: Call, number: int) -> tuple[str, float]:
        """The setting or operand without which a call gives a recorded result or gradient that it does not give with it, and the
        ratio of its error to its rounding then; an empty text if there is none.
        """
        side = self.sides[which]
        meaning = side.meaning(call)
        signature = OPERATIONS.get(meaning.operation) if meaning is not None else None
        for parameter in signature.parameters if signature is not None else ():
            assert meaning is not None
            value = meaning.arguments.get(parameter.name, parameter.default)
            if parameter.required or value == parameter.default:
                continue
            changed = replace(meaning, arguments={**meaning.arguments, parameter.name: parameter.default})
            try:
                found = audit(changed, self.values[which], self._gradients(which, call), framework=side.framework)
            except RuntimeError:  # shapes that do not fit the default
                continue
            score = found.forward.get(number) or found.backward.get(number)
            if score is not None and score.ratio <= 1:
                given = parameter.name if isinstance(value, Operand) else f"{parameter.name}={told(value)}"
                return given, score.ratio
        return "", 0.0

    def _gradients(self, which: int, call: Call) -> Gradients:
        taken, made = inputs_of(call), outputs_of(call)
        outputs: dict[int, int] = {}
        inputs: dict[int, list[int]] = {}
        turns = {gradient.count for gradient in call.gradients}
        last = min(turns, default=0)
        for gradient in call.gradients:
            if gradient.count != last:
                continue
            if gradient.role == "output":
                value = made.get(gradient.slot, made.get("0") if not gradient.slot else None)
                if value is not None:
                    outputs[value] = gradient.tensor
            elif gradient.slot in taken:
                inputs.setdefault(taken[gradient.slot], []).append(gradient.tensor)
        for value in made.values() if inputs else ():
            # A hook on a tensor that is written to afterwards is one on the new value: the only taker knows the old one's gradient.
            if value not in outputs:
                parts = self.sides[which].contributions(value)
                added = self._gradient_of_sum(which, value) if not parts else None
                if added is not None:
                    outputs[value] = added
                elif len(parts) == 1:
                    outputs[value] = parts[0][1]
        inner = frozenset(value for value in outputs if not self.sides[which].takers(value))
        return Gradients(outputs, inputs, inner if len(inner) < len(outputs) else ())

    def _gradient_of_sum(self, which: int, value: int) -> int | None:
        """The gradient of the sum that was written over a tensor, which is that of the tensor, too; None if it went elsewhere."""
        side = self.sides[which]
        takers = side.takers(value)
        meaning = side.meaning(takers[0]) if len(takers) == 1 else None
        if meaning is None or meaning.operation != "add" or meaning.arguments.get("alpha", 1) != 1:
            return None
        shape = side.tensor(value).spec.shape
        made = [number for number in outputs_of(takers[0]).values() if side.tensor(number).spec.shape == shape]
        return next((found for number in made if (found := side.gradient(number)) is not None), None)

    # --- meaning --------------------------------------------------------------------------------------------------------

    def same_meaning(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> bool:
        """True if two slices are one call each, of one operation, with equal settings and operands that belong together."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return False
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        if one is None or two is None or one.operation != two.operation or one.arguments.keys() != two.arguments.keys():
            return False
        ours, theirs = dict(one.operands()), dict(two.operands())
        if ours.keys() != theirs.keys() or different_arguments(one, two):
            return False
        for path, operand in theirs.items():
            partner = bound.get(operand.tensor)
            if partner is None or partner.left != ours[path].tensor or partner.layout != Layout():
                return False
        return one.results.get(left.tensor) == two.results.get(right.tensor)

    def difference(self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> Difference:
        """f(X_L) - g(X_L). Raises NotRecomputable."""
        f, g, tolerance = self.both(left, right, bound, layout)
        return _difference(f, g, tolerance, self._unit(left, right))

    def from_same_values(
        self,
        left: Slice,
        right: Slice,
        bound: Mapping[int, Bound],
        known: tuple[Collection[int], Collection[int]],
        passable: Callable[[int, int], bool],
    ) -> tuple[Slice, Slice]:
        """Two slices made longer until both begin with the same compared values, so that neither recomputes what the other takes as
        it was recorded, with its rounding: keys out of a cache here, those of all tokens there. As they were, if there is no such
        beginning, or a value that is not `passable(which, number)` lies before it, or something unseen made the result of one side
        (a compiled helper): its inputs were rounded in that run, and the other's would not be.
        """
        if any(
            not part.calls and self.sides[which].maker(part.tensor) is None for which, part in enumerate((left, right))
        ):
            return left, right
        parts, stops = [left, right], [set(known[0]), set(known[1])]
        for _ in range(_CUTS):
            dropped = self._later_values(parts[0], parts[1], bound)
            if not dropped:
                return parts[0], parts[1]
            if not all(passable(which, number) for which, number in dropped):
                break
            for which, number in dropped:
                stops[which].discard(number)
            parts = [self.sides[which].slice(part.tensor, stops[which]) for which, part in enumerate((left, right))]
            if any(part.failure for part in parts):
                break
        return left, right

    def _later_values(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> list[tuple[int, int]]:
        """Values, by side, with which two slices begin although the other recomputes them, so that the rounding of one side alone
        is in its result: those made of what the other begins with, or else the last one that the other does not begin with.
        """
        parts = left, right
        mine: dict[int, list[int]] = {number: [] for number in left.edge if self.sides[0].maker(number) is not None}
        for number, item in bound.items():
            if item.left in left.edge:
                mine.setdefault(item.left, []).append(number)
        theirs = {number: [bound[number].left] for number in right.edge if number in bound}
        edges = mine, theirs
        begun = (
            {bound[number].left for number in right.edge if number in bound},
            {number for number, item in bound.items() if item.left in left.edge},
        )
        for which in (0, 1):  # what is only moved between is the same beginning; what is written down has no rounding
            for number in [*edges[which]]:
                if self._is_constant(which, number):
                    del edges[which][number]
                    continue
                sources = set() if number in begun[which] else self._moved_from(which, number, begun[which])
                if sources:
                    del edges[which][number]
                for other in [other for other, partners in edges[1 - which].items() if sources & set(partners)]:
                    del edges[1 - which][other]
        lone = [
            [number for number, others in edges[which].items() if not set(others) & set(parts[1 - which].edge)]
            for which in (0, 1)
        ]
        found: dict[tuple[int, int], None] = {}
        for which in (0, 1):
            others = {item for number in lone[which] for item in edges[which][number]}
            for number in edges[1 - which] if others else ():
                if others & self.sides[1 - which].ancestors(number):
                    found[1 - which, number] = None
                    found.update(((which, item), None) for item in edges[1 - which][number])
        if found:
            return list(found)
        made = [
            (maker.order, which, number)
            for which in (0, 1)
            for number in lone[which]
            if (maker := self.sides[which].maker(number)) is not None
        ]
        return [max(made)[1:]] if made else []

    def _is_constant(self, which: int, number: int) -> bool:
        """True if no rounding is in a value: a call made it of no other tensor (zeros, positions), or it is made of integers and
        answers alone.
        """
        side, waiting, seen = self.sides[which], [number], {number}
        while waiting:
            here = waiting.pop()
            call = side.maker(here)
            meaning = None if call is None else side.meaning(call)
            operands = set() if meaning is None else {operand.tensor for _, operand in meaning.operands()}
            made = meaning is not None and not operands and not traits_of(meaning).random
            if self.values[which].spec(here).dtype in UNITS and not (made and here == number):
                return False
            waiting += operands - seen
            seen |= operands
        return True

    def _moved_from(self, which: int, number: int, begun: Collection[int]) -> set[int]:
        """Values among `begun` that one is moved from, or an answer about; none if a rounding lies between."""
        side, waiting, seen = self.sides[which], [number], {number}
        while waiting:
            here = waiting.pop()
            if here in begun:
                continue
            call = side.maker(here)
            meaning = None if call is None else side.meaning(call)
            if meaning is None or (self.values[which].spec(here).dtype in UNITS and not traits_of(meaning).moves):
                return set()
            fresh = {operand.tensor for _, operand in meaning.operands()} - seen
            seen |= fresh
            waiting += fresh
        return seen & set(begun)

    def choices(
        self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout
    ) -> tuple[Tensor, Tensor] | None:
        """Results of both sides from the left's inputs, laid out as the right's; of leaves, their values. None if not known."""
        try:
            f, _ = self._compute(0, left, self.values[0])
            g, _ = self._compute(1, right, self.from_left(bound) if right.calls else self.values[1])
            return laid_back(f, layout, g.shape), g
        except (NotRecomputable, RuntimeError):
            return None

    def is_unavoidable(self, left: Slice, right: Slice) -> bool:
        """True if two calls differ in nothing but what no argument of their frameworks can change."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return False
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        if one is None or two is None or one.operation != two.operation or left.calls[0].site.phase is not Phase.UPDATE:
            return False
        alike = is_updated(one, left.tensor) == is_updated(two, right.tensor)
        across = self.sides[0].framework != self.sides[1].framework
        return across and alike and different_arguments(one, two).keys() <= FRAMEWORKS_OWN

    def inherited(self, left: Slice, right: Slice, bound: Mapping[int, Bound], same: bool) -> float | None:
        """Root mean square of g(X_L) - g(X_R) over that of the left result: 0 if the inputs are equal, None if not known.

        `same`: both mean the same, so that g(X_L) is what the audit of the left call computed.
        """
        try:
            if all(self._is_equal(number, bound[number]) for number in right.edge if number in bound):
                return 0.0
            one, two = (self._computed[which].get(part.tensor) for which, part in enumerate((left, right)))
            if not same or one is None or two is None:
                one = self._result(1, right, self.from_left(bound))
                two = self._result(1, right, self.values[1])
            base = self.values[0](left.tensor)
        except (NotRecomputable, RuntimeError):
            return None
        if one.shape != two.shape or one.numel() != base.numel() or one.is_complex() or not one.is_floating_point():
            return None
        apart, size = (_finite_norm(value) for value in (one - two, base))
        return apart / size if size else None

    def _is_equal(self, number: int, bound: Bound) -> bool:
        """True if a tensor of the right holds what its counterpart holds, by their fingerprints where these tell."""
        one, two = self.sides[0].tensor(bound.left), self.sides[1].tensor(number)
        if bound.layout == Layout() and one.spec == two.spec and one.fingerprint and two.fingerprint:
            return one.fingerprint == two.fingerprint
        return bool(torch.equal(self.from_left({number: bound})(number), self.values[1](number)))

    def is_visible(self, inherited: float | None, right: Slice, bound: Mapping[int, Bound]) -> bool:
        """True if what two slices inherited (`inherited`) is more than rounding. Raises NotRecomputable."""
        coarse = UNITS.get(self.values[1].spec(right.tensor).dtype, SINGLE) / SINGLE
        # A bound is the worst case: what is more than the rounding of storing the result is there even within it.
        if inherited is not None and inherited > _GONE * coarse * SINGLE:
            return True
        one, error = self._compute(1, right, self.from_left(bound))
        two, other = self._compute(1, right, self.values[1])
        limit = (error + other) * max(coarse, 1.0) + 2 * coarse * SINGLE * two.abs()
        return not bool(((one - two).abs() <= limit).logical_or(one == two).all())

    def summands(self, which: int, gradient: int, parts: Sequence[int]) -> tuple[int, ...] | None:
        """Parts whose sum is a recorded gradient, up to the rounding of adding them; None if there are none.

        All of them, if that will do; else as many as possible: a part may belong to another tensor with the same bits.
        """
        values = self.values[which]
        try:
            total = values(gradient)
            pieces = [values(number).reshape(total.shape) for number in parts]
        except (NotRecomputable, RuntimeError):
            return None
        unit = UNITS.get(values.spec(gradient).dtype, SINGLE)
        chosen: Iterator[tuple[int, ...]] = (tuple(range(len(pieces))) for _ in range(1))
        if len(pieces) <= _SUMMANDS:
            sizes = range(len(pieces), 0, -1)
            chosen = itertools.chain.from_iterable(itertools.combinations(range(len(pieces)), size) for size in sizes)
        for places in chosen:
            if _is_sum(total, [pieces[place] for place in places], unit):
                return tuple(parts[place] for place in places)
        return None

    def apart(self, gradients: tuple[int, int], layout: Layout, parts: Sequence[Sequence[int]]) -> float:
        """Distance of two gradients, relative to the parts that each was added up of: these may cancel."""
        try:
            one = self.values[0](gradients[0])
            distance = one - laid_out(self.values[1](gradients[1]), layout, one.shape)
            sizes = [self.values[which](number).norm() for which in (0, 1) for number in parts[which]]
        except (NotRecomputable, RuntimeError):
            return 0.0
        largest = max(map(float, sizes), default=0.0)
        return float(distance.norm()) / largest if largest else 0.0

    def rms(self, which: int, number: int) -> float:
        """Root mean square of a value; 0 where it was not kept."""
        try:
            value = self.values[which](number)
        except NotRecomputable:
            return 0.0
        return float(value.norm()) / math.sqrt(max(value.numel(), 1))

    def laid_alike(self, numbers: tuple[int, int], layout: Layout) -> tuple[Tensor, Tensor]:
        """Two recorded tensors, the right one as it lies on the left. Raises NotRecomputable, RuntimeError for other shapes."""
        left = self.values[0](numbers[0])
        right = laid_out(self.values[1](numbers[1]), layout, left.shape)
        return left, right if right.shape == left.shape else right.reshape(left.shape)

    def exact(self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> tuple[Tensor, Tensor]:
        """f(X_L) and g(X_L), laid out alike. Raises NotRecomputable, RuntimeError for other shapes."""
        f = self._result(0, left, self.values[0])
        _, g = self.values_of_both(left, right, bound, layout, (None, None), f)
        return f, g.reshape(f.shape)

    def lost(self, which: int, part: Slice) -> float:
        """Relative distance of a recorded value from what its slice gives in float64, of the values recorded with it. Raises
        NotRecomputable, RuntimeError for another shape.
        """
        got = self.values[which](part.tensor)
        want = self._result(which, part, self.values[which]).reshape(got.shape)
        return _relative_difference(want, got)

    def distance(self, gradients: tuple[int, int], layout: Layout) -> tuple[float, float]:
        """Root mean squares of the difference of two gradients, and of the larger one; zeros where values were not kept."""
        try:
            one = self.values[0](gradients[0])
            two = laid_out(self.values[1](gradients[1]), layout, one.shape)
        except (NotRecomputable, RuntimeError):
            return 0.0, 0.0
        many = math.sqrt(max(one.numel(), 1))
        return float((one - two).norm()) / many, max(float(one.norm()), float(two.norm())) / many

    def factor(self, gradients: tuple[int, int], layout: Layout) -> float | None:
        """Number that the left of two gradients must be multiplied by to give the right one, but for rounding; None if there is
        none, or both are zero.
        """
        try:
            one = self.values[0](gradients[0])
            two = laid_out(self.values[1](gradients[1]), layout, one.shape)
        except (NotRecomputable, RuntimeError):
            return None
        energy = float((one * one).sum())
        if one.shape != two.shape or not energy or not math.isfinite(energy):
            return None
        factor = float((one * two).sum()) / energy
        unit = max(UNITS.get(self.values[which].spec(number).dtype, 0.0) for which, number in enumerate(gradients))
        size = two.abs() + two.pow(2).mean().sqrt()  # elements that are sums may cancel
        return factor if bool(((one * factor - two).abs() <= _FACTOR_UNITS * unit * size).all()) else None

    def is_the_difference(self, which: int, left: int, right: int, layout: Layout, parts: Sequence[int]) -> bool | None:
        """True if two gradients differ by parts that one side alone has, and not only in how these were added up.

        None where the values to tell it by were not kept.
        """
        try:
            one = self.values[0](left)
            apart = one - laid_out(self.values[1](right), layout, one.shape)
            alone = torch.zeros_like(self.values[which]((left, right)[which]))
            for number in parts:
                alone = alone + self.values[which](number).reshape(alone.shape)
        except (NotRecomputable, RuntimeError):
            return None
        return float(apart.norm()) >= _MOST * float(alone.norm()) > 0

    def _unit(self, left: Slice, right: Slice) -> float:
        return max(
            UNITS.get(self.values[0].spec(left.tensor).dtype, 0.0),
            UNITS.get(self.values[1].spec(right.tensor).dtype, 0.0),
            SINGLE,
        )

    def is_same_function(
        self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout, *, converted: bool
    ) -> bool:
        """True if two slices compute the same of the values that they begin with; `converted` if their weights were computed of
        each other, and rounded, so that the results have the noise of that. Raises NotRecomputable.
        """
        if self._later_values(left, right, bound):
            return False
        f, g, tolerance = self.both(left, right, bound, layout, converted=converted)
        if f.shape != g.shape or _difference(f, g, tolerance, SINGLE).significant:
            return False
        apart = torch.where(f == g, 0.0, f - g)
        return not converted or float(apart.norm()) <= _CONVERTED * float(tolerance.norm())

    def both(
        self,
        left: Slice,
        right: Slice,
        bound: Mapping[int, Bound],
        layout: Layout,
        meanings: tuple[Sequence[Meaning] | None, Sequence[Meaning] | None] = (None, None),
        converted: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        bound = self._with_equal_bits(left, right, self._with_gradients(left, right, bound))
        f, error_f = self._compute(0, left, self.values[0], meanings[0])
        g, error_g = self._compute(1, right, self.from_left(bound), meanings[1])
        with contextlib.suppress(RuntimeError):  # another number of elements: told as that
            g, error_g = laid_out(g, layout, f.shape), laid_out(error_g, layout, f.shape)
        if f.shape != g.shape:
            return f, g, torch.zeros(())
        coarse = self._coarsening(left, right, bound)
        if coarse > 1:
            return f, g, (error_f + error_g) * coarse
        rounded = self._cast_entries(left, right, bound)
        if rounded:
            return f, g, torch.maximum(f.abs(), g.abs()) * rounded
        later = self._later_values(left, right, bound)
        if later:  # one side alone has their rounding in its result, also where that is cast to float32 at the end
            units = [UNITS.get(self.values[which].spec(number).dtype, 0.0) for which, number in later]
            return f, g, (error_f + error_g) * (max(self._unit(left, right), *units) / SINGLE)
        tolerance = (error_f + error_g) * _EXACT
        if converted or not self._structure(left, right, meanings):
            taken = {bound[number].left for number in right.edge if number in bound}
            one = self._wobble(0, left, self.values[0], f, meanings[0], taken, Layout(), converted)
            two = self._wobble(1, right, self.from_left(bound), g, meanings[1], bound, layout, converted)
            tolerance = tolerance + one + two
        return f, g, tolerance

    def values_of_both(
        self,
        left: Slice,
        right: Slice,
        bound: Mapping[int, Bound],
        layout: Layout,
        meanings: tuple[Sequence[Meaning] | None, Sequence[Meaning] | None],
        known: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """f(X_L) and g(X_L) as `both` gives them, without their tolerance, which costs several times as much. `known` is f(X_L) if
        the left's meanings are not changed. Raises NotRecomputable.
        """
        bound = self._with_equal_bits(left, right, self._with_gradients(left, right, bound))
        f = known if meanings[0] is None else self._result(0, left, self.values[0], meanings[0])
        g = self._result(1, right, self.from_left(bound), meanings[1])
        with contextlib.suppress(RuntimeError):
            g = laid_out(g, layout, f.shape)
        return f, g

    def is_oversized(self, which: int, part: Slice, changed: Sequence[Meaning]) -> bool:
        """True if changed calls give another number of elements than was recorded, or make something far larger on the way.

        Operands in another place may make a product of all positions with all others out of a small one. Shapes are computed
        alone; False where they cannot be, as with small values, which cost less than the shapes.
        """
        spec = self.values[which].spec
        numbers = {*part.edge, part.tensor, *(number for call in part.calls for number in outputs_of(call).values())}
        largest = max(math.prod(spec(number).shape) for number in numbers)
        if largest < _LARGE:
            return False

        def shaped(number: int) -> Tensor:
            if number < 0:
                return self._constants[number].to("meta")
            known = DTYPES.get(spec(number).dtype, torch.float64)
            return torch.empty(
                spec(number).shape, dtype=torch.float64 if known.is_floating_point else known, device="meta"
            )

        try:
            with torch.no_grad():
                made = run(changed, shaped, part.copies, spec)
        except NotRecomputable:
            return False  # a kernel that looks at values, or at none of the shapes
        if part.tensor in made and made[part.tensor].numel() != math.prod(spec(part.tensor).shape):
            return True
        return any(item.numel() > _GROWTH * largest for item in made.values())

    def _with_equal_bits(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> Mapping[int, Bound]:
        """The binding with the leaves that have the same bits on both sides: the weights of a layer are compared after the calls in
        it, and may not be a few units off until then.
        """
        mine = {
            (tensor.fingerprint, tensor.spec): number
            for number in left.edge
            if (tensor := self.sides[0].tensor(number))
        }
        found = dict(bound)
        for number in right.edge:
            tensor = self.sides[1].tensor(number)
            partner = mine.get((tensor.fingerprint, tensor.spec)) if tensor.fingerprint is not None else None
            if partner is not None:
                found.setdefault(number, Bound(partner, Layout()))
        return found

    def _with_gradients(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> Mapping[int, Bound]:
        """The binding with the gradients and the state of one parameter, which an optimizer has in the same place on both sides.

        Gradients that are noise (of a key's bias) have other statistics on each side, and were not paired.
        """
        if not left.calls or not right.calls:
            return bound
        one, two = self.sides[0].meaning(left.calls[-1]), self.sides[1].meaning(right.calls[-1])
        if one is None or two is None or one.operation != two.operation:
            return bound
        ours, theirs = of_one_parameter(one, left.tensor), of_one_parameter(two, right.tensor)
        if ours is one or theirs is two:
            return bound
        mine, found = dict(ours.operands()), dict(bound)
        for path, operand in theirs.operands():
            partner = mine.get(path)
            same = (
                partner is not None
                and self.values[0].spec(partner.tensor).shape == self.values[1].spec(operand.tensor).shape
            )
            if partner is not None and same:
                found.setdefault(operand.tensor, Bound(partner.tensor, Layout()))
        return found

    def _wobble(
        self,
        which: int,
        part: Slice,
        values: Callable[[int], Tensor],
        result: Tensor,
        changed: Sequence[Meaning] | None,
        compared: Collection[int],
        layout: Layout,
        converted: bool,
    ) -> Tensor:
        """Effect of holding constants in float32, and of leaves that were not compared being a few units off.

        Two ways to write one function hold different constants: a table of sines here, its formula there; √(2/π) or 0.7978845608.
        """
        meanings = [_held_in_single(item) for item in (changed if changed is not None else self.meanings(which, part))]
        meanings = [of_one_parameter(meaning, part.tensor) for meaning in meanings]
        generator = torch.Generator().manual_seed(0)

        def moved(number: int) -> Tensor:
            value = values(number)
            if number < 0 or number in compared or not value.is_floating_point():
                return value
            if self._is_constant(which, number) or self._moved_from(which, number, compared):
                return value
            unit = UNITS.get(self.values[which].spec(number).dtype, 0.0)
            units = 1.0 if converted and unit > SINGLE else _LEAF_UNITS  # computed in float32, and rounded once
            return value * (
                1 + units * unit * (2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1)
            )

        with torch.no_grad():
            made = run(meanings, moved, part.copies, self.values[which].spec, {part.tensor})
            other = made[part.tensor] if part.tensor in made else moved(part.tensor)
        apart = (laid_out(other.double(), layout, result.shape) - result).abs().nan_to_num(0.0, 0.0, 0.0)
        return _WOBBLE * (apart + _spread(apart, result))

    def _structure(self, left: Slice, right: Slice, meanings: tuple[Any, Any]) -> bool:
        """True if both sides are one call of one operation: then float64's own rounding is all that may lie between them."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return False
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        return one is not None and two is not None and one.operation == two.operation

    def _cast_entries(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> float:
        """Rounding of values of different element types that both sides do nothing with but cast and move them: the left's value
        need not be one that the right's type can hold. Zero where they compute something.
        """
        for which, part in enumerate((left, right)):
            kinds = [traits_of(meaning) for meaning in self.meanings(which, part)]
            if not kinds or not all(kind.casts or kind.moves for kind in kinds):
                return 0.0
        types = [
            {self.values[1].spec(number).dtype, self.values[0].spec(bound[number].left).dtype}
            for number in right.edge
            if number in bound
        ]
        return max((UNITS.get(dtype, 0.0) for pair in types if len(pair) > 1 for dtype in pair), default=0.0)

    def _coarsening(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> float:
        """Factor by which rounding is coarser than float32 where the two results have different precisions, and what they are made
        of has, too: each side has rounded its constants to its own. A norm that is written out in float32 in a bfloat16 run
        is made of the same values.
        """
        taken = [
            (self.sides[0].dtype_before_casts(bound[number].left), self.sides[1].dtype_before_casts(number))
            for number in right.edge
            if number in bound
        ]
        # Complex numbers of two f32 have the precision of f32.
        if taken and all(one == two or (one in UNITS and UNITS[one] == UNITS.get(two)) for one, two in taken):
            return 1.0
        one, two = (
            UNITS.get(self.values[which].spec(part.tensor).dtype, 0.0) for which, part in enumerate((left, right))
        )
        return max(1.0, max(one, two) / SINGLE) if one != two else 1.0

    def from_left(self, bound: Mapping[int, Bound]) -> Callable[[int], Tensor]:
        def value(number: int) -> Tensor:
            if number < 0:
                return self._constants[number]
            partner = bound.get(number)
            if partner is None:
                return self.values[1](number)
            shape = self.values[1].spec(number).shape
            return laid_back(self.values[0](partner.left), partner.layout, shape)

        return value

    def _compute(
        self, which: int, part: Slice, values: Callable[[int], Tensor], changed: Sequence[Meaning] | None = None
    ) -> tuple[Tensor, Tensor]:
        with RunningError(SINGLE, SINGLE) as errors:
            result = self._result(which, part, values, changed)
        error = errors.of(result) if result.is_floating_point() else None
        return result, torch.zeros(result.shape, dtype=torch.float64) if error is None else error

    def _result(
        self, which: int, part: Slice, values: Callable[[int], Tensor], changed: Sequence[Meaning] | None = None
    ) -> Tensor:
        meanings = changed if changed is not None else self.meanings(which, part)
        meanings = [of_one_parameter(meaning, part.tensor) for meaning in meanings]
        with torch.no_grad():
            made = run(meanings, values, part.copies, self.values[which].spec, {part.tensor})
            result = made[part.tensor] if part.tensor in made else values(part.tensor)
            recorded = self.values[which].spec(part.tensor)
            if changed is None and part.tensor in made and math.prod(recorded.shape) != result.numel():
                raise NotRecomputable(f"{name_of(part.calls[-1])} gives another shape in float64 than {recorded}")
            return result.double() if not result.is_complex() else result

    def constant(self, value: Tensor) -> int:
        """Number of a value that was made up to try a cause."""
        number = -1 - len(self._constants)
        self._constants[number] = value
        return number

    def causes(
        self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout, paths: bool = False
    ) -> Cause | None:
        """The change that makes the two sides compute the same; None if none of those tried does. See `cause_of`."""
        return cause_of(self, left, right, bound, layout, paths)

    def relation(self, left: int, right: int) -> str:
        """The relation of two different tensors that no recorded call made; empty if nothing is seen."""
        return relation(self, left, right)

    def trend(self, left: int, right: int, layout: Layout) -> Trend | None:
        """Property that the differences of two leaves share which are a few units apart; None if there is none."""
        try:
            one = self.values[0](left)
            two = laid_out(self.values[1](right), layout, one.shape)
        except (NotRecomputable, RuntimeError):
            return None
        return trend(one, two, max(UNITS.get(self.values[i].spec(n).dtype, 0.0) for i, n in enumerate((left, right))))

    def nearest_block(self, left: int, right: int) -> tuple[float, int]:
        """Part of the larger of two tensors that is nearest to the smaller (queries of one weight for queries, keys and values):
        distance, relative to a part of that size, and place. Infinite if it has no such parts.
        """
        try:
            one, two = self.values[0](left), self.values[1](right)
        except NotRecomputable:
            return math.inf, -1
        small, large = sorted((one, two), key=lambda value: value.numel())
        size = float(large.norm()) * math.sqrt(small.numel() / max(large.numel(), 1))
        found = [(float((part - small).norm()), place) for place, part in enumerate(blocks(one, two))]
        distance, place = min(found, default=(math.inf, -1))
        return (distance / size if size else distance), place

    def is_part(self, left: int, right: int) -> bool:
        """True if the smaller of two tensors that no recorded call made consists of rows of the larger, or of its columns."""
        return is_part(self, left, right)

    @staticmethod
    def hide_the_same(one: Tensor, two: Tensor) -> bool:
        """True if two tensors differ only where both have a value that hides an element from a softmax."""
        if one.shape != two.shape or one.is_complex() or two.is_complex():
            return False
        return bool(((one == two) | ((one <= HIDDEN) & (two <= HIDDEN))).all())

    @staticmethod
    def relative(f: Tensor, g: Tensor) -> float:
        """Root mean square of the difference of two tensors over that of the first."""
        return _relative_difference(f, g)

    @staticmethod
    def difference_between(f: Tensor, g: Tensor, tolerance: Tensor, unit: float) -> Difference:
        """Two computed results beside each other."""
        return _difference(f, g, tolerance, unit)

    def meanings(self, which: int, part: Slice) -> list[Meaning]:
        if part.failure:
            raise NotRecomputable(part.failure)
        found = [self.sides[which].meaning(call) for call in part.calls]
        if any(item is None for item in found):
            raise NotRecomputable("a call between has no known meaning")
        if any(traits_of(item).random for item in found if item is not None):
            raise NotRecomputable("it draws random numbers")
        return [self._without_rounding(which, item) for item in found if item is not None]

    def _without_rounding(self, which: int, meaning: Meaning) -> Meaning:
        """A cast between floating point types as the identity that it approximates: rounding is no part of what is meant."""
        source, dtype = meaning.arguments.get("input"), meaning.arguments.get("dtype")
        if meaning.operation != "cast" or not isinstance(source, Operand) or dtype not in UNITS:
            return meaning
        if self.values[which].spec(source.tensor).dtype not in UNITS:
            return meaning
        return replace(meaning, operation="identity", arguments={"input": source})


def _spread(apart: Tensor, result: Tensor) -> Tensor:
    """Root mean square of a change, for each element; of those that a mask has filled apart from the others."""
    rest = _unfilled(result)
    if rest is None:
        return apart.pow(2).mean().sqrt().expand_as(apart)
    own, others = (apart[places].pow(2).mean().sqrt() for places in (~rest, rest))
    return torch.where(rest, others, own)


def _unfilled(result: Tensor) -> Tensor | None:
    """Elements that no mask has filled with a value beside which they vanish; None if there is no such value."""
    size = result.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = float(size.max()) if size.numel() else 0.0
    rest = size <= largest / 2
    if not largest or not bool(rest.any()) or largest < _FILL * float(size[rest].pow(2).mean().sqrt()):
        return None
    return rest


def _is_sum(total: Tensor, parts: Sequence[Tensor], unit: float) -> bool:
    """True if a tensor is the sum of others: what may be missing is as small as their rounding."""
    summed, size = torch.zeros_like(total), torch.zeros_like(total.abs())  # complex numbers have a real size
    for part in parts:
        summed, size = summed + part, size + part.abs()
    allowed = _ADDED * unit * (len(parts) + 1) * (size + size.pow(2).mean().sqrt())
    return bool(((summed - total).abs() <= allowed + 1e-300).all())


def _finite_norm(value: Tensor) -> float:
    norm = float(value.double().norm())
    return norm if math.isfinite(norm) else float(value[value.isfinite()].double().norm())


def _held_in_single(meaning: Meaning) -> Meaning:
    """The same with its numbers rounded to float32."""
    return replace(meaning, arguments={name: _single(value) for name, value in meaning.arguments.items()})


def _single(value: Argument) -> Argument:
    if isinstance(value, float) and math.isfinite(value):
        return float(torch.tensor(value, dtype=torch.float32)) if abs(value) < 3e38 else value
    if isinstance(value, tuple):
        return tuple(map(_single, value))
    return value


def _relative_difference(f: Tensor, g: Tensor) -> float:
    if f.shape != g.shape:
        return math.inf
    rest = _unfilled(f)
    if rest is not None and bool((f != g)[rest].any()):  # beside what a mask has filled in nothing else counts
        f, g = f[rest], g[rest]
    apart, own = float((f - g).norm()), float(f.norm())
    if math.isfinite(apart) and math.isfinite(own) and own:
        return apart / own
    difference, size = (f - g).abs(), f.abs()
    finite = difference.isfinite() & size.isfinite()
    if not bool((f == g).logical_or(f.isnan() & g.isnan()).logical_or(finite).all()):
        return math.inf
    top = float(difference[finite].pow(2).sum().sqrt()) if bool(finite.any()) else 0.0
    base = float(size[finite].pow(2).sum().sqrt()) if bool(finite.any()) else 0.0
    return top / base if base else (math.inf if top else 0.0)


def _difference(f: Tensor, g: Tensor, tolerance: Tensor, unit: float) -> Difference:
    if f.shape != g.shape:
        return Difference(True, math.inf, math.inf, (), (tuple(f.shape), tuple(g.shape)))
    if not f.numel():
        return Difference(False, 0.0, 0.0)
    apart = (f - g).abs()
    same = (f == g) | (f.isnan() & g.isnan())
    same |= (f.sgn() == g.sgn()) & (f.abs() >= _INFINITE) & (g.abs() >= _INFINITE)
    # An infinite bound (the slope of a logarithm at 0) excuses nothing here: what float64 gives is compared as it is.
    tolerance = torch.where(tolerance.isfinite(), tolerance, _UNBOUNDED * f.abs())
    beyond = ~same & ~(apart <= tolerance)
    significant = bool(beyond.any())
    ratio = torch.where(same, 0.0, apart).nan_to_num(math.inf, math.inf)
    index = tuple(int(item) for item in np.unravel_index(int(ratio.argmax()), f.shape))
    relative = _relative_difference(f, g)
    return Difference(significant, relative, relative / unit if unit else math.inf, index)


def laid_out(tensor: Tensor, layout: Layout, shape: Sequence[int]) -> Tensor:
    """A tensor of the right side as it lies on the left one."""
    if layout.axes is not None:
        tensor = tensor.permute(layout.axes)
    return tensor.reshape(tuple(shape)) if layout.reshaped else tensor


def laid_back(tensor: Tensor, layout: Layout, shape: Sequence[int]) -> Tensor:
    """A tensor of the left side as the right one would have it, of that shape."""
    if layout.axes is None:
        return tensor.reshape(tuple(shape)) if layout.reshaped else tensor
    permuted = [shape[axis] for axis in layout.axes]
    back = sorted(range(len(layout.axes)), key=layout.axes.__getitem__)
    return tensor.reshape(permuted).permute(back)
