"""Gradients of a parameter that one side has in one, and the other in several: queries, keys and values; gate and up.

    split = SplitParameters(state, gradients)
    split.find(results)          compares each part with its rows of the whole
    split.compared[0]            gradients of the left that need no partner any more
    split.noise[0]               those of them that are rounding alone, and apart
    split.differences            a sentence for each part whose gradient is another one
    split.untold                 a sentence for each part of which that could not be told

The weights show which rows of the whole a part has; where these were not recorded, gradients that agree do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..model.pairs import Stray
from ..model.results import CallResult
from ..model.verdicts import Outcome
from .backward import Gradients
from .state import JudgeState, attach, not_recomputable

if TYPE_CHECKING:
    from ..operations.splits import Split, Tensor

_UNTOLD = "they are made of gradients that could not be told"
_Layers = Mapping[str, tuple["Split", Sequence[Stray]]]


class SplitParameters:
    """Compares gradients of parameters that one side has in one."""

    def __init__(self, state: JudgeState, gradients: Gradients) -> None:
        self._state = state
        self._gradients = gradients
        self._rounding = gradients.rounding
        self.compared: tuple[set[int], set[int]] = set(), set()
        """Gradients that were compared, of each side."""
        self.noise: tuple[set[int], set[int]] = set(), set()
        """Gradients among them that are apart, and rounding of what cancelled."""
        self.differences: list[str] = []
        self.untold: list[str] = []

    def find(self, results: list[CallResult]) -> None:
        """Compares what the sides have of one another; a call that cuts a gradient which differs is added to `results`."""
        strays = self._state.alignment.stray_left, self._state.alignment.stray_right
        if not strays[0] or not strays[1]:
            return
        for which in (0, 1):
            layers: dict[str, tuple[Split, Sequence[Stray]]] = {}
            # Weights first: they show the rows of the biases beside them.
            for whole in sorted(strays[which], key=lambda stray: -len(self._shape(which, stray))):
                if whole.tensor in self.compared[which]:
                    continue
                others = [other for other in strays[1 - which] if other.tensor not in self.compared[1 - which]]
                try:
                    split = self._split(which, whole, others, layers)
                    if split is not None:
                        layers.setdefault(_owner(whole), (split, others))
                        self._compare(results, which, whole, others, split)
                except not_recomputable():
                    continue

    def _split(self, which: int, whole: Stray, others: Sequence[Stray], layers: _Layers) -> Split | None:
        """Rows of a parameter that those of the other side have; None if it is known of none."""
        from ..operations.splits import Rows, Split, split_of

        known = layers.get(_owner(whole)) if len(self._shape(which, whole)) == 1 else None
        if known is not None:
            split, weights = known
            rows = {_owner(weights[place]): part.places for place, part in split.parts.items()}
            sizes = {place: self._shape(1 - which, other) for place, other in enumerate(others)}
            biases = {
                place: Rows(rows[owner])
                for place, owner in enumerate(map(_owner, others))
                if owner in rows and sizes[place] == (len(rows[owner]),)
            }
            return Split(0, biases) if biases else None
        value = self._value(which, whole)
        if value is None:
            return self._by_gradients(which, whole, others)
        weight = self._state.recomputation.values[which](value)
        values = [self._value(1 - which, other) for other in others]
        places = [place for place, number in enumerate(values) if number is not None]
        read = self._state.recomputation.values[1 - which]
        found = split_of(weight, [read(number) for number in values if number is not None])
        return (
            None if found is None else Split(found.axis, {places[place]: rows for place, rows in found.parts.items()})
        )

    def _by_gradients(self, which: int, whole: Stray, others: Sequence[Stray]) -> Split | None:
        """Consecutive rows whose gradients are near those of the other side's parameters, if these are all of them."""
        from ..operations.splits import Rows, Split

        shape, blocks = self._shape(which, whole), dict[int, Rows]()
        taken: set[int] = set()
        for place, other in enumerate(others):
            own = self._shape(1 - which, other)
            axes = [axis for axis, (size, many) in enumerate(zip(own, shape, strict=False)) if size < many]
            if len(own) != len(shape) or len(axes) != 1 or math.prod(own) >= math.prod(shape):
                continue
            numbers = (whole.tensor, other.tensor) if which == 0 else (other.tensor, whole.tensor)
            distance, block = self._state.recomputation.recorded.nearest_block(*numbers)
            if distance <= self._rounding.least and block not in taken:
                taken.add(block)
                size = own[axes[0]]
                blocks[place] = Rows(tuple(range(block * size, (block + 1) * size)))
                axis = axes[0]
        complete = blocks and sum(len(rows.places) for rows in blocks.values()) == shape[axis]
        return Split(axis, blocks) if complete else None

    def _compare(
        self, results: list[CallResult], which: int, whole: Stray, others: Sequence[Stray], split: Split
    ) -> None:
        """Compares the gradient of a parameter with those of its parts."""
        values = self._state.recomputation.values
        total = values[which](whole.tensor)
        for place in split.parts:
            own, part = split.of(place, total), others[place]
            gradient = split.as_laid(place, values[1 - which](part.tensor)).reshape(own.shape)
            self.compared[1 - which].add(part.tensor)
            apart, limit = _distance(own, gradient), self._rounding.least
            names = (whole.slot, part.slot) if which == 0 else (part.slot, whole.slot)
            if apart > limit and self._is_noise(1 - which, part, own, gradient):
                self.noise[1 - which].add(part.tensor)
                continue
            unknown = self._unknown(which, whole, part) if 0 < apart <= limit else ""
            if unknown:
                self.untold.append(f"the gradients of {names[0]} | {names[1]} are {apart:.1e} apart, and {unknown}")
                continue
            parted = apart > limit
            if not parted:  # bounds in 16 bits explain much: what the calls of both sides send back is computed
                computed = self._computed(which, whole, part, split, place)
                parted, apart = computed if computed is not None else (False, apart)
            if parted and not self._cut(results):
                self.differences.append(
                    f"the gradients of {names[0]} | {names[1]} differ in what they have in common: relative error {apart:.1e}"
                )
        self.compared[which].add(whole.tensor)
        rest = split.rest(total)
        if rest.numel() and not self._rounding.is_noise(_rms(rest)) and not self._cut(results):
            side, other = ("left", "right") if which == 0 else ("right", "left")
            self.differences.append(
                f"only the {side} has a gradient of a part of {whole.slot}: is it frozen on the {other}?"
            )

    def _unknown(self, which: int, whole: Stray, part: Stray) -> str:
        """Reason why it is not known if the gradients that came back to the calls of a parameter agree; empty if it is."""
        standings = [
            self._gradients.standing_of_gradient(side, gradient)
            for side, stray in ((which, whole), (1 - which, part))
            if (value := self._value(side, stray)) is not None
            for _, gradient in self._state.sides[side].contributions(value)
        ]
        return next((own.untold or _UNTOLD for own in standings if own.outcome is Outcome.UNKNOWN), "")

    def _computed(self, which: int, whole: Stray, part: Stray, split: Split, place: int) -> tuple[bool, float] | None:
        """True if the gradients of a part and of its rows, sent back from the same gradients in float64, are not one, and their
        distance; None if these are not those that were recorded.
        """
        from ..operations.pullbacks import gradients_of_parts

        state = self._state
        strays = (whole, part) if which == 0 else (part, whole)
        values = [self._value(side, stray) for side, stray in enumerate(strays)]
        if values[0] is None or values[1] is None:
            return None
        try:
            gradients, limit = gradients_of_parts(
                state.recomputation, (values[0], values[1]), state.bound, self._gradients.agreed.ends
            )
            for side, (stray, gradient) in enumerate(zip(strays, gradients, strict=True)):
                recorded = state.recomputation.values[side](stray.tensor)
                if _distance(recorded.reshape(gradient.shape), gradient) >= self._rounding.least:
                    return None
        except not_recomputable():
            return None
        own = split.of(place, gradients[which])
        other = split.as_laid(place, gradients[1 - which]).reshape(own.shape)
        return limit.is_exceeded(own, other), _distance(own, other)

    def _is_noise(self, which: int, part: Stray, *gradients: Tensor) -> bool:
        """True if gradients are rounding of what cancelled: so is all that calls sent back to the part, where this is known."""
        if not self._rounding.is_noise(max(map(_rms, gradients))):
            return False
        value = self._value(which, part)
        sent = self._state.sides[which].contributions(value) if value is not None else ()
        return all(self._rounding.covers(which, call, number) for call, number in sent)

    def _cut(self, results: list[CallResult]) -> bool:
        """True if a call of one side cuts a gradient, which is the cause then, in `results`."""
        cuts = self._gradients.cuts
        for find, which in itertools.product((cuts.cut_off, cuts.lone), (0, 1)):
            cut = find(which)
            if cut is not None:
                mistake, call = cut
                if all(mistake.why != other.why for other in self._state.always):
                    self._state.always.add(mistake)
                    attach(results, call, which, mistake)
                return True
        return False

    def _value(self, which: int, stray: Stray) -> int | None:
        """The weight that a gradient is of; None if no recorded call holds it."""
        value = self._state.sides[which].parameter(stray.slot)
        return self._gradients.parameter_by_gradient(which, stray.tensor) if value is None else value

    def _shape(self, which: int, stray: Stray) -> tuple[int, ...]:
        return self._state.sides[which].tensor(stray.tensor).spec.shape


def _owner(stray: Stray) -> str:
    """The layer that a parameter is in, by its name."""
    return stray.slot.rpartition(".")[0]


def _distance(one: Tensor, two: Tensor) -> float:
    """Distance of two gradients, relative to the larger."""
    size = max(float(one.norm()), float(two.norm()))
    return float((one - two).norm()) / size if size else 0.0


def _rms(gradient: Tensor) -> float:
    return float(gradient.norm()) / math.sqrt(max(gradient.numel(), 1))
