"""Values of the forward pass that are written to through a view, so that their gradients go another way than the calls.

    base ─ view ─ transpose ─▶ y        y[:, :2] = z        y is another node of the graph afterwards, made of base and z alone

    passes_unseen(side, call)       a call that writes in place, and of which no gradient was recorded although it has one
    is_written_over(side, y)        True: what was recorded as its gradient is the part that goes to it as it was before
    is_view(side, y)                True: y is made of base by moves alone

PyTorch gives the whole gradient to the base. No tensor is opened.
"""

from __future__ import annotations

from ..model.records import Call
from ..model.sites import Phase
from .sides import Side, inputs_of, outputs_of
from .traits import traits_of


def passes_unseen(side: Side, call: Call) -> bool:
    """True if a call writes to what it takes, and its results have gradients, but none of its own was recorded."""
    if not call.mutates or call.gradients or call.site.phase is not Phase.FORWARD:
        return False
    return any(side.leads_to_gradients(number) for number in outputs_of(call).values())


def is_written_over(side: Side, number: int) -> bool:
    """True if a value, or a view of it, is written to by such a call."""
    waiting, seen = [number], {number}
    while waiting:
        here = waiting.pop()
        for call in side.takers(here):
            if passes_unseen(side, call) and here in (inputs_of(call).get(slot) for slot in call.mutates):
                return True
            if _moves(side, call):
                made = set(outputs_of(call).values()) - seen
                seen |= made
                waiting += made
    return False


def is_view(side: Side, number: int) -> bool:
    """True if a value is made of another by a move, or is what was left in one that was written to."""
    maker = side.maker(number)
    return maker is not None and (_moves(side, maker) or passes_unseen(side, maker))


def _moves(side: Side, call: Call) -> bool:
    meaning = side.meaning(call)
    return meaning is not None and traits_of(meaning).moves and not call.mutates
