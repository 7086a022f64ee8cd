"""Two sides recomputed: what each call got wrong by itself, what the two mean differently, and which change makes them the same.

    Y_L - Y_R  =  [Y_L - f(X_L)]  +  [f(X_L) - g(X_L)]  +  [g(X_L) - g(X_R)]  +  [g(X_R) - Y_R]
                  left's rounding     meaning              inherited             right's rounding

f and g are the calls between two values and the compared values before them, computed in float64. Only the two roundings have a
bound (`evaluation.audit`). Meaning is exact: no recorded result is in it, so it is seen however coarse the run was.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from ..model.pairs import Layout
from ..model.records import Call
from ..model.sites import Phase
from ..model.tensors import UNITS
from .allowances import coarsening, effect_of_constants, rounding_of_casts, takes_saved
from .audits import Audit, audit
from .beginnings import later_values, with_equals
from .candidates import Cause
from .catalog import OPERATIONS
from .causes import cause_of
from .differences import Difference, difference_of, laid_back, laid_out, relative_difference
from .evaluation import DTYPES, SINGLE, NotRecomputable, Recent, Values, run
from .meanings import FRAMEWORKS_OWN, Meaning, Operand, different_arguments, told
from .optimizers import is_updated, of_one_parameter
from .recorded import Recorded
from .recorded_gradients import gradients_of
from .replay import Replayed
from .rounding import RunningError
from .sides import Bound, Side, Slice, name_of, outputs_of
from .traits import traits_of
from .workers import both

Tensor = torch.Tensor

_TENSOR_FLOAT = 2.0**-11
_BRAIN_FLOAT = 2.0**-8
"""Units to which products of float32 may round their operands."""
_EXACT = 64 * 2.0**-29
"""Bounds are for float32; float64 is finer by 2⁻²⁹. 64: the two sides may differ in the order of their float64 sums."""
_GONE = 8.0
"""Units of the result below which a difference that came in is as small as rounding: gone."""
_COMPLEX_UNITS = 8.0
"""Units of what complex numbers make, and of its root mean square, that it may be rounded by."""
_CONVERTED = 0.4
"""Share of the tolerance, in the root mean square, that the rounding of converted weights takes: it is for each element."""


class Recomputation:
    """Both sides of one step, and what was recomputed of them so far."""

    def __init__(self, sides: tuple[Side, Side], values: tuple[Values, Values]) -> None:
        self.sides = sides
        self.values = values
        self._audits: dict[tuple[int, int], Audit] = {}
        self._computed = Recent(), Recent()
        """Results that the last audits computed, of each side."""
        self.recorded = Recorded(sides, values)
        self.replayed = Replayed(), Replayed()
        self.constants: dict[int, Tensor] = {}
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
                    gradients_of(side, call),
                    framework=side.framework,
                    operand_unit=operand_unit(side, call, meaning),
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
                found = audit(changed, self.values[which], gradients_of(side, call), framework=side.framework)
            except RuntimeError:  # shapes that do not fit the default
                continue
            score = found.forward.get(number) or found.backward.get(number)
            if score is not None and score.ratio <= 1:
                given = parameter.name if isinstance(value, Operand) else f"{parameter.name}={told(value)}"
                return given, score.ratio
        return "", 0.0

    # --- meaning --------------------------------------------------------------------------------------------------------

    def _one_operation(self, left: Slice, right: Slice) -> tuple[Meaning, Meaning] | None:
        """Meanings of two slices that are one call each, of one operation; None for others."""
        if len(left.calls) != 1 or len(right.calls) != 1:
            return None
        one, two = self.sides[0].meaning(left.calls[0]), self.sides[1].meaning(right.calls[0])
        return None if one is None or two is None or one.operation != two.operation else (one, two)

    def same_meaning(self, left: Slice, right: Slice, bound: Mapping[int, Bound]) -> bool:
        """True if two slices are one call each, of one operation, with equal settings and operands that belong together."""
        meanings = self._one_operation(left, right)
        if meanings is None:
            return False
        one, two = meanings
        ours, theirs = dict(one.operands()), dict(two.operands())
        if (
            one.arguments.keys() != two.arguments.keys()
            or ours.keys() != theirs.keys()
            or different_arguments(one, two)
        ):
            return False
        for path, operand in theirs.items():
            partner = bound.get(operand.tensor)
            if partner is None or partner.left != ours[path].tensor or partner.layout != Layout():
                return False
            types = {self.values[0].spec(partner.left).dtype, self.values[1].spec(operand.tensor).dtype}
            if len(types) > 1 and "b8" in types:  # truth values hide scores, numbers are added to them
                return False
        return one.results.get(left.tensor) == two.results.get(right.tensor)

    def difference(self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> Difference:
        """f(X_L) - g(X_L). Raises NotRecomputable."""
        f, g, tolerance = self.both(left, right, bound, layout)
        return difference_of(f, g, tolerance, self._unit(left, right))

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
        meanings = self._one_operation(left, right)
        if meanings is None or left.calls[0].site.phase is not Phase.UPDATE:
            return False
        one, two = meanings
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
                one = self.result(1, right, self.from_left(bound))
                two = self.result(1, right, self.values[1])
            base = self.values[0](left.tensor)
        except (NotRecomputable, RuntimeError):
            return None
        if one.shape != two.shape or one.numel() != base.numel():
            return None
        if not all(value.is_floating_point() for value in (one, two, base)):
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

    def exact(self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout) -> tuple[Tensor, Tensor]:
        """f(X_L) and g(X_L), laid out alike. Raises NotRecomputable, RuntimeError for other shapes."""
        f = self.result(0, left, self.values[0])
        _, g = self.values_of_both(left, right, bound, layout, (None, None), f)
        return f, g.reshape(f.shape)

    def lost(self, which: int, part: Slice) -> float:
        """Relative distance of a recorded value from what its slice gives in float64, of the values recorded with it. Raises
        NotRecomputable, RuntimeError for another shape.
        """
        got = self.values[which](part.tensor)
        want = self.result(which, part, self.values[which]).reshape(got.shape)
        return relative_difference(want, got)

    def _unit(self, left: Slice, right: Slice) -> float:
        return max(
            UNITS.get(self.values[0].spec(left.tensor).dtype, 0.0),
            UNITS.get(self.values[1].spec(right.tensor).dtype, 0.0),
            SINGLE,
        )

    def is_same_function(
        self,
        left: Slice,
        right: Slice,
        bound: Mapping[int, Bound],
        layout: Layout,
        *,
        converted: bool,
        within: float = math.inf,
    ) -> bool:
        """True if two slices compute the same of the values that they begin with; `converted` if their weights were computed of
        each other, and rounded, so that the results have the noise of that. `within` is the largest relative difference, where
        what rounding explains is more. Raises NotRecomputable.
        """
        if later_values(self.sides, left, right, bound):
            return False
        f, g, tolerance = self.both(left, right, bound, layout, converted=converted)
        if f.shape != g.shape or difference_of(f, g, tolerance, SINGLE).significant:
            return False
        if within < math.inf and relative_difference(f, g) > within:
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
        """f(X_L) and g(X_L), laid out alike where they have as many elements, and how far they may lie apart. `meanings` are
        computed in place of a side's own. Raises NotRecomputable.
        """
        bound = with_equals(self.sides, left, right, bound)
        f, error_f = self._compute(0, left, self.values[0], meanings[0])
        g, error_g = self._compute(1, right, self.from_left(bound), meanings[1])
        with contextlib.suppress(RuntimeError):  # another number of elements: told as that
            g, error_g = laid_out(g, layout, f.shape), laid_out(error_g, layout, f.shape)
        if f.shape != g.shape:
            return f, g, torch.zeros(())
        coarse = coarsening(self.sides, left, right, bound)
        if coarse > 1:
            return f, g, (error_f + error_g) * coarse
        rounded = rounding_of_casts(self.sides, left, right, bound)
        if rounded:
            return f, g, torch.maximum(f.abs(), g.abs()) * rounded
        later = later_values(self.sides, left, right, bound)
        if later:  # one side alone has their rounding in its result, also where that is cast to float32 at the end
            units = [UNITS.get(self.values[which].spec(number).dtype, 0.0) for which, number in later]
            return f, g, (error_f + error_g) * (max(self._unit(left, right), *units) / SINGLE)
        if takes_saved(self.sides, left, right):
            return f, g, (error_f + error_g) * (self._unit(left, right) / SINGLE)
        tolerance = (error_f + error_g) * _EXACT
        # Of one call on each side, float64's own rounding is all that may lie between them.
        if converted or self._one_operation(left, right) is None:
            taken = {bound[number].left for number in right.edge if number in bound}
            one = effect_of_constants(self, 0, left, self.values[0], f, meanings[0], taken, Layout(), converted)
            two = effect_of_constants(self, 1, right, self.from_left(bound), g, meanings[1], bound, layout, converted)
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
        bound = with_equals(self.sides, left, right, bound)
        f = known if meanings[0] is None else self.result(0, left, self.values[0], meanings[0])
        g = self.result(1, right, self.from_left(bound), meanings[1])
        with contextlib.suppress(RuntimeError):
            g = laid_out(g, layout, f.shape)
        return f, g

    def from_left(self, bound: Mapping[int, Bound]) -> Callable[[int], Tensor]:
        """Values of the right's tensors by number, the left's in the place of those that are bound."""

        def value(number: int) -> Tensor:
            if number < 0:
                return self.constants[number]
            partner = bound.get(number)
            if partner is None:
                return self.values[1](number)
            spec = self.values[1].spec(number)
            return _of_kind(laid_back(self.values[0](partner.left), partner.layout, spec.shape), spec.dtype)

        return value

    def _compute(
        self, which: int, part: Slice, values: Callable[[int], Tensor], changed: Sequence[Meaning] | None = None
    ) -> tuple[Tensor, Tensor]:
        with RunningError(SINGLE, SINGLE) as errors:
            result = self.result(which, part, values, changed)
        error = errors.of(result) if result.is_floating_point() else None
        made = (number for call in part.calls for number in outputs_of(call).values())
        # The running bound has none of complex numbers.
        if any(self.values[which].spec(number).dtype[0] == "c" for number in made):
            size = result.abs().double()
            own = _COMPLEX_UNITS * SINGLE * (size + size.square().mean().sqrt())
            error = own if error is None else torch.maximum(error, own)
        return result, torch.zeros(result.shape, dtype=torch.float64) if error is None else error

    def result(
        self, which: int, part: Slice, values: Callable[[int], Tensor], changed: Sequence[Meaning] | None = None
    ) -> Tensor:
        """The value that a slice makes of some values, in float64. Raises NotRecomputable."""
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
        number = -1 - len(self.constants)
        self.constants[number] = value
        return number

    def causes(
        self, left: Slice, right: Slice, bound: Mapping[int, Bound], layout: Layout, paths: bool = False
    ) -> Cause | None:
        """The change that makes the two sides compute the same; None if none of those tried does. See `cause_of`."""
        return cause_of(self, left, right, bound, layout, paths)

    def meanings(self, which: int, part: Slice) -> list[Meaning]:
        """Meanings of the calls of a slice. Raises NotRecomputable."""
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


def _finite_norm(value: Tensor) -> float:
    norm = float(value.abs().double().norm())
    return norm if math.isfinite(norm) else float(value[value.isfinite()].abs().double().norm())


def _of_kind(value: Tensor, dtype: str) -> Tensor:
    """Truth values as the numbers that the other side has for them, and back: the operation asks which of the two they are."""
    wanted = DTYPES.get(dtype)
    if wanted is None or (value.dtype is torch.bool) == (wanted is torch.bool) or value.is_complex():
        return value
    if wanted is torch.bool:
        return value.bool() if bool(((value == 0) | (value == 1)).all()) else value
    return value.double() if wanted.is_floating_point else value.to(wanted)


def operand_unit(side: Side, call: Call, meaning: Meaning) -> float:
    """Unit to which the run allowed a product of float32 to round its operands; 0 if it did not, or nothing says so."""
    settings = {**side.precision, **call.precision}
    allowed = settings.get("reduced_f32")
    kind = "convolution" if meaning.operation.startswith("conv") else "matmul"
    on_host = all(side.tensor(operand.tensor).device.startswith("cpu") for _, operand in meaning.operands())
    name = f"onednn_{kind}" if on_host else kind
    if not isinstance(allowed, list | tuple) or name not in allowed:
        return 0.0
    return _BRAIN_FLOAT if settings.get("float32_matmul") == "medium" else _TENSOR_FLOAT
