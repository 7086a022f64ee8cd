"""Differences among the ranks themselves, which no comparison with another run is needed for.

copies     ranks of one group hold other weights, or take other gradients
sums       a part of a sum that no collective adds up
calls      a call that only some ranks make
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model.records import Call, Role
from ..model.sites import Phase
from ..model.tensors import UNITS, Spec
from ..model.values import Token, leaves, tensor_slots
from ..operations.sides import inputs_of, outputs_of
from ..store.arrays import as_float
from .collectives import collective_of
from .inference import VISIBLE, Inference, number_of_addends
from .merging import DIFFERENT, Merged
from .placements import ADDABLE, Array, Part
from .wholes import SAID, relative

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference among the ranks: at which call, in a sentence, with its cause and what to do."""

    call: Call
    what: str
    why: str = ""
    advice: str = ""
    backward: bool = False
    group: int | None = None
    """The weight that shows it, where one does."""
    at: Call | None = None
    """The call whose gradient shows it, where another one is to blame."""
    suspicion: bool = False
    """True if it is no mistake by itself: it counts where the runs have parted."""
    around: tuple[int, ...] = ()
    """The call and the modules around it, by their ids, the innermost first."""


def findings_of(inference: Inference, merged: Merged, ranks: Sequence[int], micro: int = 1) -> list[Finding]:
    """All differences among the ranks of one step, in the order of the calls.

    Args:
        inference: placements of their tensors.
        merged: their calls.
        ranks: number of the rank at each position of the mesh.
        micro: micro-batches of each rank, along the last axis of the mesh.
    """
    found = [
        *_copies_that_differ(inference, merged, ranks, micro),
        *_values_that_differ(inference, merged, ranks),
        *_shards_in_another_order(inference, merged, ranks),
        *_added_on_every_rank(inference, merged),
        *_sums_that_stay(inference, merged),
        *_gradients_of_parts(inference, merged),
        *_gradients_that_stay(inference, merged, ranks),
        *_gradients_between_stages(inference, merged),
        *_micro_batches_added(inference, merged, micro),
        *_gradients_not_averaged(inference, merged),
        *_settings_that_differ(inference, merged, ranks),
        *_copies_added_up(inference, merged),
        *_draws_alike(inference, merged),
        *_tied_apart(inference, merged, ranks),
        *_gradients_of_some(merged, ranks, micro),
        *_calls_of_some(inference, merged, ranks),
    ]
    parents = {call.id: call.parent for call in merged.calls}

    def around(call: Call) -> tuple[int, ...]:
        chain, up = [call.id], call.parent
        while up is not None and up not in chain:
            chain.append(up)
            up = parents.get(up)
        return tuple(chain)

    return [
        replace(item, around=around(item.at or item.call)) for item in sorted(found, key=lambda item: item.call.order)
    ]


