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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..model.pairs import Layout
from ..model.records import Call
from ..model.sites import Phase
from .evaluation import SINGLE, UNITS, Audit, Gradients, NotRecomputable, Values, audit, run
from .meanings import FRAMEWORKS_OWN, Argument, Meaning, Operand, different_arguments, told
from .optimizers import of_one_parameter
from .rounding import RunningError
from .sides import Side, Slice, inputs_of, name_of, outputs_of
from .traits import traits_of
from .variants import variants

Tensor = torch.Tensor

_EXACT = 64 * 2.0**-29
"""Bounds are for float32; float64 is finer by 2⁻²⁹. 64: the two sides may differ in the order of their float64 sums."""
_AGREE = 1e-3
"""Share of a difference that may be left when a cause explains it."""


_UNBOUNDED = 1e-4
"""Relative difference in meaning that is passed over where the running error bound is infinite."""
_LEAF_UNITS = 4.0
"""Units by which leaves may differ before they count as different; see `judge.recomputed`."""
_WOBBLE = 4.0
"""Multiple of the effect of rounded constants that is no difference in meaning: their roundings add up differently."""
_MASKED = -1e3
"""Upper limit of what is added to a score to mask it: -1e4, -65504, -1e9, -3.4e38, -inf."""
_ADDED = 16.0
"""Multiple of the rounding of a sum of gradients. MindSpore adds some up in another order than they are sent: 8 units were seen."""
_SUMMANDS = 8
"""Parts of a gradient up to which all selections are tried: 255 sums."""
_EXCHANGED = 8
"""Inputs up to which each two are tried in each other's place: an optimizer has hundreds."""
_MOST = 0.5
"""A part of a gradient that one side alone has is missing on the other if the two differ by at least half of it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A tensor of the right side and the left one that stands for it."""

    left: int
    layout: Layout


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


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two calls mean something else, proven by computing with the change."""

    text: str
    proof: str = ""
    setting: str = ""
    advice: str = ""


class Recomputation:
    """Both sides of one step, and what was recomputed of them so far."""

    def __init__(self, sides: tuple[Side, Side], values: tuple[Values, Values]) -> None:
        self.sides = sides
        self.values = values
        self._audits: dict[tuple[int, int], Audit] = {}
        self._constants: dict[int, Tensor] = {}
        """Values that were made up to try a cause, by negative numbers."""
        for side in sides:
            side.index_gradients()

    # --- own rounding ---------------------------------------------------------------------------------------------------

    def audit(self, which: int, call: Call) -> Audit:
        """Scores of the recorded results and gradients of one call, against its own recorded operands."""
        key = which, call.id
        if key not in self._audits:
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
                )
        return self._audits[key]

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
        return Gradients(outputs, inputs)

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
        f, g, tolerance = self._both(left, right, bound, layout)
        return _difference(f, g, tolerance, self._unit(left, right))

    def is_unavoidable(self, left: Slice, right: Slice) -> bool:
        """True if two calls differ in nothing but what no argument of their frameworks can change."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return False
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        if one is None or two is None or one.operation != two.operation or left.calls[0].site.phase is not Phase.UPDATE:
            return False
        return (
            self.sides[0].framework != self.sides[1].framework
            and different_arguments(one, two).keys() <= FRAMEWORKS_OWN
        )

    def inherited(self, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> bool:
        """True if the different inputs of two slices make more than rounding of a difference: g(X_L) - g(X_R)."""
        one, error = self._compute(1, right, self._from_left(bound))
        two, other = self._compute(1, right, self.values[1])
        coarse = UNITS.get(self.values[1].spec(right.tensor).dtype, SINGLE) / SINGLE
        limit = (error + other) * max(coarse, 1.0) + 2 * coarse * SINGLE * two.abs()
        return bool(~((one - two).abs() <= limit).logical_or(one == two).all())

    def summands(self, which: int, gradient: int, parts: Sequence[int]) -> tuple[int, ...] | None:
        """Those of the parts whose sum is a recorded gradient, up to the rounding of adding them; None if there are none.

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

    def _both(
        self,
        left: Slice,
        right: Slice,
        bound: Mapping[int, Bound],
        layout: Layout,
        meanings: tuple[Sequence[Meaning] | None, Sequence[Meaning] | None] = (None, None),
    ) -> tuple[Tensor, Tensor, Tensor]:
        f, error_f = self._compute(0, left, self.values[0], meanings[0])
        g, error_g = self._compute(1, right, self._from_left(bound), meanings[1])
        with contextlib.suppress(RuntimeError):  # another number of elements: told as that
            g, error_g = laid_out(g, layout, f.shape), laid_out(error_g, layout, f.shape)
        if f.shape != g.shape:
            return f, g, torch.zeros(())
        coarse = self._coarsening(left, right, bound)
        if coarse > 1:
            return f, g, (error_f + error_g) * coarse
        tolerance = (error_f + error_g) * _EXACT
        if not self._structure(left, right, meanings):
            taken = {bound[number].left for number in right.edge if number in bound}
            tolerance = tolerance + self._wobble(0, left, self.values[0], f, meanings[0], taken, Layout())
            tolerance = tolerance + self._wobble(1, right, self._from_left(bound), g, meanings[1], bound, layout)
        return f, g, tolerance

    def _wobble(
        self,
        which: int,
        part: Slice,
        values: Callable[[int], Tensor],
        result: Tensor,
        changed: Sequence[Meaning] | None,
        compared: Collection[int],
        layout: Layout,
    ) -> Tensor:
        """Effect of holding constants in float32, and of leaves that were not compared being a few units off.

        Two ways to write one function hold different constants: a table of sines here, its formula there; √(2/π) or 0.7978845608.
        """
        meanings = [_held_in_single(item) for item in (changed if changed is not None else self._meanings(which, part))]
        meanings = [of_one_parameter(meaning, part.tensor) for meaning in meanings]
        generator = torch.Generator().manual_seed(0)

        def moved(number: int) -> Tensor:
            value = values(number)
            if number < 0 or number in compared or not value.is_floating_point():
                return value
            unit = UNITS.get(self.values[which].spec(number).dtype, 0.0)
            return value * (
                1 + _LEAF_UNITS * unit * (2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1)
            )

        with torch.no_grad():
            made = run(meanings, moved, part.copies)
            other = made[part.tensor] if part.tensor in made else moved(part.tensor)
        apart = (laid_out(other.double(), layout, result.shape) - result).abs().nan_to_num(0.0, 0.0, 0.0)
        return _WOBBLE * (apart + apart.pow(2).mean().sqrt())

    def _structure(self, left: Slice, right: Slice, meanings: tuple[Any, Any]) -> bool:
        """True if both sides are one call of one operation: then float64's own rounding is all that may lie between them."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return False
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        return one is not None and two is not None and one.operation == two.operation

    def _coarsening(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> float:
        """Factor by which rounding is coarser than float32 where the two runs have different precisions."""
        pairs = [
            (left.tensor, right.tensor),
            *((item.left, number) for number, item in bound.items() if number in right.edge),
        ]
        units = [
            (UNITS.get(self.values[0].spec(one).dtype, 0.0), UNITS.get(self.values[1].spec(two).dtype, 0.0))
            for one, two in pairs
        ]
        return max([1.0, *(max(pair) / SINGLE for pair in units if pair[0] != pair[1])])

    def _from_left(self, bound: Mapping[int, Bound]) -> Callable[[int], Tensor]:
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
        meanings = changed if changed is not None else self._meanings(which, part)
        meanings = [of_one_parameter(meaning, part.tensor) for meaning in meanings]
        with torch.no_grad(), RunningError(SINGLE, SINGLE) as errors:
            made = run(meanings, values, part.copies)
            result = made[part.tensor] if part.tensor in made else values(part.tensor)
        result = result.double() if not result.is_complex() else result
        error = errors.of(result) if result.is_floating_point() else None
        return result, torch.zeros(result.shape, dtype=torch.float64) if error is None else error

    def _meanings(self, which: int, part: Slice) -> list[Meaning]:
        if part.failure:
            raise NotRecomputable(part.failure)
        found = [self.sides[which].meaning(call) for call in part.calls]
        if any(item is None for item in found):
            raise NotRecomputable("a call between has no known meaning")
        if any(traits_of(item).random for item in found if item is not None):
            raise NotRecomputable("it draws random numbers")
        return [item for item in found if item is not None]

    # --- causes ---------------------------------------------------------------------------------------------------------

    def causes(self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> Cause | None:
        """The change to the right side that makes it compute what the left does; None if none of those tried does."""
        try:
            f, g, _tolerance = self._both(left, right, bound, layout)
            ours, theirs = self._meanings(0, left), self._meanings(1, right)
        except NotRecomputable:
            return None
        before = _relative(f, g)
        for text, setting, advice, changed, bound_ in self._candidates(left, right, ours, theirs, bound):
            try:
                after, other, limit = self._both(left, right, bound_, layout, changed)
            except NotRecomputable:
                continue
            rest = _difference(after, other, limit, SINGLE)
            now = _relative(after, other)
            if math.isfinite(now) and (now <= _AGREE * before or (not rest.significant and now <= 0.1 * before)):
                was = "shapes differ" if f.shape != g.shape else f"{before:.1e}"
                return Cause(text, f"{was} → {now:.1e}", setting, advice)
        return None

    def _candidates(
        self, left: Slice, right: Slice, ours: Sequence[Meaning], theirs: Sequence[Meaning], bound: Mapping[int, Bound]
    ) -> Iterator[tuple[str, str, str, tuple[Sequence[Meaning] | None, Sequence[Meaning] | None], Mapping[int, Bound]]]:
        """(text, setting, advice, changed meanings of both sides, binding) of everything worth trying, the likeliest first."""
        pairs = list(_partners(ours, theirs))
        for one, two in pairs:
            settings = different_arguments(one, two)
            fixed = {name: settings.pop(name)[0] for name in FRAMEWORKS_OWN & settings.keys()}
            for name, (mine, other) in sorted(settings.items()):
                changed = replace(two, arguments={**two.arguments, **fixed, name: mine})
                yield (
                    f"{name}: {told(mine)} | {told(other)}",
                    name,
                    f"set {name}={told(mine)} on the right",
                    (None, _exchanged(theirs, two, changed)),
                    bound,
                )
            if len(settings) > 1:
                changed = replace(
                    two, arguments={**two.arguments, **{name: mine for name, (mine, _) in settings.items()}}
                )
                names = ", ".join(
                    f"{name}: {told(mine)} | {told(other)}" for name, (mine, other) in sorted(settings.items())
                )
                yield (
                    names,
                    next(iter(sorted(settings))),
                    f"set {', '.join(sorted(settings))} as on the left",
                    (None, _exchanged(theirs, two, changed)),
                    bound,
                )
            yield from self._operand_candidates(one, two, ours, theirs, bound)
        for which, meanings, _others in ((0, ours, theirs), (1, theirs, ours)):
            for position, meaning in enumerate(meanings):
                if any(meaning is pair[which] for pair in pairs):
                    continue
                rest = _left_out(meanings, position)
                if rest is not None:
                    side = ("left", "right")[which]
                    text = f"only the {side} calls {meaning.called or meaning.operation}"
                    advice = (
                        "add it on the right, or see why the left has it"
                        if which == 0
                        else "remove it from the right, or see why the left does without"
                    )
                    yield text, meaning.operation, advice, (rest, None) if which == 0 else (None, rest), bound
        yield from self._masks(left, right, ours, theirs, bound)
        for one, two in pairs:
            if one.operation != two.operation and set(dict(one.operands())) & set(dict(two.operands())):
                swapped = _as_other(two, one)
                if swapped is not None:
                    yield (
                        f"the left computes {_call_text(one)}, the right {_call_text(two)}",
                        one.operation,
                        f"call {one.operation} on the right",
                        (None, _exchanged(theirs, two, swapped)),
                        bound,
                    )
        for two in theirs:
            for text, variant in variants(two, self.values[1].spec):
                yield (
                    f"the right computes {text}" if not text.startswith("the ") else text,
                    two.operation,
                    "",
                    (None, _exchanged(theirs, two, variant)),
                    bound,
                )
        yield from self._exchanged_operands(right, bound)

    def _operand_candidates(
        self, one: Meaning, two: Meaning, ours: Sequence[Meaning], theirs: Sequence[Meaning], bound: Mapping[int, Bound]
    ) -> Iterator[tuple[str, str, str, tuple[Sequence[Meaning] | None, Sequence[Meaning] | None], Mapping[int, Bound]]]:
        """Operands that one side alone has: a bias, a mask."""
        for which, has, lacks in ((0, one, two), (1, two, one)):
            for name, argument in has.arguments.items():
                if (
                    isinstance(argument, Operand)
                    and lacks.arguments.get(name, None) is None
                    and name in lacks.arguments
                ):
                    without = replace(has, arguments={**has.arguments, name: None})
                    spec = self.values[which].spec(argument.tensor)
                    sides = ("left", "right") if which == 0 else ("right", "left")
                    text = f"the {sides[0]} has a {name}, {spec}; the {sides[1]} has none"
                    advice = f"give the {sides[1]} its {name}"
                    changed = (
                        (_exchanged(ours, one, without), None)
                        if which == 0
                        else (None, _exchanged(theirs, two, without))
                    )
                    yield text, name, advice, changed, bound

    def _masks(
        self, left: Slice, right: Slice, ours: Sequence[Meaning], theirs: Sequence[Meaning], bound: Mapping[int, Bound]
    ) -> Iterator[tuple[str, str, str, tuple[Sequence[Meaning] | None, Sequence[Meaning] | None], Mapping[int, Bound]]]:
        """The right with the left's mask in place of its own."""
        mine = self._mask(0, left, ours, self.values[0])
        theirs_ = self._mask(1, right, theirs, self._from_left(bound))
        if mine is None and theirs_ is None:
            return
        if mine is None or theirs_ is None:
            side, other = ("left", "right") if mine is not None else ("right", "left")
            has = mine or theirs_
            assert has is not None
            meanings = ours if mine is not None else theirs
            without = _exchanged(meanings, has.meaning, has.without())
            text = f"the {side} masks {has.text}; the {other} has no mask"
            yield (
                text,
                "mask",
                f"give the {other} the mask",
                (without, None) if mine is not None else (None, without),
                bound,
            )
            return
        if (
            torch.equal(*torch.broadcast_tensors(mine.allowed, theirs_.allowed))
            if _broadcastable(mine.allowed, theirs_.allowed)
            else False
        ):
            return
        number = -1 - len(self._constants)
        self._constants[number] = mine.additive()
        changed = theirs_.exchanged(Operand(number))
        text = f"the masks differ: the left masks {mine.text}, the right {theirs_.text}"
        yield (
            text,
            "mask",
            "build the mask on the right as on the left",
            (None, _exchanged(theirs, theirs_.meaning, changed)),
            bound,
        )

    def _mask(
        self, which: int, part: Slice, meanings: Sequence[Meaning], values: Callable[[int], Tensor]
    ) -> _Mask | None:
        """The mask of an attention: an argument of its own, or what is added to the scores."""
        with torch.no_grad():
            made = run(meanings, values, part.copies)

        def value(operand: Operand) -> Tensor:
            number = part.copies.get(operand.tensor, operand.tensor)
            return made[number] if number in made else values(number)

        for meaning in reversed(meanings):  # the last that is added to the scores: masks are built of masks
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
                        if meaning.operation == "add" and tensor.is_floating_point() and bool((tensor < _MASKED).any()):
                            return _Mask(meaning, name, tensor)
                        if meaning.operation == "masked_fill" and name == "mask" and tensor.dtype == torch.bool:
                            return _Mask(meaning, name, ~tensor)
        return None

    def _exchanged_operands(
        self, right: Slice, bound: Mapping[int, Bound]
    ) -> Iterator[tuple[str, str, str, tuple[None, None], Mapping[int, Bound]]]:
        """Two inputs of one shape, each in the other's place."""
        known = [number for number in right.edge if number in bound]
        if len(known) > _EXCHANGED:
            return
        for i, one in enumerate(known):
            for two in known[i + 1 :]:
                if self.values[1].spec(one) == self.values[1].spec(two) and bound[one].left != bound[two].left:
                    exchanged = {**bound, one: bound[two], two: bound[one]}
                    yield (
                        "two operands are exchanged",
                        "operands",
                        "exchange the two operands on the right",
                        (None, None),
                        exchanged,
                    )


@dataclass(frozen=True, slots=True)
class _Mask:
    """The mask of an attention, and the call that applies it."""

    meaning: Meaning
    argument: str
    tensor: Tensor

    @property
    def allowed(self) -> Tensor:
        return self.tensor if self.tensor.dtype == torch.bool else self.tensor > _MASKED

    def additive(self) -> Tensor:
        return torch.zeros(self.allowed.shape, dtype=torch.float64).masked_fill(~self.allowed, -math.inf)

    @property
    def text(self) -> str:
        """Places that a mask leaves open: `12 of 100 places, a window of 4`."""
        allowed = self.allowed.reshape(-1, *self.allowed.shape[-2:])[0]
        open_ = f"{int((~self.allowed).sum())} of {self.allowed.numel()} places"
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


def _is_sum(total: Tensor, parts: Sequence[Tensor], unit: float) -> bool:
    """True if a tensor is the sum of others: what may be missing is as small as their rounding."""
    summed, size = torch.zeros_like(total), torch.zeros_like(total)
    for part in parts:
        summed, size = summed + part, size + part.abs()
    allowed = _ADDED * unit * (len(parts) + 1) * (size + size.pow(2).mean().sqrt())
    return bool(((summed - total).abs() <= allowed + 1e-300).all())


def _broadcastable(one: Tensor, two: Tensor) -> bool:
    try:
        torch.broadcast_shapes(one.shape, two.shape)
    except RuntimeError:
        return False
    return True


def _partners(ours: Sequence[Meaning], theirs: Sequence[Meaning]) -> Iterator[tuple[Meaning, Meaning]]:
    """Meanings of both sides that may be each other's: of one operation in order, or the only ones left."""
    free = list(theirs)
    rest = []
    for one in ours:
        other = next((two for two in free if two.operation == one.operation), None)
        if other is None:
            rest.append(one)
        else:
            free.remove(other)
            yield one, other
    computing = (
        [item for item in rest if not traits_of(item).moves],
        [item for item in free if not traits_of(item).moves],
    )
    if len(computing[0]) == len(computing[1]) == 1:
        yield computing[0][0], computing[1][0]


def _held_in_single(meaning: Meaning) -> Meaning:
    """The same with its numbers rounded to float32."""
    return replace(meaning, arguments={name: _single(value) for name, value in meaning.arguments.items()})


def _single(value: Argument) -> Argument:
    if isinstance(value, float) and math.isfinite(value):
        return float(torch.tensor(value, dtype=torch.float32)) if abs(value) < 3e38 else value
    if isinstance(value, tuple):
        return tuple(map(_single, value))
    return value


def _exchanged(meanings: Sequence[Meaning], old: Meaning, new: Meaning) -> list[Meaning]:
    return [new if item is old else item for item in meanings]


def _as_other(meaning: Meaning, other: Meaning) -> Meaning | None:
    """The operation of `other` on the operands of `meaning`."""
    ours = dict(meaning.operands())
    arguments: dict[str, Argument] = dict(other.arguments)
    for path, _ in other.operands():
        if path not in ours or "." in path:
            return None
        arguments[path] = ours[path]
    return replace(meaning, operation=other.operation, arguments=arguments)


def _left_out(meanings: Sequence[Meaning], position: int) -> list[Meaning] | None:
    """The calls without one that hands its first operand on; None where it has no such operand or several results."""
    meaning = meanings[position]
    operands = [operand for _, operand in meaning.operands()]
    if not operands or len(meaning.results) != 1:
        return None
    (result,) = meaning.results
    kept = [item for number, item in enumerate(meanings) if number != position]
    substitute = operands[0]
    changed = []
    for item in kept:
        changed.append(
            replace(
                item,
                arguments={name: _substituted(value, result, substitute) for name, value in item.arguments.items()},
            )
        )
    if not any(result == operand.tensor for item in kept for _, operand in item.operands()):
        changed.append(Meaning("torch.Tensor.clone", {"0": substitute}, {result: 0}, "clone"))
    return changed


def _substituted(value: Argument, number: int, substitute: Operand) -> Argument:
    if isinstance(value, Operand):
        return substitute if value.tensor == number else value
    if isinstance(value, tuple):
        return tuple(_substituted(item, number, substitute) for item in value)
    return value


def _call_text(meaning: Meaning) -> str:
    settings = ", ".join(f"{name}={told(value)}" for name, value in meaning.settings().items() if value is not None)
    return f"{meaning.operation}({settings})" if settings and len(settings) < 60 else meaning.operation


def _relative(f: Tensor, g: Tensor) -> float:
    if f.shape != g.shape:
        return math.inf
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
    # An infinite bound (the slope of a logarithm at 0) excuses nothing here: what float64 gives is compared as it is.
    tolerance = torch.where(tolerance.isfinite(), tolerance, _UNBOUNDED * f.abs())
    beyond = ~same & ~(apart <= tolerance)
    significant = bool(beyond.any())
    ratio = torch.where(same, 0.0, apart).nan_to_num(math.inf, math.inf)
    index = tuple(int(item) for item in torch.unravel_index(ratio.reshape(-1).argmax(), f.shape))
    relative = _relative(f, g)
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
