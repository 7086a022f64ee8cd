"""Results of the run: outputs of outermost modules, losses, new values of parameters, state that is written to.

    Ends(state).of[0]          results of the left, and the calls that made them
    Ends(state).told[1]        those of the right that are told without a partner: computed again, or parts of another result
    Ends(state).unpaired(0)    results of the left that were compared with none and are not told

A mistake counts if it reaches one of them.
"""

from __future__ import annotations

from ..model.pairs import Match, Part
from ..model.records import Call
from ..model.results import TensorResult
from ..model.sites import Kind, Phase
from ..model.values import TensorRef, leaves
from ..operations.families import family_of
from ..operations.sides import inputs_of, name_of, outputs_of
from ..operations.traits import traits_named
from .state import JudgeState, is_float

_WITH_STATISTICS = frozenset(("layer_norm", "group_norm", "batch_norm", "rms_norm", "scaled_dot_product_attention"))
"""Families whose kernels put out more than their result."""


class Ends:
    """Results of the run on both sides."""

    def __init__(self, state: JudgeState) -> None:
        self._state = state
        self.of = self._ends(0), self._ends(1)
        """Results and the calls that made them, of each side."""
        self.told: tuple[set[int], set[int]] = (set(), set())
        """Results that need no comparison of their own, of each side."""

    def unpaired(self, which: int) -> dict[int, Call]:
        """Results of one side that were compared with none, and are not told either."""
        compared = self._state.known[which] | self.told[which]
        return {number: call for number, call in self.of[which].items() if number not in compared}

    def has(self, item: TensorResult) -> bool:
        """True if a pair is a result of the run, by its part or by the left tensor."""
        part = item.pair.part
        return part in (Part.PARAMETER_GRADIENT, Part.AFTER) or (part is Part.OUTPUT and item.pair.left in self.of[0])

    def is_gradient_of_data(self, match: Match, item: TensorResult) -> bool:
        """True of what the backward pass gives for the inputs of the outermost modules: it is there if somebody asked for it."""
        calls = (*match.left, *match.right)
        given = all(
            side.maker(number) is None
            for which, side in enumerate(self._state.sides)
            for _, number in self._state.senders[which].get((item.pair.left, item.pair.right)[which], ())
        )
        outermost = bool(calls) and all(call.parent is None and call.site.kind is Kind.MODULE for call in calls)
        return item.pair.part is Part.INPUT_GRADIENT and outermost and given

    def _ends(self, which: int) -> dict[int, Call]:
        """Outputs of outermost modules, losses, and what nobody takes where there is no module."""
        side = self._state.sides[which]
        modules = [call for call in side.calls if call.parent is None and call.site.kind is Kind.MODULE]
        trained = any(call.gradients for call in side.calls)
        found: dict[int, Call] = {}
        for call in modules:
            found.update(dict.fromkeys(outputs_of(call).values(), call))
        for call in side.calls:
            if not side.is_leaf(call) or call.site.phase is Phase.BACKWARD:
                continue
            inner = call.parent is not None or (trained and not call.gradients)
            traits = traits_named(name_of(call))
            if (modules and inner and call.site.phase is not Phase.UPDATE) or traits.uninitialised:
                continue
            made = [number for number in outputs_of(call).values() if not self._is_taken(which, call, number)]
            if len(made) < len(outputs_of(call)) and (traits.moves or traits.chooses):
                made = []  # parts that are left over of a value; the largest values, where their places are taken
            made = [number for number in made if side.tensor(number).device != "meta"]  # a shape, and nothing in it
            if call.site.phase is Phase.UPDATE:  # counts of steps are nobody's result
                specs = {number: side.tensor(number).spec for number in made}
                made = [number for number in made if specs[number].shape and specs[number].dtype[0] not in "iu"]
            found.update(dict.fromkeys(made, call))
        return found | self._written_state(which)

    def _is_taken(self, which: int, maker: Call, number: int) -> bool:
        """True if a call takes a value, and not its shape alone: the backward pass begins with ones like the loss. What a kernel
        makes for its backward pass alone is nobody's result. Others take what a kernel writes in place, or a view of a weight, as a
        copy made unseen: PyTorch notes both after it.
        """
        side = self._state.sides[which]
        if number in _kept_for_backward(maker):
            return True
        if (
            maker.site.kind is Kind.OP
            and side.tensor(number).spec.dtype == "u8"
            and traits_named(name_of(maker)).recurrent
        ):
            return True
        # A tensor of several parts (a jagged one) cannot be recognised by its memory, and has a number for each time it is seen.
        seen_anew = maker.site.kind is Kind.OP or side.tensor(number).parts
        for own in (number, *(side.copies_of(number) if seen_anew else ())):
            meanings = [side.meaning(call) for call in side.takers(own)]
            if any(
                meaning is None or any(item.tensor == own for _, item in meaning.operands()) for meaning in meanings
            ):
                return True
        return False

    def _written_state(self, which: int) -> dict[int, Call]:
        """State that a step leaves in tensors that were there before it, as it is last: buffers and attributes."""
        side = self._state.sides[which]
        there = {number for call in side.calls for number in call.buffers.values()}
        last: dict[int, Call] = {}
        for call in sorted(side.calls, key=lambda item: item.order):
            if not call.mutates or not side.is_leaf(call) or call.site.phase is not Phase.FORWARD:
                continue
            taken, made = inputs_of(call), outputs_of(call)
            for slot in call.mutates:
                before, after = taken.get(slot), made.get(f"after.{slot}", made.get(""))
                if before is None or after is None or (before not in there and side.maker(before) is not None):
                    continue
                if before not in there and self.is_cleared_gradient(which, call, after):
                    continue
                last.pop(before, None)
                last[after] = call
                there.add(after)
        return {number: call for number, call in last.items() if is_float(side.tensor(number).spec.dtype)}

    def changes_state(self, which: int, call: Call, number: int) -> bool:
        """True if a result of a call of the forward pass is something that was there before the run, and that the call writes to.
        `h += x` on a value of the run's own changes no state of the network.
        """
        return call.site.phase is Phase.FORWARD and self._state.sides[which].is_written_state(call, number)

    def is_cleared_gradient(self, which: int, call: Call, after: int) -> bool:
        """True if a call sets to zero what has the shape of a parameter and what nobody takes, in a step that ends with an update:
        a gradient of the step before, where others let it go.
        """
        side = self._state.sides[which]
        meaning = side.meaning(call)
        if meaning is None or meaning.operation != "fill" or meaning.arguments.get("value") != 0 or side.takers(after):
            return False
        shape = side.tensor(after).spec.shape
        return any(
            call.site.phase is Phase.UPDATE
            and any(side.tensor(number).spec.shape == shape for number in inputs_of(call).values())
            for call in side.calls
        )


def writes_in_place(call: Call) -> bool:
    """True of a kernel that writes in place. PyTorch notes the write after it, so that others take the result as an unseen copy."""
    return call.site.kind is Kind.OP and bool(call.mutates)


def _kept_for_backward(call: Call) -> frozenset[int]:
    """Results that a kernel makes beside its own for its backward pass: statistics of a norm, sums and seeds of an attention."""
    if family_of(name_of(call)) not in _WITH_STATISTICS:
        return frozenset()
    return frozenset([leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)][1:])
