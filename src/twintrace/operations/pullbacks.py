"""Gradients of one value, recomputed on both sides from the gradients of what is made of it.

    difference_of_gradients(recomputation, (17, 21), bound, ends)      Pullback(relative=6.4e-01, …)
    sent_back_of(recomputation, 0, call, {30: difference})              root mean square of what a difference becomes, by gradient
    inherited_of(recomputation, call, bound)                            the same of what differences in its operands do

    value ─▶ calls ─▶ ends          values whose gradients were compared, and agree
    gradient ◀─ vector-Jacobian product of the calls ◀─ the left's gradients of the ends, on both sides

Two ways to compute one function have one derivative, unless somebody has cut it: the difference is exact, like that of what two
calls mean, and no recorded gradient of the value is in it. Calls without recorded gradients took no part in the backward pass.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from ..model.records import Call
from ..model.sites import Phase
from ..model.tensors import UNITS
from .differences import laid_back, laid_out, relative_difference
from .evaluation import SINGLE, NotRecomputable, Values, evaluate
from .meanings import Meaning
from .recomputation import Recomputation
from .recorded_gradients import gradients_of
from .sides import Bound, Side, name_of, outputs_of
from .traits import traits_of
from .workers import plain_attention
from .written import passes_unseen

Tensor = torch.Tensor

_LONGEST = 256
"""Calls between a value and those whose gradients agree, at most."""
_SAME = 1e-6
"""Relative difference of two gradients that constants in float32 explain."""
_ROUNDINGS = 2.0
"""Units of their element type that values and gradients of one side alone may be off by: they were rounded on the way."""
_SIGMAS = 8.0
"""Standard errors that the mean of independent roundings may be off by: a gain of two gradients that are one. The errors that are
drawn are of two units, where rounding to nearest has a standard deviation of less than a third of one.
"""
_DRAWS = 3
"""Draws of rounding errors; one may have no gain by chance where few values scale all of a gradient."""
_GAINS = 3.0
"""Multiple of the largest gain of all draws that rounding explains; the drawn errors have seven standard deviations of rounding."""
_NO_ERRORS: Mapping[int, Tensor] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Pullback:
    """Difference of the gradients that two sides compute for one value, relative to the left's."""

    relative: float
    significant: bool
    calls: tuple[tuple[Call, ...], tuple[Call, ...]]
    """Calls of both sides that the gradient comes back through."""
    gradients: tuple[Tensor, Tensor]
    """The two, as they were computed."""
    cut: tuple[int, Call] | None = None
    """Side and first call at which the gradient is cut, without which the two agree."""
    uncut: float = 0.0
    """Relative difference without the cut."""


def difference_of_gradients(
    recomputation: Recomputation,
    values: tuple[int, int],
    bound: Mapping[int, Bound],
    ends: Mapping[int, int],
    changed: Mapping[int, Meaning] | None = None,
) -> Pullback:
    """Gradients of two values that were compared with each other. Raises NotRecomputable.

    Args:
        recomputation: both sides.
        values: numbers of the value on both sides.
        bound: right tensors and the left ones that stand for them.
        ends: left values whose gradients agree, and these gradients.
        changed: other meanings of calls of the right, by their ids.
    """
    way = [
        _Way(recomputation, which, number, bound, ends, changed=changed if which else None)
        for which, number in enumerate(values)
    ]
    mine, other = way[0].gradient(), way[1].gradient()
    layout = bound[values[1]].layout

    def apart(one: Tensor, two: Tensor) -> float:
        return relative_difference(one, laid_out(two, layout, one.shape))

    relative = apart(mine, other)
    limit = GradientLimit(way, (mine, other))
    exceeded = relative > _SAME and limit.is_exceeded(mine, laid_out(other, layout, mine.shape))
    found = Pullback(relative, exceeded, (way[0].calls, way[1].calls), (mine, other))
    for which in (0, 1) if found.significant else ():
        cut = way[which].first_cut()
        if cut is None:
            continue
        whole = _Way(recomputation, which, values[which], bound, ends, through_cuts=True).gradient()
        rest = apart(whole, other) if which == 0 else apart(mine, whole)
        if rest <= limit.relative:
            return replace(found, cut=(which, cut), uncut=rest)
    return found


