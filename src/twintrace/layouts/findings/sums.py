"""Parts of a sum that no collective adds up, or that are added up twice, or with others; collectives that some ranks make alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...model.records import Call, Role
from ...model.sites import Phase
from ...operations.sides import inputs_of, outputs_of
from ...store.arrays import as_float
from ..collectives import GATHERING, collective_of, is_collective
from ..inference import Inference
from ..merging import Merged
from ..placements import ADDABLE, Part
from ..placing import VISIBLE, number_of_addends
from ..wholes import SAID, relative
from .finding import Finding, ranks_text


def added_on_every_rank(inference: Inference, merged: Merged) -> Iterator[Finding]:
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


def sums_that_stay(inference: Inference, merged: Merged) -> Iterator[Finding]:
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
        if is_collective(call):  # of which it is not told what it makes of the whole: what comes of it shows it
            reached = True
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


def gradients_of_parts(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients of which each rank goes on with its own part, along an axis of the mesh where all ranks have the same data.

    The first of them in the backward pass is told: what comes after it is made of it.
    """
    made = {number for call in merged.calls for number in outputs_of(call).values()}
    first: tuple[int, Call, int] | None = None
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
                and (first is None or call.order > first[0])
            ):
                first = call.order, call, gradient
    if first is not None:
        wrong = _gradient_reduced_elsewhere(inference, merged, first[2])
        yield Finding(
            first[1],
            f"each rank goes on with its own part of the gradient that {first[1].site.name} sends back, "
            "and no collective adds them up"
            + (f": {wrong.site.name} behind it is one of other ranks" if wrong is not None else ""),
            "the gradient is reduced over the wrong group"
            if wrong is not None
            else "a reduction of the gradient over the ranks is missing before it",
            "all-reduce the gradient of the input over the group that shares the weight",
            backward=True,
        )


def _gradient_reduced_elsewhere(inference: Inference, merged: Merged, gradient: int) -> Call | None:
    """A collective that adds up parts of a gradient, known by their bits, over other ranks than those which have the parts."""
    bits, placed = inference.bits(gradient), inference.placed[gradient]
    axes = {axis for axis, item in enumerate(placed.placements) if item.part is Part.SUM}
    for call in merged.calls:
        collective = collective_of(call, inference.mesh)
        if (
            collective is None
            or not collective.reduces
            or collective.axes is None
            or not collective.taken
            or axes & set(collective.axes)
        ):
            continue
        if bits is not None and inference.bits(collective.taken[0]) == bits:
            return call
    return None


def gradients_not_scattered(inference: Inference, merged: Merged) -> Iterator[Finding]:
    """Gradients of gathered pieces of which each rank keeps what its own calls send back, where those of all ranks are to be added
    up.
    """
    inside = {call.parent for call in merged.calls}
    # By bits: what a function of the user's hands out has another number than what the collective in it has written.
    sent: dict[object, list[int]] = {}
    came: dict[object, tuple[int, Call]] = {}
    for call, role, gradient, value in inference.gradients():
        bits = inference.bits(value)
        if call.id in inside or bits is None:
            continue
        if role is Role.INPUT:
            sent.setdefault(bits, []).append(gradient)
        else:
            came.setdefault(bits, (gradient, call))
    for call in merged.calls:
        collective = collective_of(call, inference.mesh)
        if collective is None or collective.name not in GATHERING or not collective.axes or len(collective.made) != 1:
            continue
        taken = collective.taken[0]
        received, gradients = (
            came.get(inference.bits(taken)),
            dict.fromkeys(sent.get(inference.bits(collective.made[0]), ())),
        )
        if all(inference.is_copy(number, axis) for number in gradients for axis in collective.axes):
            continue  # each rank has computed the whole of it
        got = None if received is None else inference.arrays(received[0])
        parts = [inference.arrays(number) for number in gradients]
        dtype = inference.ranks_of(taken)[0].spec.dtype
        if received is None or got is None or not parts or any(part is None for part in parts) or dtype not in ADDABLE:
            continue
        own = [
            np.sum([as_float(part[place], dtype) for part in parts if part is not None], axis=0, dtype=np.float64)
            for place in range(inference.mesh.size)
        ]
        kept = added = True
        for line in inference.mesh.groups_along(collective.axes):
            total, start = np.sum([own[place] for place in line], axis=0), 0
            for place in line:
                mine = as_float(got[place], dtype)
                rows = slice(start, start + len(mine))
                start += len(mine)
                kept = kept and relative(mine, own[place][rows]) <= VISIBLE
                added = added and relative(mine, total[rows]) <= VISIBLE
        if kept and not added:
            yield Finding(
                call,
                f"each rank keeps its own part of the gradient of what {call.site.name} has gathered, and no collective adds them "
                "up",
                "a reduction of the gradient over the ranks is missing behind the gathering",
                "reduce-scatter the gradient over the group that gathered",
                backward=True,
                at=received[1],
            )


def copies_added_up(inference: Inference, merged: Merged) -> Iterator[Finding]:
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


def _receiver(inference: Inference, merged: Merged, gradient: int) -> Call | None:
    """The call whose result a gradient came back to, by its bits; the first of them."""
    bits, inside = inference.bits(gradient), {call.parent for call in merged.calls}
    for call in merged.calls:
        received = [item.tensor for item in call.gradients if item.role is Role.OUTPUT]
        if call.id not in inside and bits is not None and any(inference.bits(number) == bits for number in received):
            return call
    return None


def calls_of_some(merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Collectives and updates that only some ranks take part in; other calls that only some make are left to the comparison."""
    for call, positions in merged.lone:
        places = [ranks[place] for place in positions]
        what = f"only {ranks_text(places)} {'calls' if len(places) == 1 else 'call'} {call.site.name}"
        if is_collective(call):
            yield Finding(
                call,
                what,
                "a collective that some ranks of the run do not take part in",
                "let all ranks of the group make the same collectives in the same order",
            )
        elif call.site.phase is Phase.UPDATE:
            others = [rank for rank in dict.fromkeys(ranks) if rank not in places]
            yield Finding(
                call,
                what,
                f"the ranks are an update apart: {ranks_text(others)} behind, or {ranks_text(places)} ahead",
                "let all ranks of the group take every step of the optimizer",
            )
