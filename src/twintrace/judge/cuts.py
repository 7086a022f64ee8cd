"""Calls that stop a gradient on one side alone: detach, stop_gradient.

Cuts(state, rounding).cut_off(1)          the call that does so on the right, as a mistake
Cuts(state, rounding).look_for(results)   such calls that no gradient has shown yet are added as mistakes
Cuts(state, rounding).stopped(1, calls)   the call at which the right's gradients end, whatever it does, as a mistake
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.pairs import Layout
from ..model.records import Call
from ..model.results import CallResult, Mistake
from ..operations.sides import inputs_of, name_of, outputs_of
from .detours import is_detour
from .gradient_rounding import GradientRounding
from .rounding import unit
from .state import JudgeState, attach, is_float, only_call

_UNITS = 4.0
"""Units by which two gradients may differ that are one, but for rounding."""
_LONGEST = 64
"""Values between a cut and those whose gradients both sides have, at most."""


class Cuts:
    """Finds calls that stop gradients."""

    def __init__(self, state: JudgeState, rounding: GradientRounding) -> None:
        self._state = state
        self._rounding = rounding

    def cut_off(self, which: int) -> tuple[Mistake, Call] | None:
        """The call that stops the gradients of one side, where the other sends them on."""
        call = self._cut(which)
        return None if call is None else self._told(which, call)

    def lone(self, which: int) -> tuple[Mistake, Call] | None:
        """The same of a call that stops the gradient of a value which was compared with none: for gradients that differ."""
        side = self._state.sides[which]
        for call in side.calls:
            meaning = side.meaning(call) if side.is_leaf(call) and call.id not in self._state.match_of[which] else None
            if (
                meaning is not None
                and meaning.operation == "detach"
                and any(map(side.leads_to_gradients, meaning.results))
            ):
                return self._told(which, call)
        return None

    def _stop(self, which: int, calls: Sequence[Call]) -> Call | None:
        """The call on the way from some others whose results want no gradient, though what it takes does: it lets none through, as
        a write that a framework keeps no gradient of. None if there is none before calls that have gradients.
        """
        side = self._state.sides[which]
        waiting, seen = [*calls], {call.id for call in calls}
        while waiting:
            call = waiting.pop(0)
            made = [number for number in outputs_of(call).values() if is_float(side.tensor(number).spec.dtype)]
            if made and not any(side.tensor(number).requires_grad for number in made):
                if any(map(side.leads_to_gradients, made)):
                    return call
                continue
            takers = [taker for number in made for taker in side.takers(number) if taker.id not in seen]
            waiting += takers
            seen.update(taker.id for taker in takers)
        return None

    def stopped(self, which: int, calls: Sequence[Call]) -> tuple[Mistake, Call] | None:
        """That call as a mistake."""
        stop = self._stop(which, calls)
        if stop is None:
            return None
        side, other = (("left", "right"), ("right", "left"))[which]
        behind = f", and so none to {name_of(calls[0])}" if stop not in calls else ""
        match = self._state.match_of[which].get(stop.id)
        left, right = (match.left, match.right) if match is not None else only_call(which, stop)
        mistake = Mistake(
            "gradient",
            f"the {side} lets no gradient through: {name_of(stop)}",
            f"no gradient comes back through {name_of(stop)} on the {side}{behind}",
            f"let the gradient through on the {side}, or see why the {other} does",
            side, backward=True, left=left, right=right,
        )  # fmt: skip
        return mistake, stop

    def _told(self, which: int, call: Call) -> tuple[Mistake, Call]:
        side = ("left", "right")[which]
        what = f"the {side} cuts the gradient: {name_of(call)}"
        why = f"only the {side} calls {name_of(call)}: no gradient goes back beyond it"
        left, right = only_call(which, call)
        mistake = Mistake(
            "gradient", what, why, f"remove it from the {side}, or see why the other does without", side, backward=True,
            left=left, right=right,
        )  # fmt: skip
        return mistake, call

    def _cut(self, which: int) -> Call | None:
        """A call on one side that stops a gradient which the other side sends on: detach, stop_gradient."""
        side, other = self._state.sides[which], self._state.sides[1 - which]
        for call in reversed(side.calls):
            meaning = side.meaning(call) if side.is_leaf(call) else None
            if meaning is None or meaning.operation != "detach" or call.id in self._state.match_of[which]:
                continue
            for _, operand in meaning.operands():
                partner = self._state.partner(which, side.origin(operand.tensor))
                used = any(side.leads_to_gradients(number) for number in meaning.results)
                if is_detour(self._state.standing(which, side.origin(operand.tensor))):
                    continue  # another value than its partner, on another way to the same result
                if used and partner is not None and other.has_gradient(partner):
                    return call
        return None

    def look_for(self, results: list[CallResult]) -> None:
        """A call that stops a gradient on one side alone is a mistake if the gradients of what it takes differ."""
        for which in (0, 1):
            cut = self.cut_off(which)
            if cut is None or any(mistake.why == cut[0].why for mistake in self._state.always):
                continue
            if any(mistake.why == cut[0].why for result in results for mistake in result.mistakes):
                continue
            meaning = self._state.sides[which].meaning(cut[1])
            assert meaning is not None
            (value,) = {operand.tensor for _, operand in meaning.operands()} or {-1}
            value = self._state.sides[which].origin(value)
            partner = self._state.partner(which, value)
            here, there = self._state.sides[which].gradient(value), self._state.sides[1 - which].gradient(partner)
            if there is None or (here is not None and not self._differ(which, here, there, self._rounding.least)):
                continue
            if here is None and self._cancels(which, value):
                continue
            self._state.always.add(cut[0])
            attach(results, cut[1], which, cut[0])

    def _cancels(self, which: int, value: int) -> bool:
        """True if gradients of what a value is made of are equal but for rounding, although one side sends none back through it,
        as through the largest score that a softmax takes off.
        """
        side, other = self._state.sides[which], self._state.sides[1 - which]
        waiting, seen, compared = [value], {value}, False
        while waiting:
            maker = side.maker(waiting.pop())
            if maker is None or len(seen) > _LONGEST:
                return False
            for number in inputs_of(maker).values():
                partner = self._state.partner(which, number)
                here, there = side.gradient(number), other.gradient(partner)
                if here is not None and there is not None:
                    compared = True
                    types = side.tensor(here).spec.dtype, other.tensor(there).spec.dtype
                    if self._differ(which, here, there, _UNITS * unit(*types)):
                        return False
                elif number not in seen:
                    seen.add(number)
                    waiting.append(number)
        return compared

    def _differ(self, which: int, here: int, there: int, least: float) -> bool:
        """True if two gradients of the same value differ by so much, relative to the larger."""
        left, right = (here, there) if which == 0 else (there, here)
        return self._state.recomputation.recorded.apart((left, right), Layout(), [[left], [right]]) >= least