def gradients_of_parts(
    recomputation: Recomputation, values: tuple[int, int], bound: Mapping[int, Bound], ends: Mapping[int, int]
) -> tuple[tuple[Tensor, Tensor], GradientLimit]:
    """Gradients of two values that were not compared with each other, from those of the left that agree (`ends`), and the limit up
    to which parts of them are one. Raises NotRecomputable.
    """
    way = [_Way(recomputation, which, number, bound, ends) for which, number in enumerate(values)]
    gradients = way[0].gradient(), way[1].gradient()
    return gradients, GradientLimit(way, gradients)


def rounding_of(values: Values, number: int, draw: int = 0) -> Tensor:
    """Rounding errors of a tensor, in any direction, the same ones for each draw. Raises NotRecomputable."""
    tensor, noise = values(number).detach(), torch.Generator().manual_seed(number * _DRAWS + draw)
    signs = torch.randint(0, 2, tensor.shape, generator=noise, dtype=torch.float64) * 2 - 1
    return UNITS.get(values.spec(number).dtype, 0.0) * tensor.abs() * signs.to(tensor.device)


def sent_back_of(
    recomputation: Recomputation, which: int, call: Call, received: Mapping[int, Tensor]
) -> dict[int, float]:
    """Root mean squares of what a call sends back of other gradients of its results, by the numbers of the recorded gradients of
    its operands: what differences in the gradients of its results become. `received` has them by the numbers of those recorded;
    results without one send nothing back. Raises NotRecomputable.
    """
    found = _sent_back(recomputation, which, call, received, recomputation.values[which])
    return {gradient: _rms(total) for gradient, total in found.items()}


def inherited_of(recomputation: Recomputation, call: Call, bound: Mapping[int, Bound]) -> dict[int, float]:
    """Root mean squares of what a call of the right sends back otherwise with the left's operands, of the same gradients of its
    results, by the numbers of the recorded gradients of its operands. Raises NotRecomputable.
    """
    own = recomputation.values[1]
    received = {gradient: own(gradient) for gradient in gradients_of(recomputation.sides[1], call).outputs.values()}
    mine = _sent_back(recomputation, 1, call, received, own)
    other = _sent_back(recomputation, 1, call, received, recomputation.from_left(bound))
    return {gradient: _rms(total - other[gradient]) for gradient, total in mine.items() if gradient in other}


def _rms(value: Tensor) -> float:
    return float(value.norm()) / math.sqrt(max(value.numel(), 1))


def _sent_back(
    recomputation: Recomputation, which: int, call: Call, received: Mapping[int, Tensor], read: Callable[[int], Tensor]
) -> dict[int, Tensor]:
    """Gradients of the operands of a call, of `received` and of the operands that are `read`, by the numbers of those recorded."""
    side = recomputation.sides[which]
    meaning = side.meaning(call)
    if meaning is None or traits_of(meaning).random:
        raise NotRecomputable(f"{name_of(call)} cannot be recomputed")
    gradients, operands, numbers = gradients_of(side, call), dict[str, Tensor](), dict[str, int]()
    for path, operand in meaning.operands():
        tensor = read(operand.tensor).detach()
        wanted = operand.tensor in gradients.inputs and (tensor.is_floating_point() or tensor.is_complex())
        operands[path], numbers[path] = tensor.clone().requires_grad_() if wanted else tensor, operand.tensor
    with torch.enable_grad(), plain_attention():
        made = _results(meaning, lambda path, _: operands[path])
        seeds = {
            result: made[result]
            for result, gradient in gradients.outputs.items()
            if gradient in received and result in made and made[result].requires_grad
        }
        leaves = {path: tensor for path, tensor in operands.items() if tensor.requires_grad}
        if not seeds or not leaves:
            return {}
        given = [received[gradients.outputs[result]].reshape(value.shape) for result, value in seeds.items()]
        try:
            found = torch.autograd.grad(list(seeds.values()), list(leaves.values()), given, allow_unused=True)
        except RuntimeError as error:
            raise NotRecomputable(str(error).splitlines()[0][:120]) from None
    sums: dict[int, Tensor] = {}
    for path, gradient in zip(leaves, found, strict=True):
        if gradient is not None:
            sums[numbers[path]] = sums[numbers[path]] + gradient if numbers[path] in sums else gradient
    return {gradient: total for value, total in sums.items() for gradient in gradients.inputs[value]}


