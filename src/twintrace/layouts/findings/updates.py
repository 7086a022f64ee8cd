"""Gradients on their way to an optimizer: over the ranks, the stages and the micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...model.records import Call, Role
from ...model.sites import Phase
from ...model.tensors import Spec
from ...model.values import tensor_slots
from ...model.words import dotted
from ...operations.sides import outputs_of
from ..inference import Inference
from ..merging import Merged
from ..placements import Array, Part
from ..placing import VISIBLE
from ..wholes import relative
from .finding import SHOWN, Finding, ranks_text


def gradients_that_stay(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Gradients of copies of a weight that an optimizer takes, each rank its own."""
    names = {number: dotted(call.site.name, name) for call in merged.calls for name, number in call.parameters.items()}
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        slots = dict(tensor_slots(call.args, call.kwargs))
        parameters = {slot.rpartition(".")[2]: number for slot, number in slots.items() if slot.startswith("0.")}
        apart = []
        for slot, number in slots.items():
            owner = parameters.get(slot.rpartition(".")[2])
            if not slot.startswith("kw.gradients.") or owner is None:
                continue
            mine, of = inference.placed.get(number), inference.placed.get(owner)
            if mine is None or of is None:
                continue
            open_axes = [
                axis
                for axis, item in enumerate(of.placements)
                if item.part is Part.REPLICATE and not inference.is_copy(number, axis)
            ]
            if open_axes:
                apart.append((names.get(owner, f"parameter {slot.rpartition('.')[2]}"), number))
        if apart:
            shown = ", ".join(name for name, _ in apart[:SHOWN]) + (
                f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
            )
            yield Finding(
                call,
                f"the ranks update their copies of a weight with different gradients: {shown}",
                "its gradient is not reduced over the ranks before the update",
                "all-reduce the gradients of copied weights before the optimizer's step",
            )


