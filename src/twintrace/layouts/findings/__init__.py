"""Differences among the ranks themselves, which no comparison with another run is needed for.

    finding.py    one difference: at which call, in a sentence, with its cause and what to do
    copies.py     what should be the same on several ranks and is not, or is and should not be
    sums.py       parts of a sum that no collective adds up, or that are added up twice, or with others
    updates.py    gradients on their way to an optimizer: over the ranks, the stages and the micro-batches

In: the merged calls of a step and the placements of their tensors. Out: findings, in the order of the calls.
What only the comparison with another run can tell is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...model.records import Call
from ..inference import Inference
from ..merging import Merged
from .copies import copies_that_differ, draws_alike, settings_that_differ, shards_in_another_order, values_that_differ
from .finding import Finding
from .sums import (
    added_on_every_rank,
    calls_of_some,
    copies_added_up,
    gradients_not_scattered,
    gradients_of_parts,
    sums_that_stay,
)
from .updates import (
    gradients_between_stages,
    gradients_not_averaged,
    gradients_of_some,
    gradients_that_stay,
    micro_batches_added,
    tied_apart,
)

__all__ = ["Finding", "findings_of"]


def findings_of(inference: Inference, merged: Merged, ranks: Sequence[int], micro: int = 1) -> list[Finding]:
    """All differences among the ranks of one step, in the order of the calls.

    Args:
        inference: placements of their tensors.
        merged: their calls.
        ranks: number of the rank at each position of the mesh.
        micro: micro-batches of each rank, along the last axis of the mesh.
    """
    findings = [
        *copies_that_differ(inference, merged, ranks, micro),
        *values_that_differ(inference, merged, ranks),
        *shards_in_another_order(inference, merged, ranks),
        *added_on_every_rank(inference, merged),
        *sums_that_stay(inference, merged),
        *gradients_of_parts(inference, merged),
        *gradients_not_scattered(inference, merged),
        *gradients_that_stay(inference, merged, ranks),
        *gradients_between_stages(inference, merged),
        *micro_batches_added(inference, merged, micro),
        *gradients_not_averaged(inference, merged),
        *settings_that_differ(inference, merged, ranks),
        *copies_added_up(inference, merged),
        *draws_alike(inference, merged),
        *tied_apart(inference, merged, ranks),
        *gradients_of_some(merged, ranks, micro),
        *calls_of_some(merged, ranks),
    ]
    parents = {call.id: call.parent for call in merged.calls}

    def around(call: Call) -> tuple[int, ...]:
        chain, up = [call.id], call.parent
        while up is not None and up not in chain:
            chain.append(up)
            up = parents.get(up)
        return tuple(chain)

    return [
        replace(item, around=around(item.at or item.call))
        for item in sorted(findings, key=lambda item: item.call.order)
    ]
