"""Parts of gradients: the values that gradients belong to, and the calls that sent back what they are added up of.

parts.values_of(pair)             the value on each side that two gradients are the gradients of
parts.sent(pair)                  (call, gradient) of what each side's gradient was added up of
parts.summands(0, n, v, sent)     those whose sum gradient n is
parts.lone(0, sent)               those of the left that have no counterpart on the right
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.pairs import Part, TensorPair
from ..model.records import Call
from .state import JudgeState


class GradientParts:
    """Finds what gradients are made of."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self._parameters: dict[tuple[int, int], int | None] = {}
        """Weights by the side and the number of a gradient that is called by a name that no module has."""

    def values_of(self, pair: TensorPair) -> tuple[int | None, int | None]:
        """The value on each side that two gradients are the gradients of. What hands its gradient on unchanged shares it with
        others: two that were compared with each other come first.
        """
        found: list[list[int]] = []
        for which, number in enumerate((pair.left, pair.right)):
            values = [
                value
                for _, value in (
                    *self._state.received[which].get(number, ()),
                    *self._state.senders[which].get(number, ()),
                )
            ]
            if not values and pair.part is Part.PARAMETER_GRADIENT:
                parameter = self._state.sides[which].parameter((pair.left_slot, pair.right_slot)[which])
                if parameter is None:
                    parameter = self.parameter_by_gradient(which, number)
                values = [] if parameter is None else [parameter]
            found.append(values)
        for right in found[1]:
            bound = self._state.bound.get(right)
            if bound is not None and bound.left in found[0]:
                return bound.left, right
        return next(iter(found[0]), None), next(iter(found[1]), None)

    def parameter_by_gradient(self, which: int, gradient: int) -> int | None:
        """The weight whose parts add up to a gradient, for one that is used under another name than it is kept (a tied one)."""
        key = which, gradient
        if key not in self._parameters:
            side = self._state.sides[which]
            leaves = side.leaves_of(side.tensor(gradient).spec.shape)
            fitting = (
                leaf for leaf in leaves if self.summands(which, gradient, leaf, side.contributions(leaf)) is not None
            )
            self._parameters[key] = next(fitting, None)
        return self._parameters[key]

    def sent(self, pair: TensorPair) -> list[Sequence[tuple[Call, int]]]:
        """`(call, gradient)` of what each side's gradient was added up of. The gradient of an input is what one call sent back, or
        the calls in one module; that of an output or a parameter comes from all who took it.
        """
        values = self.values_of(pair)
        found: list[Sequence[tuple[Call, int]]] = []
        for which, number in enumerate((pair.left, pair.right)):
            side, value = self._state.sides[which], values[which]
            if pair.part is Part.INPUT_GRADIENT:
                senders = self._state.senders[which].get(number, ())
                own = [(call, number) for call, of in senders if value is None or of == value] or [
                    (call, number) for call, _ in senders
                ]
                found.append(own[:1] or side.contributions_inside(number))
            else:
                found.append(side.contributions(value) if value is not None else ())
        return found

    def summands(
        self, which: int, number: int, value: int | None, parts: Sequence[tuple[Call, int]]
    ) -> Sequence[tuple[Call, int]] | None:
        """The parts whose sum a gradient is, of the calls that took its value or the same weight under another number."""
        more = [] if value is None else self._state.sides[which].other_contributions(value)
        for offered in ([*parts], [*parts, *more]) if more else ([*parts],):
            chosen = self._state.recomputation.recorded.summands(which, number, [gradient for _, gradient in offered])
            if chosen is not None:
                return [item for item in offered if item[1] in chosen]
        return None

    def lone(self, which: int, parts: Sequence[Sequence[tuple[Call, int]]]) -> list[tuple[Call, int]]:
        """Calls of one side that send a part of a gradient back which has no counterpart on the other, and these parts."""
        other = parts[1 - which]
        theirs = {
            id(self._state.match_of[1 - which].get(call.id))
            for call, _ in other
            if call.id in self._state.match_of[1 - which]
        }
        found = []
        for call, gradient in parts[which]:
            match = self._state.match_of[which].get(call.id)
            if match is None or id(match) not in theirs:
                if gradient in self._state.gradient_of[which]:
                    continue
                found.append((call, gradient))
        return found
