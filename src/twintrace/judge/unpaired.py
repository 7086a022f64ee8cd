"""Partners of results that were compared with none.

    Unpaired(…).find_extended(…)     results that one side goes on to compute from what is the other's result: a divided loss
    Unpaired(…).match()              results that mean the same and are computed by other calls, or were computed before
    Unpaired(…).match_parts()        new values of a weight that are parts of the other side's: queries, keys and values in one

What has found its partner is told (`Ends.told`); the rest is for `lone.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.pairs import Layout, Part, TensorPair
from ..model.records import Call
from ..model.results import CallResult, Mistake
from ..model.sites import Phase
from ..model.verdicts import Outcome
from ..operations.beginnings import from_same_values
from ..operations.sides import Slice, inputs_of, outputs_of
from .ends import Ends
from .explanations import Explainer
from .loss_scale import LossScale
from .state import SHARES, JudgeState, is_float, not_recomputable

if TYPE_CHECKING:
    from ..operations.differences import Difference

_PART = 1e-3
"""Relative distance, at most, of the new values of a weight and of a part of another: gradients that were rounded otherwise."""


class Unpaired:
    """Looks for partners of results that were compared with none."""

    def __init__(self, state: JudgeState, explainer: Explainer, ends: Ends, scale: LossScale) -> None:
        self._state = state
        self._explainer = explainer
        self._ends = ends
        self._scale = scale

    def find_extended(self, results: list[CallResult]) -> None:
        """Tells of results that one side goes on to compute from what is the other's result, as mistakes in `results` if these
        calls make a difference: a loss that is divided on one side only.
        """
        for which in (0, 1):
            theirs = self._ends.of[1 - which]
            for number, call in self._ends.of[which].items():
                if number in self._state.known[which] or self._ends.changes_state(which, call, number):
                    continue
                rest = self._state.sides[which].slice(number, self._state.known[which])
                partners = [self._state.partner(which, edge) for edge in rest.edge]
                shape = self._state.sides[which].tensor(number).spec.shape
                # Of several, the one that it may be: a loss, and not the output that a part of the loss is made of.
                candidates = sorted(
                    (partner for partner in partners if partner is not None and partner in theirs),
                    key=lambda partner: self._state.sides[1 - which].tensor(partner).spec.shape != shape,
                )
                tried = [(partner, self._beyond(which, rest, partner)) for partner in candidates]
                known = [(partner, difference) for partner, difference in tried if difference is not None]
                # Indices that one side expands to a mask's shape are no result that it goes on to compute.
                indices = not is_float(self._state.sides[which].tensor(number).spec.dtype)
                if not known or (known[0][1].shapes is not None and indices):
                    continue
                self._ends.told[which].add(number)
                partner, difference = known[0]
                if all(other.significant for _, other in known) and not self._scale.covers(which, number, partner):
                    left, right = _with_partner(which, rest, partner)
                    pair = TensorPair(Part.OUTPUT, "", "", left.tensor, right.tensor)
                    cause = self._explainer.cause(left, right, pair)
                    mistake = self._explainer.meaning_mistake(left, right, pair, difference, cause)
                    self._add_mistake(results, which, rest, mistake)

    def _beyond(self, which: int, rest: Slice, partner: int) -> Difference | None:
        """Difference that the calls of a slice make to the other side's result that it begins with; None if not known."""
        try:
            return self._state.recomputation.difference(
                *_with_partner(which, rest, partner), self._state.bound, Layout()
            )
        except not_recomputable():
            return None

    def _add_mistake(self, results: list[CallResult], which: int, part: Slice, mistake: Mistake) -> None:
        """Adds a mistake that counts to the pair that made what a slice begins with."""
        self._state.always.add(mistake)
        for place, result in enumerate(results):
            made = [item.pair for item in result.tensors if item.pair.part is Part.OUTPUT]
            if any((pair.left, pair.right)[which] in part.edge for pair in made):
                results[place] = replace(result, mistakes=(*result.mistakes, mistake))
                break

    def match(self) -> None:
        """Finds results that were compared with none, and are what the other side computes by other calls (a loss, a running
        average), or what their own side has computed before (a layer that is run again in the backward pass).
        """
        told = self._ends.told
        for which in (0, 1):
            side = self._state.sides[which]
            lone = self._ends.unpaired(which)
            bits = {side.tensor(number).fingerprint for number in self._state.known[which]} - {None} if lone else set()
            for number, call in lone.items():
                again = side.tensor(number).fingerprint in bits
                if again and not self._ends.changes_state(which, call, number):
                    told[which].add(number)
                    continue
                partner = self._same_result(which, number, call)
                if partner is not None:
                    told[which].add(number)
                    told[1 - which].add(partner)

    def _same_result(self, which: int, number: int, maker: Call) -> int | None:
        """A result of the other side that is computed otherwise of the same values, and means the same; None if there is none."""
        state = self._state
        shape = state.sides[which].tensor(number).spec.shape
        writes = self._ends.changes_state(which, maker, number)
        for other, call in self._ends.of[1 - which].items():
            if state.sides[1 - which].tensor(other).spec.shape != shape:
                continue
            if self._ends.changes_state(1 - which, call, other) != writes:
                continue
            left, right = (number, other) if which == 0 else (other, number)
            apart, size = state.recomputation.recorded.distance((left, right), Layout())
            if not apart <= SHARES * size or not size:
                continue
            slices = from_same_values(
                state.sides,
                state.sides[0].slice(left, state.known[0]),
                state.sides[1].slice(right, state.known[1]),
                state.bound,
                state.known,
                state.agrees,
            )
            try:
                different = state.recomputation.difference(*slices, state.bound, Layout()).significant
            except not_recomputable():
                continue
            if not different and state.incoming(*slices).outcome in (Outcome.SAME, Outcome.ROUNDING):
                state.leave_behind(state.tensors(left, right), Outcome.ROUNDING)
                return other
        return None

    def match_parts(self, noise: Sequence[Collection[int]] = ((), ())) -> None:
        """Finds new values of a weight that are parts of the other side's: queries, keys and values in one. Optimizers work on each
        element alone: if the two steps have the same settings, parts that are near each other are the same; and those of which the
        gradients are `noise`, of which some optimizers make full steps.
        """
        lone = [
            {number: call for number, call in self._ends.unpaired(which).items() if call.site.phase is Phase.UPDATE}
            for which in (0, 1)
        ]
        parts: dict[tuple[int, int], dict[int, tuple[bool, float, int]]] = {}
        for left, one in lone[0].items():
            for right, two in lone[1].items():
                distance, place = self._state.recomputation.recorded.nearest_block(left, right)
                slots = _slot(one, left), _slot(two, right)
                gradients = _gradient(one, slots[0]), _gradient(two, slots[1])
                of_noise = gradients[0] in noise[0] or gradients[1] in noise[1]
                if place < 0 or (distance > _PART and not of_noise) or not self._same_steps(one, two):
                    continue
                sizes = self._size(0, left), self._size(1, right)
                which = 0 if sizes[0] > sizes[1] else 1  # the side that has them in one
                # Zeros are near every state of noise: that of the same name comes first, then the nearest.
                found = slots[0].rpartition(".")[2] != slots[1].rpartition(".")[2], distance, (left, right)[1 - which]
                known = parts.setdefault((which, (left, right)[which]), {})
                known[place] = min(found, known.get(place, found))
        for (which, whole), candidates in parts.items():
            by_place = {place: part for place, (_, _, part) in candidates.items()}
            if sum(self._size(1 - which, part) for part in by_place.values()) != self._size(which, whole):
                continue  # a part of it is like none of the other side's
            self._ends.told[which].add(whole)
            self._ends.told[1 - which].update(by_place.values())
            for part in by_place.values():
                left, right = (whole, part) if which == 0 else (part, whole)
                self._state.leave_behind(self._state.tensors(left, right), Outcome.ROUNDING)

    def _size(self, which: int, number: int) -> int:
        return math.prod(self._state.sides[which].tensor(number).spec.shape)

    def _same_steps(self, left: Call, right: Call) -> bool:
        """True if two optimizers' steps are one operation with the same settings."""
        from ..operations import different_arguments
        from ..operations.optimizers import of_one_parameter

        one, two = self._state.sides[0].meaning(left), self._state.sides[1].meaning(right)
        if one is None or two is None or one.operation != two.operation:
            return False
        first = [of_one_parameter(item, next(iter(item.results), -1)) for item in (one, two)]
        return not different_arguments(*first)


def _slot(update: Call, number: int) -> str:
    return next((slot for slot, made in outputs_of(update).items() if made == number), "")


def _gradient(update: Call, slot: str) -> int | None:
    """The gradient that an update makes a new value by; None if it is not known."""
    return inputs_of(update).get(f"kw.gradients.{slot.rpartition('parameters.')[2]}")


def _with_partner(which: int, part: Slice, partner: int) -> tuple[Slice, Slice]:
    """A slice of one side and a value of the other, as it is."""
    here = Slice(partner, (), (partner,))
    return (part, here) if which == 0 else (here, part)