class _Way:
    """Calls of one side from a value to those whose gradients are known."""

    def __init__(
        self,
        recomputation: Recomputation,
        which: int,
        number: int,
        bound: Mapping[int, Bound],
        ends: Mapping[int, int],
        *,
        through_cuts: bool = False,
        changed: Mapping[int, Meaning] | None = None,
    ) -> None:
        self._re = recomputation
        self._which = which
        self._number = number
        self._bound = bound
        self._ends = ends
        self._through_cuts = through_cuts
        self._changed = changed or {}
        self._read: set[int] = set()
        """Values as they were rounded that a gradient depends on."""
        self._recomputed: dict[int, Tensor] = {}
        """Values that were compared with none, made of those that were."""
        self._compared = bound.keys() if which else {partner.left for partner in bound.values()}
        side = recomputation.sides[which]
        found: dict[int, Call] = {}
        self._skipped: list[Call] = []
        self._reached: dict[int, None] = {}
        waiting, seen = [number], {number}
        while waiting:
            for call in side.takers(waiting.pop()):
                if call.id in found or call.site.phase is not Phase.FORWARD:
                    continue
                if not call.gradients and not through_cuts and not passes_unseen(side, call):
                    self._skipped.append(call)
                    continue
                found[call.id] = call
                if len(found) > _LONGEST:
                    raise NotRecomputable(f"more than {_LONGEST} calls lie between")
                for made in outputs_of(call).values():
                    if self._end(made) is not None:
                        self._reached[made] = None
                    elif made not in seen:
                        seen.add(made)
                        waiting.append(made)
        self.calls = tuple(sorted(found.values(), key=lambda call: call.order))
        if not self._reached:
            raise NotRecomputable("no gradient that was compared comes back to it")

    def _end(self, number: int) -> int | None:
        """The left's gradient of a value; None if it was not compared, or does not agree."""
        left = number if self._which == 0 else self._bound[number].left if number in self._bound else -1
        return self._ends.get(left) if number != self._number else None

    def first_cut(self) -> Call | None:
        """The first call that takes what the gradient is of, and has no gradient: the gradient is cut there, or after it."""
        side = self._re.sides[self._which]
        for call in sorted(self._skipped, key=lambda item: item.order):
            following, seen = [call], {call.id}
            while following:
                current = following.pop(0)
                meaning = side.meaning(current)
                if meaning is not None and meaning.operation == "detach":
                    return current
                for made in outputs_of(current).values():
                    following += [item for item in side.takers(made) if item.id not in seen]
                    seen.update(item.id for item in side.takers(made))
        return min(self._skipped, key=lambda item: item.order, default=None)

    def rounded(self, other: _Way, draw: int) -> Tensor | None:
        """The gradient with rounding errors of the values and gradients that this side reads, and the other has not, or computes;
        None if there are none.
        """
        values, side = self._re.values[self._which], self._re.sides[self._which]
        read, ends = {other._on_the_left(number) for number in other._read}, set(other._ends_reached())
        errors: dict[int, Tensor] = {}
        for number in self._read:
            known = self._on_the_left(number) in read or side.parameter_name(number) is not None
            if not known and _is_rounded(values, number):
                errors[number] = _ROUNDINGS * rounding_of(values, number, draw)
        left = self._re.values[0]
        of_ends = {
            end: _ROUNDINGS * rounding_of(left, end, draw)
            for end in self._ends_reached()
            if end not in ends and _is_rounded(left, end)
        }
        return self.gradient(errors, of_ends) if errors or of_ends else None

    def _ends_reached(self) -> list[int]:
        """The left's gradients that this one is computed from."""
        return [end for number in self._reached if (end := self._end(number)) is not None]

    def _on_the_left(self, number: int) -> tuple[int, int]:
        """Side and number of a value: the left's of those that were compared."""
        return (0, self._bound[number].left) if self._which and number in self._bound else (self._which, number)

    def gradient(self, errors: Mapping[int, Tensor] = _NO_ERRORS, of_ends: Mapping[int, Tensor] = _NO_ERRORS) -> Tensor:
        """The gradient of the value in float64, by the left's gradients of the ends; with errors of values that are read, and of
        these gradients.
        """
        side, re = self._re.sides[self._which], self._re
        read: Callable[[int], Tensor] = re.values[0] if self._which == 0 else re.from_left(self._bound)
        made: dict[int, Tensor] = {self._number: read(self._number).detach().clone().requires_grad_()}

        def operand(sloped: bool, _: str, number: int) -> Tensor:
            number = side.origin(number) if number not in made else number
            if number in made:
                return made[number]
            if number not in self._compared and number not in self._recomputed:
                self._recompute(number, read)
            if number in self._recomputed:
                return self._recomputed[number]
            if sloped:
                self._read.add(number)
            value = read(number).detach()
            return value + errors[number] if number in errors else value

        with torch.enable_grad(), plain_attention():
            for call in self.calls:
                meaning = self._meaning(side, call)
                sloped = not traits_of(meaning).affine
                for number, value in _results(meaning, functools.partial(operand, sloped)).items():
                    made.setdefault(number, value)
            results, seeds = [], []
            for number in self._reached:
                result, gradient = made.get(number), self._end(number)
                if result is None or gradient is None or not result.requires_grad:
                    continue
                seed = re.values[0](gradient)
                seed = seed + of_ends[gradient] if gradient in of_ends else seed
                layout = self._bound[number].layout if self._which else None
                results.append(result)
                seeds.append((laid_back(seed, layout, result.shape) if layout else seed).reshape(result.shape))
            if not results:
                return torch.zeros_like(made[self._number])
            try:
                (found,) = torch.autograd.grad(results, [made[self._number]], seeds, allow_unused=True)
            except RuntimeError as error:
                raise NotRecomputable(str(error).splitlines()[0][:120]) from None
        return torch.zeros_like(made[self._number]) if found is None else found

    def _recompute(self, number: int, read: Callable[[int], Tensor]) -> None:
        """Makes a value that was compared with none of those that were: the recorded one has in it what its own side inherited
        (weights of an attention whose scores are apart by rounding), and the other side has no such value to read instead.
        """
        part = self._re.sides[self._which].slice(number, self._compared)
        if not part.calls or part.failure:
            return
        with contextlib.suppress(NotRecomputable, RuntimeError):  # taken as it was recorded
            self._recomputed[number] = self._re.result(self._which, part, read).detach()

    def _meaning(self, side: Side, call: Call) -> Meaning:
        meaning = self._changed.get(call.id) or side.meaning(call)
        if meaning is None or traits_of(meaning).random:
            raise NotRecomputable(f"{name_of(call)} cannot be recomputed")
        if self._through_cuts and meaning.operation == "detach":
            return Meaning("identity", meaning.arguments, meaning.results, meaning.called)
        return meaning


