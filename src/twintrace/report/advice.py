"""Advice: the line of code to change, or the recording that would tell more. Advice that is fulfilled already is not given."""

from __future__ import annotations

import re

from ..model.pairs import Part
from ..model.records import Call
from ..model.results import Comparison, Divergence, Mistake
from ..model.verdicts import Outcome
from .naming import UPDATE, held_name, single_place, source_of


def recording(result: Comparison) -> str:
    """The recording that would settle an open verdict; advice that is fulfilled already is not given."""
    told = " ".join(result.untold)
    if not told:
        return "write again what is damaged, and compare again"
    wanted = []
    if ("not kept" in told or "statistics" in told) and not recorded_with(result, "keep", "tensor"):
        wanted.append("keep='tensor'")
    modules_alone = any(str(side.settings.get("level")) == "module" for side in (result.left, result.right))
    if modules_alone or ("level" in told and not recorded_with(result, "level", "mix", "op")):
        wanted.append("level='mix'")
    if wanted:
        return f"record both runs with {', '.join(wanted)} and compare again"
    unknown = re.search(r"(\S+) is not among the operations", told)
    if unknown is not None:
        return f"{unknown[1]} cannot be recomputed: compare its results yourself, with tolerances (--rtol, --atol)"
    return "no other recording would tell: compare these results yourself, with tolerances (--rtol, --atol)"


def recorded_with(result: Comparison, name: str, *values: str) -> bool:
    """True if both sides were recorded so."""
    return all(str(side.settings.get(name, "")) in values for side in (result.left, result.right))


def telling_settings(parting: Divergence) -> list[tuple[str, tuple[str, str]]]:
    """Settings that differ and that the cause does not name already; none where the cause is proven."""
    settings = list(parting.result.settings.items())
    if parting.mistake is None:
        return settings
    why = f"{parting.mistake.why} {parting.mistake.what}"
    elsewhere = bool(parting.mistake.left or parting.mistake.right)  # settings are those of the pair that shows it
    if "→" in why or elsewhere or parting.mistake.kind in ("random", "leaf", "weights"):
        return []
    return [(name, pair) for name, pair in settings if re.search(rf"\b{re.escape(name)}\b", why) is None]


def advice(result: Comparison, parting: Divergence) -> str:
    """The line of code to change, or the recording that would tell more."""
    other_weights = parting.mistake is not None and parting.mistake.kind == "weights"
    if other_weights or (parting.inherited and any(map(parting.result.holds, parting.tensors))):
        if _had_the_same_weights(result, parting):
            where = "look at the optimizer's step, its settings and what it takes (zero_grad, clipping)"
            level = "" if recorded_with(result, "level", "mix", "op") else "; level='mix' records it"
            return f"the weights were the same in step {parting.result.step - 1}: {where}{level}"
        return "give both sides the same weights and compare again"
    lone = _lone_gradient(result, parting) if parting.mistake is None or not parting.mistake.advice else ""
    if lone:
        return lone
    if parting.mistake is not None:
        return _change(result, parting, parting.mistake)
    if parting.advice:
        return parting.advice
    names = list(parting.result.settings)
    if parting.inherited and parting.result.match.left and not parting.after:
        return "compare what the two runs were fed: data, preprocessing, order, dtype"
    near = None if parting.backward else _nearest_alone(result, parting)
    if near is None and parting.inherited and not parting.backward:
        near = _nearest_alone(result, parting, skipped=True)  # a padding that was taken to mean nothing
    if near and (parting.inherited or not names):
        return f"look at what only the {near[0]} calls before it: {single_place(near[1])}, {source_of([near[1]])}"
    if parting.inherited:
        more = [] if recorded_with(result, "level", "mix", "op") else ["level='mix'"]
        more += [] if 0 in result.left.steps and 0 in result.right.steps else ["every step from the first"]
        if more:
            return f"record more: {', and '.join(more)}"
        return (
            "look at what comes in: it was made by code that is not recorded (NumPy, a compiled graph, another library)"
        )
    if names:
        return f"give both sides the same {', '.join(names[:3])}"
    if parting.tensors and parting.tensors[0].pair.part.incoming and not parting.backward:
        return "give both sides their arguments in the same order"
    if any(item.left.spec.dtype != item.right.spec.dtype for item in parting.tensors):
        return "compute in the same dtype on both sides"
    if any(not item.skipped for _, _, item in (*result.only_left, *result.only_right)):
        return "look at the two lines above, and at the calls that only one side makes (--table)"
    return "look at the two lines above: the same input gives another output"


def _change(result: Comparison, parting: Divergence, mistake: Mistake) -> str:
    """Advice for a mistake, with the line that it is about."""
    left, right = parting.calls
    calls = (left if mistake.side == "left" else right) or left
    frame = next((call.stack[0] for call in calls if call.stack), None)
    line = f": {frame.place}" if frame is not None else ""
    told = parting.advice or mistake.advice
    if "level='mix'" in told and recorded_with(result, "level", "mix", "op"):
        told = ""
    if told:
        return told if mistake.kind in ("leaf", "weights", "random") or "record" in told else f"{told}{line}"
    if mistake.kind == "unproven" and "not kept" in mistake.what and not recorded_with(result, "keep", "tensor"):
        return "record both runs with keep='tensor': then the values are recomputed"
    near = None if parting.backward else _nearest_alone(result, parting)
    if near is not None and mistake.kind != "kernel":
        return f"look at what only the {near[0]} calls before it: {single_place(near[1])}, {source_of([near[1]])}"
    # What two calls compute was tried with each other's settings: one that is left explains nothing.
    names = [name for name, _ in telling_settings(parting)] if mistake.kind != "meaning" else []
    if names:
        return f"give both sides the same {', '.join(names[:3])}{line}"
    return f"look at what the two {'lines above' if line else 'calls'} do differently{line}"


def _lone_gradient(result: Comparison, parting: Divergence) -> str:
    """An optimizer that is given a gradient on one side only."""
    match = parting.result.match
    for side, other, strays in (("left", "right", match.only_left), ("right", "left", match.only_right)):
        slots = [stray.slot for stray in strays if stray.part is Part.INPUT and ".gradients." in f".{stray.slot}"]
        if slots and parting.place == UPDATE:
            name = held_name(result, parting, slots[0]) or slots[0].removeprefix("kw.")
            more = f" and of {len(slots) - 1} more" if len(slots) > 1 else ""
            return f"only the {side} has a gradient of {name}{more}: is it frozen, or out of the loss, on the {other}?"
    return ""


def _had_the_same_weights(result: Comparison, parting: Divergence) -> bool:
    """Did these calls take the same weights in the step before?"""
    earlier = result.at(parting.result.step - 1, parting.result.rank)
    weights = [item for before in earlier for item in before.tensors if before.holds(item)]
    return bool(weights) and all(item.verdict.outcome is not Outcome.DIFFERENT for item in weights)


def _nearest_alone(result: Comparison, parting: Divergence, *, skipped: bool = False) -> tuple[str, Call] | None:
    """The last call before the parting, or inside it, that only one side makes and that means something; or seems not to."""
    place, match = (parting.result.step, parting.result.rank), parting.result.match
    near: list[tuple[int, str, Call]] = []
    for side, alone, here in (("left", result.only_left, match.left), ("right", result.only_right, match.right)):
        until = max((call.order for call in here), default=0)
        near += [
            (until - item.call.order, side, item.call)
            for step, rank, item in alone
            if (step, rank) == place and item.skipped is skipped and item.call.order < until
        ]
    first = min(near, key=lambda item: item[:2], default=None)
    return first[1:] if first else None
