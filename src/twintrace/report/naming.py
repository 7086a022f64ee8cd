"""Names of calls, places and tensors as people would say them, for every report.

encoder.norm (LayerNorm)                     a module
torch.nn.functional.linear in head | …       a function in a module; both sides, where they differ
the output 0, f32[4, 16]                     a tensor
model.py:21 in forward: x = self.norm(x)     a line of the user's code
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.pairs import Part
from ..model.records import Call
from ..model.results import CallResult, Comparison, Divergence, Mistake, TensorResult, blamed
from ..model.sites import Kind, Phase
from ..model.words import dotted

UPDATE = 2
"""Divergence.place of an optimizer's step."""


def updates(place: CallResult) -> bool:
    """True of an optimizer's step."""
    return bool(place.match.left) and place.match.left[0].site.phase is Phase.UPDATE


def places_of(place: CallResult, mistake: Mistake | None = None) -> tuple[str, str]:
    """Names of a place on both sides; the side that makes no such call has none."""
    left, right = blamed(place, mistake)
    if not left and not right:
        pair = place.tensors[0].pair
        return f"the gradient of {pair.left_slot}", f"the gradient of {pair.right_slot}"
    return _region(left) if left else "", _region(right) if right else ""


def places(place: CallResult, mistake: Mistake | None = None) -> str:
    """Names of a place on both sides, once if they are the same."""
    left, right = places_of(place, mistake)
    if not left or not right:
        return f"{left or right}, on the {'left' if left else 'right'} alone"
    return left if left == right else f"{left} | {right}"


def _region(calls: Sequence[Call]) -> str:
    return single_place(calls[0]) if len(calls) == 1 else f"{single_place(calls[0])} … {single_place(calls[-1])}"


def single_place(call: Call) -> str:
    """A call as people would name it."""
    site = call.site
    count = f" (call {site.call + 1} of the step)" if site.call else ""
    if site.kind is Kind.MODULE:
        return f"{site.name or 'the model'} ({site.type}){count}"
    inside = f" in {site.path}" if site.path else ""
    return f"{site.name}{inside}{count}"


def source_of(calls: Sequence[Call]) -> str:
    """The line of the user's code that made the first of these calls."""
    if not calls:
        return "(makes no such call)"
    frames = [call.stack[0] for call in calls if call.stack]
    if not frames:
        return "(no source line was recorded)"
    more = f"  (and {len(calls) - 1} {'call' if len(calls) == 2 else 'calls'} more)" if len(calls) > 1 else ""
    return f"{frames[0]}{more}"


def tensor_name(item: TensorResult, held: str = "") -> str:
    """`the output 0, f32[4, 16]`, and of which parameter, if that is known."""
    slots = dict.fromkeys(filter(None, (item.pair.left_slot, item.pair.right_slot)))
    spec = str(item.left.spec) if item.left.spec == item.right.spec else f"{item.left.spec} | {item.right.spec}"
    return f"the {item.pair.part} {' | '.join(slots)}".rstrip() + (f" ({held})" if held else "") + f", {spec}"


def held_name(result: Comparison, parting: Divergence, slot: str) -> str:
    """Name in the model, `fc1.weight`, of what an optimizer has as `parameters.14`, `gradients.14` or `state.14.exp_avg`."""
    number = next((part for part in reversed(slot.split(".")) if part.isdigit()), "")
    if parting.place != UPDATE or not number:
        return ""
    taken = {item.pair.left_slot: item.pair.left for item in parting.result.tensors if item.pair.part is Part.INPUT}
    parameter = taken.get(f"0.{number}")
    for other in result.at(parting.result.step, parting.result.rank) if parameter is not None else ():
        if other.match.left:
            for item in other.tensors:
                if item.pair.part is Part.PARAMETER and item.pair.left == parameter:
                    return dotted(other.match.left[0].site.name, item.pair.left_slot)
    return ""


def legible(text: str) -> str:
    """Names come from a file: a line break or a terminal's control sequence among them is shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
