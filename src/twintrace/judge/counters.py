"""Counters: integers that the calls of a run count on, and that nothing else takes, as `num_batches_tracked` of a batch norm.

is_idle_counter(side, number)       True if no result of the run depends on it
are_idle_counters(state, pair)      the same of both of a pair
"""

from __future__ import annotations

from ..model.pairs import TensorPair
from ..model.records import Call
from ..model.sites import Kind, Phase
from ..operations.sides import Side, inputs_of, outputs_of
from .state import JudgeState


def are_idle_counters(state: JudgeState, pair: TensorPair) -> bool:
    """True of two counters of which nothing is computed on their sides."""
    return all(is_idle_counter(side, number) for side, number in zip(state.sides, (pair.left, pair.right), strict=True))


def is_idle_counter(side: Side, number: int) -> bool:
    """True of one integer that calls of the forward pass only write to. Where `momentum=None`, a batch norm has a share of one over
    its counter: the call that reads it as a number of Python's takes it as well.
    """
    spec = side.tensor(number).spec
    if spec.shape or spec.dtype[0] not in "iu":
        return False
    maker = side.maker(number)
    counted = any(_writes_alone(call, number) for call in side.takers(number)) or (maker is not None and maker.mutates)
    if not counted and not side.is_buffer(number):
        return False  # a number that is given to the network, and that Python may have read
    waiting, seen = [number], {number}
    while waiting:
        current = waiting.pop()
        for own in (current, *side.copies_of(current)):
            for call in side.takers(own):
                if not (_writes_alone(call, own) or _holds_alone(side, call, own)):
                    return False
                if call.site.kind is not Kind.MODULE:
                    fresh = set(outputs_of(call).values()) - seen
                    waiting += fresh
                    seen |= fresh
    return True


def _writes_alone(call: Call, number: int) -> bool:
    """True if a call takes a tensor to write to it, and for nothing else."""
    slots = [slot for slot, taken in inputs_of(call).items() if taken == number]
    return call.site.phase is Phase.FORWARD and call.site.kind is not Kind.MODULE and set(slots) <= set(call.mutates)


def _holds_alone(side: Side, call: Call, number: int) -> bool:
    """True if a module in which nothing was recorded holds a tensor, and its operation takes neither it nor one over it."""
    meaning = side.meaning(call) if number in call.buffers.values() else None
    if meaning is None or meaning.arguments.get("momentum") is None:
        return False
    return all(operand.tensor != number for _, operand in meaning.operands())