class GradientLimit:
    """Difference of the gradients of two sides that rounding explains, by its size and by its gain: errors go in any direction, so
    that a gradient of which each element is 0.99 times the other's is another one, where each alone could be rounding.
    """

    def __init__(self, way: Sequence[_Way], gradients: tuple[Tensor, Tensor]) -> None:
        self._way = way
        self._gradients = gradients

    @functools.cached_property
    def relative(self) -> float:
        """Relative difference up to which two gradients are one."""
        return max([_SAME, *(relative_difference(gradient, other) for gradient, other in self._rounded(0))])

    def is_exceeded(self, one: Tensor, two: Tensor) -> bool:
        """True if two gradients, or parts of them, are not one."""
        if relative_difference(one, two) > self.relative:
            return True
        gain = _gain(one, two)
        if gain <= max(_SAME, _SIGMAS * self.relative / math.sqrt(max(one.numel(), 1))):
            return False
        drawn = (_gain(*both) for draw in range(_DRAWS) for both in self._rounded(draw))
        return gain > _GAINS * max(drawn, default=0.0)

    def _rounded(self, draw: int) -> list[tuple[Tensor, Tensor]]:
        """The gradient of each side, without and with errors, where there are any."""
        way, gradients = self._way, self._gradients
        rounded = [own.rounded(other, draw) for own, other in zip(way, way[::-1], strict=True)]
        return [(gradient, errors) for gradient, errors in zip(gradients, rounded, strict=True) if errors is not None]


def _gain(one: Tensor, two: Tensor) -> float:
    """Share of a tensor by which another one is larger or smaller than it in all elements alike; infinite for one of zeros."""
    energy = float((one * one.conj()).real.sum())
    apart = abs(float(((two - one) * one.conj()).real.sum()))
    return apart / energy if energy else (math.inf if apart else 0.0)


def _is_rounded(values: Values, number: int) -> bool:
    return UNITS.get(values.spec(number).dtype, 0.0) > SINGLE


def _results(meaning: Meaning, operand: Callable[[str, int], Tensor]) -> dict[int, Tensor]:
    found = evaluate(meaning, operand)
    return {number: found[key] for number, key in meaning.results.items() if key in found}