def gradients_between_stages(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients that the first stage of two has of what it sent, and that are not those which the second has computed."""
    made: dict[tuple[Spec, str | None], tuple[Call, int]] = {}
    sent: dict[int, list[int]] = {}
    came: dict[int, int] = {}
    inside = {call.parent for call in merged.calls}
    makers = {number: call for call in merged.calls if call.id not in inside for number in outputs_of(call).values()}
    for call, role, gradient, value in inference.gradients():
        if call.id in inside or value not in inference.placed or gradient not in inference.placed:
            continue
        if role is Role.OUTPUT:
            came[value] = gradient
            whole = inference.whole(value)
            made[whole.spec, whole.fingerprint] = call, value
        else:
            sent.setdefault(value, []).append(gradient)
    for value, gradients in sent.items():
        whole = inference.whole(value)
        known = made.get((whole.spec, whole.fingerprint))
        if known is None or value in makers:
            continue
        call, source = known
        if merged.groups[value][0][0] == merged.groups[source][0][0]:  # of one stage
            continue
        parts = [inference.values(number) for number in dict.fromkeys(gradients)]
        got = inference.values(came[source])
        if got is None or any(part is None or part.shape != got.shape for part in parts):
            continue
        wanted = np.sum([np.asarray(part, np.float64) for part in parts], axis=0)
        if relative(np.asarray(got), wanted) <= VISIBLE:
            continue
        yield Finding(
            call,
            f"the gradient that comes back to what {call.site.name} gives is not the one that the next stage has computed for it"
            + _times(np.asarray(got, np.float64), wanted),
            "the gradient is changed, or another one is received, on its way between two stages",
            "send the gradient of the stage's input as it is, and receive it in the order of the micro-batches",
            backward=True,
        )


def _times(got: Array, wanted: Array) -> str:
    """`: it is 0.5 times that`; nothing where the two are not proportional."""
    factor = float(np.vdot(wanted, got)) / (float(np.vdot(wanted, wanted)) or 1.0)
    return f": it is {factor:.6g} times that" if relative(got, factor * wanted) <= VISIBLE else ""


def micro_batches_added(inference: Inference, merged: Merged, micro: int) -> Iterator[Finding]:
    """Gradients of means over the micro-batches that an optimizer takes added up: too large by their number."""
    if micro == 1:
        return
    yield from _one_micro_batch_taken(inference, merged, micro)
    if len(inference.mesh.shape) - 1 not in inference.averaged:
        return
    own = {item.slot: item.tensor for item in merged.gradients}
    names = inference.parameter_names()
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        names_added: list[str] = []
        for name, gradient in updated_with(call, names).items():
            got, wanted = inference.values(gradient), inference.values(own.get(name, -1))
            if got is not None and wanted is not None and got.shape == wanted.shape:
                if relative(np.asarray(got), micro * np.asarray(wanted, np.float64)) > VISIBLE:
                    names_added = []
                    break
                names_added.append(name)
        if names_added:
            yield Finding(
                call,
                f"the gradients of {micro} micro-batches are added up, and the loss of each is a mean of its own: "
                f"the optimizer takes {micro} times the gradient of the batch",
                "the loss is averaged for each micro-batch, and not divided by their number",
                f"divide the loss of each micro-batch by {micro} before its backward pass",
            )


def _one_micro_batch_taken(inference: Inference, merged: Merged, micro: int) -> Iterator[Finding]:
    """Gradients of one micro-batch that an optimizer takes for those of all."""
    own = {item.slot: item.tensor for item in merged.gradients}
    names = inference.parameter_names()
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        taken = updated_with(call, names)
        told = []
        for name, gradient in taken.items():
            if name not in own or all(inference.copies(own[name])):
                continue
            bits = inference.ranks_of(gradient)[0].fingerprint
            told.append(
                {place % micro for place, item in enumerate(inference.ranks_of(own[name])) if item.fingerprint == bits}
            )
        same = set.intersection(*told) if told else set()
        if same:
            yield Finding(
                call,
                f"the optimizer takes the gradients of micro-batch {min(same)} alone, not those of all {micro}",
                "gradients are cleared between the micro-batches",
                "clear the gradients once, after the optimizer's step",
            )


def gradients_not_averaged(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients of pieces of a weight that an optimizer takes as they are, where each rank's loss is a mean of its own."""
    names = inference.parameter_names()
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        factors = {name: inference.factor(gradient) for name, gradient in updated_with(call, names).items()}
        large = {name: 1 / factor for name, factor in factors.items() if factor != 1.0}
        if large:
            name, times = next(iter(large.items()))
            more = f" and of {len(large) - 1} more" if len(large) > 1 else ""
            yield Finding(
                call,
                f"the optimizer takes {times:.6g} times the gradient of {name}{more}: those of all ranks' losses are added up, "
                "and the loss of each is a mean of its own",
                "the gradient is not divided by the number of ranks that have a part of the data",
                f"divide the gradient of {name} by {times:.6g} before the optimizer's step",
            )


def tied_apart(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Copies of one weight on two stages that are updated with different gradients."""
    for call, name, pairs in merged.tied:
        if len({inference.member(*member).fingerprint for member in pairs}) > 1:
            places = [ranks[place] for place, _ in pairs]
            yield Finding(
                call,
                f"{name} is one weight on {ranks_text(list(dict.fromkeys(places)))}, and each updates it with another gradient",
                "the gradients of a tied weight are not added up over the stages that hold it",
                "all-reduce its gradient over the first and the last stage before the optimizer's step",
            )


def gradients_of_some(merged: Merged, ranks: Sequence[int], micro: int) -> Iterator[Finding]:
    """Parameters that get a gradient on some ranks, or from some micro-batches, alone."""
    by_places: dict[tuple[int, ...], list[str]] = {}
    for name, places in merged.lone_gradients:
        by_places.setdefault(places, []).append(name)
    last = max(merged.calls, key=lambda call: call.order, default=None)
    for places, names in by_places.items():
        if last is None:
            return
        numbers = sorted({place % micro for place in places})
        batches = "micro-batch" if len(numbers) == 1 else "micro-batches"
        who = (
            f"{batches} {', '.join(map(str, numbers))}" if micro > 1 else ranks_text([ranks[place] for place in places])
        )
        more = f" and to {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding(
            last,
            f"only {who} {'sends' if micro > 1 else 'has'} a gradient back to {names[0]}{more}",
            "the backward pass of the others is missing, or does not come so far",
            "see that every rank and every micro-batch goes backward",
            backward=True,
            suspicion=True,
        )


def updated_with(call: Call, names: Mapping[int, str]) -> dict[str, int]:
    """Gradients that an optimizer takes, by the names of the parameters."""
    slots = dict(tensor_slots(call.args, call.kwargs))
    gradients = {}
    for slot, number in slots.items():
        gradient = slots.get(f"kw.gradients.{slot.removeprefix('0.')}")
        if slot.startswith("0.") and gradient is not None and number in names:
            gradients[names[number]] = gradient
    return gradients
