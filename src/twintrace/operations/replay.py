"""Share of a mistake in the gap at the end of a run, by replaying what follows from it.

    share(recomputation, origin, end)      Share(before=0.21, after=4e-04, …): 99.8 % of the gap goes away

The right side is computed again in float64, from the guilty value to the end: once with the value that was recorded there, once
with the left's, laid out as the right has it. Values that do not depend on it are taken as they were recorded. A call on the way
whose meaning is not known, that draws random numbers or whose values were not kept stops the replay, and is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..model.pairs import Layout
from ..model.records import Call
from .differences import laid_back, laid_out
from .evaluation import NotRecomputable, Recent, Tensor, evaluate
from .meanings import Meaning
from .sides import Side, name_of
from .traits import traits_of

if TYPE_CHECKING:
    from .recomputation import Recomputation


class _Stopped(NotRecomputable):
    """A call on the way cannot be replayed; the message is its name."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A tensor of each side, and how the right one is laid on the left one."""

    left: int
    right: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Share:
    """Distance between the two sides at the end, relative to the left, with the right's value and with the left's."""

    before: float = 0.0
    after: float = 0.0
    stopped: str = ""
    """The call that stops the replay."""
    failed: str = ""
    """Why nothing was replayed, where no call is to blame."""

    @property
    def gone(self) -> float:
        """Part of the gap that goes away, from 0 to 1."""
        if not self.before:
            return 0.0
        if math.isinf(self.before):
            return float(math.isfinite(self.after))
        return min(max(1 - self.after / self.before, 0.0), 1.0)


