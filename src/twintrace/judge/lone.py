"""Results, gradients and updates that one side alone has, and calls that one side alone makes.

    lone.find_forgotten_updates(results)    parameters that an optimizer of one side does not take
    lone.find_results()                     results without a partner
    lone.find_gradients(results)            gradients of parameters that one side alone has: a cut, a weight that is not tied
    lone.find_calls()                       calls without a partner of which nothing that was compared tells
    lone.differences, lone.untold           a sentence for each that no mistake explains

Asked after `unpaired.py` has looked for partners.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ..model.pairs import Bearing, Stray
from ..model.records import Call
from ..model.results import CallResult, Mistake
from ..model.sites import Kind, Phase
from ..model.verdicts import Outcome
from ..operations.sides import inputs_of, name_of, outputs_of
from ..operations.traits import traits_of
from .backward import Gradients
from .counters import is_idle_counter
from .ends import Ends, writes_in_place
from .loss_scale import LossScale
from .settings import other_arguments
from .split_parameters import SplitParameters
from .state import JudgeState, attach, is_float

_NAMED = 3
"""Parameters that a sentence names before it counts the others."""


class Lone:
    """Tells of what one side alone has."""

    def __init__(
        self, state: JudgeState, ends: Ends, scale: LossScale, gradients: Gradients, split: SplitParameters
    ) -> None:
        self._state = state
        self._ends = ends
        self._scale = scale
        self._cuts = gradients.cuts
        self._gradients = gradients
        self._split = split
        self.differences: list[str] = []
        """Sentences on results and gradients of one side that count as differences of the run."""
        self.untold: list[str] = []
        """Sentences on results and calls of one side of which nothing is known."""

    def find_forgotten_updates(self, results: list[CallResult]) -> None:
        """Adds the mistakes of optimizers that do not take a parameter which the other side's updates. What becomes of it in later
        steps comes from that, and its state is no result of its own.
        """
        for which, side in enumerate(("left", "right")):
            other = ("right", "left")[which]
            updates = [call for call in self._state.sides[1 - which].calls if call.site.phase is Phase.UPDATE]
            taken = {number for call in updates for number in inputs_of(call).values()}
            by_call: dict[int, tuple[Call, list[tuple[int, int, str]]]] = {}
            for number, call in self._ends.unpaired(which).items():
                partner = self._forgotten(which, call, number, taken)
                if partner is not None:
                    name = self._state.sides[which].parameter_name(_updated(call, number) or -1) or "a parameter"
                    by_call.setdefault(call.id, (call, []))[1].append((number, partner, name))
            for call, forgotten in by_call.values():
                names = _listed([name for *_, name in forgotten])
                mistake = Mistake(
                    "meaning",
                    f"only the {side}'s optimizer updates {names}",
                    f"the {other}'s optimizer is not given {names}",
                    f"give {names} to the {other}'s optimizer",
                    other,
                )
                before = [self._state.standing(which, _updated(call, number) or -1) for number, *_ in forgotten]
                # If all differ, an earlier step has told it.
                if any(standing.outcome is not Outcome.DIFFERENT for standing in before):
                    self._state.always.add(mistake)
                    attach(results, call, which, mistake)
                for number, partner, _ in forgotten:
                    self._ends.told[which].update({number, *_state_beside(call, number)})
                    tensors = self._state.tensors(*((partner, number) if which else (number, partner)))
                    self._state.leave_behind(tensors, Outcome.DIFFERENT, frozenset((mistake,)))

    def _forgotten(self, which: int, call: Call, number: int, taken: Collection[int]) -> int | None:
        """The other side's value of a parameter that one side's optimizer updates and the other's does not take, though the
        network has it. `taken` are the tensors that the other's takes.
        """
        before = _updated(call, number) if call.site.phase is Phase.UPDATE else None
        partner = None if before is None else self._state.partner(which, before)
        other = self._state.sides[1 - which]
        if before is None or partner is None or not taken:
            return None
        if math.prod(other.tensor(partner).spec.shape) != math.prod(self._state.sides[which].tensor(before).spec.shape):
            return None
        return None if partner in taken else partner

    def find_results(self) -> None:
        """Tells of results that one side alone has."""
        alone = self._ends.unpaired(0), self._ends.unpaired(1)
        for which, side in enumerate(("left", "right")):
            other = ("right", "left")[which]
            for number, call in alone[which].items():
                if self._is_own_state(which, call, number):
                    continue
                if is_idle_counter(self._state.sides[which], number):
                    self._ends.told[which].add(number)
                    continue
                spec = self._state.sides[which].tensor(number).spec
                maker = self._state.sides[which].maker(number) or call
                if self._is_known_otherwise(which, maker, number, bool(alone[1 - which])):
                    self._ends.told[which].add(number)
                    continue
                if self._ends.changes_state(which, call, number):
                    self.differences.append(
                        f"only the {side} changes a state of the network, {spec}, by {name_of(call)}"
                    )
                elif call.gradients and call.site.kind is not Kind.MODULE:
                    self.differences.append(f"only the {side} computes {name_of(maker)} of the result, {spec}")
                elif call.site.kind is not Kind.MODULE or alone[1 - which]:
                    self.untold.append(
                        f"the {side}'s result of {name_of(maker)}, {spec}, was compared with none of the {other}'s"
                    )

    def _is_known_otherwise(self, which: int, call: Call, number: int, others: bool) -> bool:
        """True of what is no result of its own: a view of a value that was compared, of which others took the shape, or that
        nobody takes where the other side has no result to compare (`others`); places of elements beside the elements.
        """
        side = self._state.sides[which]
        meaning = side.meaning(call) if call.site.kind is not Kind.MODULE and not call.mutates else None
        if meaning is None:
            return False
        traits = traits_of(meaning)
        if (traits.moves and side.takers(number)) or ((traits.moves or traits.casts) and not others):
            return all(operand.tensor in self._state.known[which] for _, operand in meaning.operands())
        beside = [other for other in outputs_of(call).values() if other != number and side.takers(other)]
        return bool(beside) and not is_float(side.tensor(number).spec.dtype)

    def _is_own_state(self, which: int, call: Call, number: int) -> bool:
        """True of an optimizer's state that the other side keeps otherwise, or that is noise there, where both steps mean the same.

        The parameters show what became of it; a kernel that is wrong was told by its audit.
        """
        slot = next((slot for slot, made in outputs_of(call).items() if made == number), "")
        match = self._state.match_of[which].get(call.id)
        if call.site.phase is not Phase.UPDATE or not slot.startswith("state.") or match is None:
            return False
        meaning = self._state.sides[which].meaning(call)
        for partner in (match.left, match.right)[1 - which]:
            other = self._state.sides[1 - which].meaning(partner)
            if meaning is None or other is None or meaning.operation != other.operation:
                return False
            if other_arguments(meaning, other):
                return False
        return True

    def find_gradients(self, results: list[CallResult]) -> None:
        """Tells of gradients of parameters that one side alone has; cuts and ties that explain them are added as mistakes.

        One of zeros is what a framework gives for a parameter without use.
        """
        strays = self._state.alignment.stray_left, self._state.alignment.stray_right
        self.differences += self._split.differences
        for which, (side, other) in enumerate((("left", "right"), ("right", "left"))):
            open_: list[Stray] = []
            for stray in strays[which]:
                known = self._state.sides[which].tensor(stray.tensor).statistics
                if stray.tensor in self._split.compared[which] or self._is_taken_alike(which, stray.tensor):
                    continue
                if known is not None and not known.norm:
                    continue
                value = self._state.sides[which].parameter(stray.slot)
                if value is None:  # no module holds it at this level
                    value = self._gradients.parameter_by_gradient(which, stray.tensor)
                if self._is_open(which, stray, value):
                    open_.append(stray)
                    continue
                if value is not None and self._state.sides[1 - which].is_buffer(self._state.partner(which, value)):
                    self._state.remarks.append(f"{stray.slot} is a parameter on the {side} and a buffer on the {other}")
                    continue
                tie = self._tie(which, stray.slot, value)
                explained = tie or self._cuts.cut_off(1 - which) or self._stopped(1 - which, value)
                if explained is not None:
                    mistake, call = explained
                    if mistake not in self._state.always:
                        self._state.always.add(mistake)
                        attach(results, call, which if tie is not None else 1 - which, mistake)
                    continue
                self.differences.append(
                    f"only the {side} has a gradient of {stray.slot}: is it frozen, or out of the loss, on the {other}?"
                )
            if open_:
                kept = all(self._state.sides[which].tensor(stray.tensor).payload is not None for stray in open_)
                names = _listed([stray.slot for stray in open_])
                why = "" if kept else ": values were not kept"
                self.untold.append(
                    f"of the {side}, the gradient of {names} was compared with none of the {other}'s{why}"
                )

    def _stopped(self, which: int, value: int | None) -> tuple[Mistake, Call] | None:
        """The call that lets no gradient through to a weight of one side, which wants one, by the other side's number of it."""
        partner = None if value is None else self._state.partner(1 - which, value)
        side = self._state.sides[which]
        if partner is None or not side.tensor(partner).requires_grad or side.has_gradient(partner):
            return None
        return self._cuts.stopped(which, side.takers(partner))

    def _is_open(self, which: int, stray: Stray, value: int | None) -> bool:
        """True if it is not known whether the other side has a gradient too: the parameter was compared with none, or may be one of
        those there which have no partner either.
        """
        if value is not None:
            return value not in self._state.known[which]
        rank = len(self._state.sides[which].tensor(stray.tensor).spec.shape)
        strays = (self._state.alignment.stray_left, self._state.alignment.stray_right)[1 - which]
        free = (other.tensor for other in strays if other.tensor not in self._split.compared[1 - which])
        return any(len(self._state.sides[1 - which].tensor(number).spec.shape) == rank for number in free)

    def _is_taken_alike(self, which: int, gradient: int) -> bool:
        """True if an update takes a gradient, and was compared with one of the other side that takes the same."""
        partner = self._state.partner(which, gradient)
        updates = any(call.site.phase is Phase.UPDATE for call in self._state.sides[which].takers(gradient))
        return updates and partner is not None and self._state.standing(which, gradient).outcome.good

    def _tie(self, which: int, name: str, value: int | None) -> tuple[Mistake, Call] | None:
        """A weight of its own on one side, which the other shares with another layer."""
        if value is None:
            return None
        side, other = ("left", "right") if which == 0 else ("right", "left")
        spec = self._state.sides[which].tensor(value).spec
        for call in (call for call in self._state.sides[which].calls if value in inputs_of(call).values()):
            match = self._state.match_of[which].get(call.id)
            for partner in (match.left, match.right)[1 - which] if match is not None else ():
                shared = None
                for number in inputs_of(partner).values():
                    own = self._state.partner(1 - which, number)
                    if own in (None, value) or own in inputs_of(call).values():
                        continue
                    if (
                        self._state.sides[1 - which].tensor(number).spec == spec
                        and len(self._state.sides[1 - which].takers(number)) > 1
                    ):
                        shared = self._state.sides[1 - which].parameter_name(number)
                if shared is None:
                    continue
                what = f"{name} is not tied: a weight of its own on the {side}, one with {shared} on the {other}"
                why = f"on the {other} the weight is shared (tied to {shared}), so that its gradient has a part more"
                calls = ((call,), (partner,)) if which == 0 else ((partner,), (call,))
                mistake = Mistake(
                    "gradient", what, why, f"tie {name} to {shared} on both sides or on none", backward=True,
                    left=calls[0], right=calls[1],
                )  # fmt: skip
                return mistake, call
        return None

    def find_calls(self) -> None:
        """Tells of calls without a partner on which a result depends that was not compared."""
        alignment = self._state.alignment
        dead: tuple[list[str], list[str]] = ([], [])
        for which, side, calls in ((0, "left", alignment.only_left), (1, "right", alignment.only_right)):
            for alone in calls:
                if alone.skipped or alone.bearing is not Bearing.OPEN or self._is_settled(which, alone.call):
                    continue
                text = f"only the {side} calls {name_of(alone.call)}, and what comes of it was not compared"
                (dead[which] if self._is_dead_end(which, alone.call) else self.untold).append(text)
        if all(dead):  # else it is something to look at, a norm or a maximum, that the other side does not compute
            self.untold += dead[0] + dead[1]

    def _is_dead_end(self, which: int, call: Call) -> bool:
        """True if no result of the run, gradient or state comes of a call, as in logging."""
        side = self._state.sides[which]
        waiting, seen = [call], {call.id}
        while waiting:
            current = waiting.pop()
            made = [*outputs_of(current).values()]
            if current.mutates or current.gradients or any(number in self._ends.of[which] for number in made):
                return False
            following = {taker.id: taker for number in made for taker in side.takers(number) if taker.id not in seen}
            waiting += following.values()
            seen.update(following)
        return True

    def _is_settled(self, which: int, call: Call) -> bool:
        """True if all results that depend on a call without a partner were compared; or if it clears a gradient."""
        side = self._state.sides[which]
        if any(self._ends.is_cleared_gradient(which, call, number) for number in outputs_of(call).values()):
            return True
        waiting = [*outputs_of(call).values()]
        if writes_in_place(call):
            waiting += [copy for number in waiting for copy in side.copies_of(number)]
        seen, reached, scaling = set(waiting), set(), self._scale.keeps(call)
        while waiting:
            number = waiting.pop()
            scaling = scaling or any(map(self._scale.keeps, side.takers(number)))
            if number in self._ends.of[which]:
                reached.add(number)
            if number in self._state.known[which]:
                continue
            more = [made for taker in side.takers(number) for made in outputs_of(taker).values() if made not in seen]
            seen.update(more)
            waiting += more
        return (scaling or bool(reached)) and reached <= self._state.known[which] | self._ends.told[which]


def _updated(call: Call, number: int) -> int | None:
    """The parameter that an optimizer's step made a new value of, as it was before; None of anything else."""
    slot = next((slot for slot, made in outputs_of(call).items() if made == number), "")
    place = slot.rpartition("parameters.")[2]
    return inputs_of(call).get(f"0.{place}") if place.isdigit() else None


def _state_beside(call: Call, number: int) -> list[int]:
    """The state that an optimizer's step keeps of a parameter, by the parameter's new value."""
    made = outputs_of(call)
    place = next((slot for slot, item in made.items() if item == number), "").rpartition(".")[2]
    return [item for slot, item in made.items() if slot.startswith(f"state.{place}.")]


def _listed(names: Sequence[str]) -> str:
    """The first of several names, and how many more there are."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