def _shards_in_another_order(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Pieces of a weight that the ranks hold in another order than they are put together."""
    told: set[int] = set()
    for call in merged.calls:
        for name, number in call.parameters.items():
            placed = inference.placed.get(number)
            if placed is None or not placed.order or number in told:
                continue
            told.add(number)
            owner = ".".join(filter(None, (call.site.name, name)))
            holds = ", ".join(
                f"rank {ranks[place]} has piece {piece}" for place, piece in enumerate(placed.order[:_SHOWN])
            )
            yield Finding(
                call,
                f"the pieces of {owner} are on other ranks than the order of the ranks says: {holds}",
                f"{owner} was cut in one order and is used in another",
                "cut the weight in the order of the ranks in their group",
                group=number,
            )


def _added_on_every_rank(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Operands that are the same on all ranks and that each rank adds to its part of a sum: a bias before the reduction."""
    for call in merged.calls:
        if call.site.phase is not Phase.FORWARD:
            continue
        taken, made = inputs_of(call), outputs_of(call)
        for number in made.values():
            placed = inference.placed.get(number)
            if placed is None or number in taken.values():
                continue
            count = number_of_addends(inference.mesh, placed.placements)
            wanted = inference.results_of(call).get(number) if count > 1 else None
            got = inference.values(number)
            if wanted is None or got is None or wanted.shape != got.shape:
                continue
            gap = np.asarray(got, np.float64) - wanted
            if float(np.linalg.norm(gap)) <= VISIBLE * float(np.linalg.norm(wanted)):
                continue
            slot = inference.copy_in_gap(call, gap, count)
            if slot is not None:
                yield Finding(
                    call,
                    f"each of {count} ranks adds {inference.whole(taken[slot]).spec} (argument {slot}) to its part of a sum, "
                    f"which makes it {count} times too large in the sum",
                    "the bias is added on every rank before the reduction",
                    "add it once, after the reduction",
                )


def _gradients_of_parts(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients of which each rank goes on with its own part, along an axis of the mesh where all ranks have the same data.

    The first of them in the backward pass is told: what comes after it is made of it.
    """
    made = {number for call in merged.calls for number in outputs_of(call).values()}
    found: tuple[int, Call, int] | None = None
    arrived = set()
    for _, role, gradient, value in inference.gradients():
        placed, own = inference.placed.get(gradient), inference.placed.get(value)
        if role is Role.OUTPUT and placed is not None and own is not None and value in made:
            for axis, item in enumerate(placed.placements):
                if (
                    item.part is Part.SUM
                    and own.placements[axis].part is Part.REPLICATE
                    and axis not in inference.shared
                ):
                    arrived.add(value)
    inside = {call.parent for call in merged.calls}
    for call, role, gradient, value in inference.gradients():
        if role is Role.INPUT and value in arrived and call.id not in inside:
            placed = inference.placed.get(gradient)
            if (
                placed is not None
                and any(item.part is Part.SUM for item in placed.placements)
                and (found is None or call.order > found[0])
            ):
                found = call.order, call, gradient
    if found is not None:
        yield Finding(
            found[1],
            f"each rank goes on with its own part of the gradient that {found[1].site.name} sends back, "
            "and no collective adds them up",
            "a reduction of the gradient over the ranks is missing before it",
            "all-reduce the gradient of the input over the group that shares the weight",
            backward=True,
        )


def _copies_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int], micro: int) -> Iterator[Finding]:
    """Weights and buffers that should be the same: told at the first call that holds them."""
    told: set[int] = set()
    for call in merged.calls:
        for name, number in (*call.parameters.items(), *call.buffers.items()):
            placed = inference.placed.get(number)
            if placed is None or not placed.odd or number in told:
                continue
            told.add(number)
            owner = ".".join(filter(None, (call.site.name, name)))
            if micro > 1 and not inference.is_copy(number, len(inference.mesh.shape) - 1):
                if name in call.parameters:
                    yield Finding(
                        call,
                        f"{owner} changes between the micro-batches of a step",
                        "the optimizer's step is taken after each micro-batch",
                        "take the optimizer's step once, after the last micro-batch",
                        group=number,
                    )
                continue
            yield Finding(
                call,
                f"{owner} is not the same on all ranks: {_ranks([ranks[place] for place in placed.odd])} "
                f"{'has' if len(placed.odd) == 1 else 'have'} other values than the rest of the group",
                "copies of a weight that were not begun, or not updated, alike",
                f"broadcast {owner} at the start, and reduce its gradient on every rank before each update",
                group=number,
            )


def _values_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """The first value of the forward pass that should be the same on all ranks and is not: what comes after it is made of it."""
    weights = {number for call in merged.calls for number in (*call.parameters.values(), *call.buffers.values())}
    inside = {call.parent for call in merged.calls}
    for call in sorted(merged.calls, key=lambda call: call.order):
        if call.site.phase is not Phase.FORWARD or call.id in inside:
            continue
        for end, numbers in (("input", inputs_of(call)), ("result", outputs_of(call))):
            for slot, number in numbers.items():
                placed = inference.placed.get(number)
                if placed is None or not placed.odd:
                    continue
                if number in weights:
                    return  # told as a weight
                unit = UNITS.get(inference.ranks_of(number)[0].spec.dtype, 0.0)
                if inference.apart(number) <= _ROUNDED * unit:
                    continue
                odd = _ranks([ranks[place] for place in placed.odd])
                yield Finding(
                    call,
                    f"the {end} {slot or 0} of {call.site.name} is not the same on all ranks: {odd} "
                    f"{'has' if len(placed.odd) == 1 else 'have'} other values than the rest of the group",
                    "the ranks of one group were given other data, drew other random numbers, or lack a reduction",
                    "see what these ranks do differently before this call",
                )
                return


_ROUNDED = 64.0
"""Units by which copies that are computed on several devices may differ; on equal devices they have equal bits."""


def _sums_that_stay(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Parts of a sum in the forward pass that no collective adds up."""
    takers: dict[int, list[Call]] = {}
    inside = {call.parent for call in merged.calls}
    for call in merged.calls:
        if call.id not in inside:
            for number in inputs_of(call).values():
                takers.setdefault(number, []).append(call)
    for call in merged.calls:
        if call.id in inside or call.site.phase is not Phase.FORWARD or collective_of(call, inference.mesh) is not None:
            continue
        for number in outputs_of(call).values():
            placed = inference.placed.get(number)
            if placed is None or number in inputs_of(call).values():
                continue
            axes = [axis for axis, item in enumerate(placed.placements) if item.part in (Part.SUM, Part.MEAN)]
            if not axes or placed.because == SAID or _is_shared_loss(inference, number, axes):
                continue  # what the run itself calls a sum it adds up itself
            if any(_is_sum(inference, item, axes) for item in inputs_of(call).values()):
                continue  # told where it begins
            if not _is_reduced(inference, number, takers, axes, set()):
                wrong = _reduced_elsewhere(inference, number, takers, axes)
                yield Finding(
                    call,
                    f"each rank has a part of the sum that {call.site.name} gives, and no collective adds them up"
                    + (f": {wrong.site.name} behind it is one of other ranks" if wrong is not None else ""),
                    "it is reduced over the wrong group"
                    if wrong is not None
                    else "a reduction over the ranks is missing behind it",
                    "all-reduce it over the group that shares the weight",
                )


def _is_sum(inference: Inference, number: int, axes: Sequence[int]) -> bool:
    placed = inference.placed.get(number)
    return placed is not None and any(placed.placements[axis].part in (Part.SUM, Part.MEAN) for axis in axes)


def _is_shared_loss(inference: Inference, number: int, axes: Sequence[int]) -> bool:
    """A loss of which each rank has the part of its own data: its gradients are reduced instead."""
    return not inference.whole(number).spec.shape and all(axis in inference.shared for axis in axes)


def _reduced_elsewhere(
    inference: Inference, number: int, takers: dict[int, list[Call]], axes: Sequence[int]
) -> Call | None:
    """A collective that adds up a part of a sum over other ranks than those which have the parts."""
    waiting, seen = [number], {number}
    while waiting:
        for call in takers.get(waiting.pop(), []):
            collective = collective_of(call, inference.mesh)
            if collective is not None:
                if collective.reduces and collective.axes is not None and not set(axes) & set(collective.axes):
                    return call
                continue
            more = [made for made in outputs_of(call).values() if made not in seen and _is_sum(inference, made, axes)]
            seen.update(more)
            waiting += more
    return None


def _is_reduced(
    inference: Inference, number: int, takers: dict[int, list[Call]], axes: Sequence[int], seen: set[int]
) -> bool:
    """Does every way from a part of a sum lead through a collective that adds it up?"""
    seen.add(number)
    bits = inference.ranks_of(number)[0].fingerprint
    calls = takers.get(number, [])
    if not calls:
        return False
    reached = False
    for call in calls:
        collective = collective_of(call, inference.mesh)
        if collective is not None:
            along = collective.axes is None or set(axes) <= set(collective.axes)
            reached = reached or (collective.reduces and along and number in collective.taken)
            continue
        for made in outputs_of(call).values():
            if made == number or made in seen or (inference.ranks_of(made)[0].fingerprint == bits and made in seen):
                continue
            if not _is_sum(inference, made, axes):
                return False
            if not _is_reduced(inference, made, takers, axes, seen):
                return False
            reached = True
    return reached


def _gradients_that_stay(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Gradients of copies of a weight that an optimizer takes, each rank its own."""
    names = {
        number: ".".join(filter(None, (call.site.name, name)))
        for call in merged.calls
        for name, number in call.parameters.items()
    }
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
            shown = ", ".join(name for name, _ in apart[:_SHOWN]) + (
                f" and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
            )
            yield Finding(
                call,
                f"the ranks update their copies of a weight with different gradients: {shown}",
                "its gradient is not reduced over the ranks before the update",
                "all-reduce the gradients of copied weights before the optimizer's step",
            )


def _gradients_between_stages(inference: Inference, merged: Merged) -> Iterator[Finding]:
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


def _micro_batches_added(inference: Inference, merged: Merged, micro: int) -> Iterator[Finding]:
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
        found: list[str] = []
        for name, gradient in updated_with(call, names).items():
            got, wanted = inference.values(gradient), inference.values(own.get(name, -1))
            if got is not None and wanted is not None and got.shape == wanted.shape:
                if relative(np.asarray(got), micro * np.asarray(wanted, np.float64)) > VISIBLE:
                    found = []
                    break
                found.append(name)
        if found:
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


def _gradients_not_averaged(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients of pieces of a weight that an optimizer takes as they are, where each rank's loss is a mean of its own."""
    names = inference.parameter_names()
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        found = {name: inference.factor(gradient) for name, gradient in updated_with(call, names).items()}
        large = {name: 1 / factor for name, factor in found.items() if factor != 1.0}
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


def _settings_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Settings of an optimizer that are others on some ranks."""
    for call in merged.calls:
        if call.site.phase is not Phase.UPDATE:
            continue
        for slot, leaf in leaves(call.kwargs.get("groups")):
            if isinstance(leaf, Token) and leaf.kind == DIFFERENT:
                name, values = slot.rpartition(".")[2], leaf.text.split(" | ")
                common = max(values, key=values.count)
                places = merged.places.get(call.id, range(len(ranks)))
                odd = [ranks[place] for place, value in zip(places, values, strict=False) if value != common]
                yield Finding(
                    call,
                    f"the ranks update their weights with another {name}: {leaf.text} ({_ranks(list(dict.fromkeys(odd)))})",
                    f"{name} of the optimizer is not the same on all ranks",
                    "give every rank the same settings, and step its schedule on every rank",
                )
                break


def _copies_added_up(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Reductions, inside of modules and backward, of what is the same on all ranks: as a rule it has been reduced before."""
    for call in merged.calls:
        collective = collective_of(call, inference.mesh)
        if (
            collective is None
            or collective.name != "all_reduce"
            or collective.operation != "SUM"
            or not collective.axes
        ):
            continue
        if call.site.phase is Phase.UPDATE or (call.site.phase is Phase.FORWARD and not call.site.path):
            continue
        number = collective.taken[0]
        count = 1
        for axis in collective.axes:
            count *= inference.mesh.shape[axis]
        arrays, dtype = inference.arrays(number), inference.ranks_of(number)[0].spec.dtype
        if not all(inference.is_copy(number, axis) for axis in collective.axes) or dtype not in ADDABLE:
            continue
        if arrays is None or not np.any(as_float(arrays[0], dtype)):
            continue
        backward = call.site.phase is not Phase.FORWARD
        yield Finding(
            call,
            f"{call.site.name} adds up {'a gradient' if backward else 'a value'} that is the same on {count} ranks: "
            f"{count} times as large after it",
            "it is reduced twice, or is no part of a sum",
            "leave this reduction out",
            backward=backward,
            at=_receiver(inference, merged, collective.made[0]) if backward else None,
            suspicion=True,
        )


def _draws_alike(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Dropout that drops the same elements on all ranks, though each has other data: the first call that does."""
    inside = {call.parent for call in merged.calls}
    for call in sorted(merged.calls, key=lambda call: call.order):
        if call.id in inside or call.site.phase is not Phase.FORWARD or "dropout" not in call.site.name:
            continue
        number, given = next(iter(outputs_of(call).values()), None), next(iter(inputs_of(call).values()), None)
        if number is None or given is None or number == given:
            continue
        made, taken = inference.arrays(number), inference.arrays(given)
        dtype = inference.ranks_of(number)[0].spec.dtype
        if made is None or taken is None or len({array.shape for array in (*made, *taken)}) > 1:
            continue
        dropped = [
            (as_float(one, dtype) == 0) & (as_float(two, dtype) != 0) for one, two in zip(made, taken, strict=True)
        ]
        for axis in inference.shared:
            lines = inference.mesh.lines(axis)
            alike = all(np.array_equal(dropped[line[0]], dropped[place]) for line in lines for place in line)
            if alike and _DRAWN < dropped[0].sum() < dropped[0].size - _DRAWN and not inference.is_copy(given, axis):
                yield Finding(
                    call,
                    f"{call.site.name} drops the same elements on all of {inference.mesh.shape[axis]} ranks, "
                    "though each has other data",
                    "all ranks draw their random numbers with the same seed",
                    "seed each rank that has other data by its own number",
                )
                return


_DRAWN = 16
"""Elements that are dropped and that are kept, at least, for two ranks not to drop the same by chance: one of 2^32 at most."""


def _tied_apart(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Copies of one weight on two stages that are updated with different gradients."""
    for call, name, pairs in merged.tied:
        if len({inference.member(*member).fingerprint for member in pairs}) > 1:
            places = [ranks[place] for place, _ in pairs]
            yield Finding(
                call,
                f"{name} is one weight on {_ranks(list(dict.fromkeys(places)))}, and each updates it with another gradient",
                "the gradients of a tied weight are not added up over the stages that hold it",
                "all-reduce its gradient over the first and the last stage before the optimizer's step",
            )


def _receiver(inference: Inference, merged: Merged, gradient: int) -> Call | None:
    """The call whose result a gradient came back to, by its bits; the first of them."""
    bits, inside = inference.bits(gradient), {call.parent for call in merged.calls}
    for call in merged.calls:
        received = [item.tensor for item in call.gradients if item.role is Role.OUTPUT]
        if call.id not in inside and bits is not None and any(inference.bits(number) == bits for number in received):
            return call
    return None


def _gradients_of_some(merged: Merged, ranks: Sequence[int], micro: int) -> Iterator[Finding]:
    """Parameters that get a gradient on some ranks, or from some micro-batches, alone."""
    found: dict[tuple[int, ...], list[str]] = {}
    for name, places in merged.lone_gradients:
        found.setdefault(places, []).append(name)
    last = max(merged.calls, key=lambda call: call.order, default=None)
    for places, names in found.items():
        if last is None:
            return
        numbers = sorted({place % micro for place in places})
        batches = "micro-batch" if len(numbers) == 1 else "micro-batches"
        who = f"{batches} {', '.join(map(str, numbers))}" if micro > 1 else _ranks([ranks[place] for place in places])
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
    found = {}
    for slot, number in slots.items():
        gradient = slots.get(f"kw.gradients.{slot.removeprefix('0.')}")
        if slot.startswith("0.") and gradient is not None and number in names:
            found[names[number]] = gradient
    return found


def _calls_of_some(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Collectives that only some ranks take part in; other calls that only some make are left to the comparison."""
    for call, positions in merged.lone:
        if not call.site.name.startswith("torch.distributed."):
            continue
        yield Finding(
            call,
            f"only {_ranks([ranks[place] for place in positions])} {'calls' if len(positions) == 1 else 'call'} {call.site.name}",
            "a collective that some ranks of the run do not take part in",
            "let all ranks of the group make the same collectives in the same order",
        )


def _ranks(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (" …" if len(numbers) > _SHOWN else "")
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"