class Replayed:
    """Results that were replayed with two choices of some values, each of which is asked for the effect of a mistake there."""

    def __init__(self) -> None:
        self._held = Recent(), Recent()
        self._made_with: dict[int, tuple[object, ...]] = {}
        self._choices: dict[int, object] = {}
        self._dependents: Callable[[int], Collection[int]] = lambda number: ()

    def begin(self, changed: Mapping[int, tuple[Tensor, Tensor]], dependents: Callable[[int], Collection[int]]) -> None:
        """Ask from now on for results with these choices; `dependents` are the tensors that a tensor changes."""
        self._choices = {number: (number, *map(_mark, changed[number])) for number in sorted(changed)}
        self._dependents = dependents

    def get(self, number: int) -> tuple[Tensor, Tensor] | None:
        """A result with each choice; None if it is not held, or was made with others."""
        one, two = (held.get(number) for held in self._held)
        if one is None or two is None or self._made_with[number] != self._choices_before(number):
            return None
        return one, two

    def keep(self, made: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        """Hold results that were made with the choices of `begin`, in the order in which they were made."""
        for number, results in made.items():
            self._made_with[number] = self._choices_before(number)
            for held, result in zip(self._held, results, strict=True):
                held.keep(number, result)

    def _choices_before(self, number: int) -> tuple[object, ...]:
        return tuple(choice for changed, choice in self._choices.items() if number in self._dependents(changed))


def _mark(value: Tensor) -> complex:
    """A number by which a tensor is known again; the order of its elements is in it. NaN equals nothing."""
    flat = value.detach().reshape(-1).to(torch.complex128 if value.is_complex() else torch.float64)
    return complex(flat @ torch.linspace(1, 2, flat.numel(), dtype=torch.float64).to(flat.dtype))


def share(recomputation: Recomputation, origin: Compared, end: Compared) -> Share:
    """Gap at `end` before and after the right's value at `origin` is replaced by the left's."""
    left, right = recomputation.values
    try:
        corrected = laid_back(left(origin.left), origin.layout, right.spec(origin.right).shape)
        if corrected.shape != right(origin.right).shape:
            return Share(failed="the two values do not have the same shape")
        wanted = left(end.left)
        meanings = _between(recomputation.sides[1], origin.right, end.right)
        found = []
        for value in (right(origin.right), corrected):
            result = _replayed(meanings, {origin.right: value}, recomputation, end.right)
            found.append(_distance(wanted, laid_out(result, end.layout, wanted.shape)))
    except _Stopped as error:
        return Share(stopped=str(error))
    except NotRecomputable as error:
        return Share(failed=str(error))
    except RuntimeError as error:  # shapes that do not fit the changed value
        return Share(failed=str(error).splitlines()[0][:120])
    return Share(found[0], found[1])


def effect(
    recomputation: Recomputation, changed: Mapping[int, tuple[Tensor, Tensor]], end: int, which: int = 1
) -> float | None:
    """Relative difference at the end of one side between two choices of some of its values; None if that is not known.

    Nothing is rounded on the way, so a difference that is far below the rounding of the run is seen as well.
    """
    side, replayed = recomputation.sides[which], recomputation.replayed[which]
    try:
        meanings: dict[int, Meaning] = {}
        for number in changed:
            if end in side.dependents(number) - {number}:
                meanings |= {id(meaning): meaning for meaning in _between(side, number, end)}
        if not meanings:
            return 0.0
        order = {id(side.meaning(call)): call.order for call in side.calls}
        ordered = sorted(meanings.values(), key=lambda meaning: order[id(meaning)])
        replayed.begin(changed, side.dependents)
        missing, held = _not_held(ordered, replayed, side, end)
        known = [{number: both[choice] for number, both in (*held.items(), *changed.items())} for choice in (0, 1)]
        results = [_replayed(missing, made, recomputation, end, which) for made in known]
        replayed.keep({number: (known[0][number], known[1][number]) for number in known[0] if number not in changed})
    except (NotRecomputable, RuntimeError):
        return None
    return _distance(results[0], results[1])


def _not_held(
    meanings: Sequence[Meaning], replayed: Replayed, side: Side, end: int
) -> tuple[list[Meaning], dict[int, tuple[Tensor, Tensor]]]:
    """Those of some meanings, in their order, that must be computed for the last of their results, and results that are held."""
    missing: list[Meaning] = []
    held: dict[int, tuple[Tensor, Tensor]] = {}
    needed = {end, *side.originals(end)}
    for meaning in reversed(meanings):
        wanted = [number for number in meaning.results if number in needed]
        known = {number: both for number in wanted if (both := replayed.get(number)) is not None}
        if len(known) == len(wanted):
            held |= known
            continue
        missing.append(meaning)
        for _, operand in meaning.operands():
            needed.update((operand.tensor, *side.originals(operand.tensor)))
    return missing[::-1], held


def _between(side: Side, start: int, end: int) -> list[Meaning]:
    """Meanings of the calls that lead from one tensor to another. Raises NotRecomputable with the name of the one that stops."""
    made = side.dependents(start)
    if end not in made or end == start:
        raise NotRecomputable("the end of the run does not depend on it")
    calls: dict[int, Call] = {}
    waiting, seen = [end], {start}
    while waiting:
        number = waiting.pop()
        if number in seen or number not in made:
            continue
        seen.add(number)
        original = next((item for item in reversed(side.originals(number)) if item in made), None)
        if original is not None:  # the last of those with the same bits: what other layers made does not depend on it
            waiting.append(original)
            continue
        call = side.maker(number)
        if call is None:
            raise NotRecomputable("a value on the way was made by no recorded call")
        meaning = side.meaning(call)
        if meaning is None:
            raise _Stopped(name_of(call))
        if traits_of(meaning).random:
            raise _Stopped(f"{name_of(call)}, which draws random numbers")
        calls[call.id] = call
        waiting += [operand.tensor for _, operand in meaning.operands()]
    ordered = sorted(calls.values(), key=lambda call: call.order)
    return [meaning for call in ordered if (meaning := side.meaning(call)) is not None]


def _replayed(
    meanings: Sequence[Meaning], known: dict[int, Tensor], recomputation: Recomputation, end: int, which: int = 1
) -> Tensor:
    side, values, fixed = recomputation.sides[which], recomputation.values[which], frozenset(known)

    def replayed(number: int) -> Tensor | None:
        """Value of a tensor, or of the one that it is a copy of; None if it was not replayed."""
        return next((known[item] for item in (number, *reversed(side.originals(number))) if item in known), None)

    def present(_: str, number: int) -> Tensor:
        value = replayed(number)
        return values(number) if value is None else value

    with torch.no_grad():
        for meaning in meanings:
            results = evaluate(meaning, present)
            for number, key in meaning.results.items():
                if key in results and number not in fixed:
                    known[number] = results[key]
    result = replayed(end)
    if result is None:
        raise NotRecomputable("its result was not computed")
    return result


def _distance(left: Tensor, right: Tensor) -> float:
    """Root mean square of the difference over that of the left; infinite where one side alone is not finite."""
    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    left, right = left.to(wide), right.to(wide)
    if left.shape != right.shape:
        return math.inf
    apart = torch.where((left == right) | (left.isnan() & right.isnan()), 0.0, left - right)
    size = float(left[left.isfinite()].abs().pow(2).sum().sqrt())
    gap = float(apart.abs().pow(2).sum().sqrt())
    if not math.isfinite(gap):
        return math.inf
    return gap / size if size else gap


__all__ = ["Compared", "Share", "effect", "share"]
