"""Weights, values, pieces and settings that should be the same on several ranks and are not; random numbers that should not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...model.sites import Phase
from ...model.tensors import UNITS
from ...model.values import Token, leaves
from ...model.words import dotted
from ...operations.sides import inputs_of, outputs_of
from ...store.arrays import as_float
from ..inference import Inference
from ..merging import DIFFERENT, Merged
from .finding import SHOWN, Finding, ranks_text


def copies_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int], micro: int) -> Iterator[Finding]:
    """Weights and buffers that should be the same: told at the first call that holds them."""
    told: set[int] = set()
    for call in merged.calls:
        for name, number in (*call.parameters.items(), *call.buffers.items()):
            placed = inference.placed.get(number)
            if placed is None or not placed.odd or number in told:
                continue
            told.add(number)
            owner = dotted(call.site.name, name)
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
                f"{owner} is not the same on all ranks: {ranks_text([ranks[place] for place in placed.odd])} "
                f"{'has' if len(placed.odd) == 1 else 'have'} other values than the rest of the group",
                "copies of a weight that were not begun, or not updated, alike",
                f"broadcast {owner} at the start, and reduce its gradient on every rank before each update",
                group=number,
            )


def values_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
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
                odd = ranks_text([ranks[place] for place in placed.odd])
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


def shards_in_another_order(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
    """Pieces of a weight that the ranks hold in another order than they are put together."""
    told: set[int] = set()
    for call in merged.calls:
        for name, number in call.parameters.items():
            placed = inference.placed.get(number)
            if placed is None or not placed.order or number in told:
                continue
            told.add(number)
            owner = dotted(call.site.name, name)
            holds = ", ".join(
                f"rank {ranks[place]} has piece {piece}" for place, piece in enumerate(placed.order[:SHOWN])
            )
            yield Finding(
                call,
                f"the pieces of {owner} are on other ranks than the order of the ranks says: {holds}",
                f"{owner} was cut in one order and is used in another",
                "cut the weight in the order of the ranks in their group",
                group=number,
            )


def settings_that_differ(inference: Inference, merged: Merged, ranks: Sequence[int]) -> Iterator[Finding]:
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
                    f"the ranks update their weights with another {name}: {leaf.text} ({ranks_text(list(dict.fromkeys(odd)))})",
                    f"{name} of the optimizer is not the same on all ranks",
                    "give every rank the same settings, and step its schedule on every rank",
                )
                break


def draws_alike(inference: Inference, merged: Merged) -> Iterator[Finding]:
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
