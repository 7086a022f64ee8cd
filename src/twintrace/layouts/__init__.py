"""The ranks of one step as one journal: what their tensors are of the whole, and the whole put together.

    rank 0   linear(f32[4, 8], f32[8, 8])  ─┐
    rank 1   linear(f32[4, 8], f32[8, 8])  ─┴▶  linear(f32[4, 8], f32[16, 8])      weight: shard(0), result: shard(1)

    placements.py   pieces, sums and copies of a tensor, and how they are put together
    meshes.py       the grid in which ranks lie, by their process groups
    microbatches.py micro-batches of a step, as if they were ranks
    pipelines.py    stages of a pipeline: ranks that make the same calls
    numbering.py    modules that each stage numbers anew, under the other run's names
    merging.py      calls of the ranks that correspond to each other
    collectives.py  a collective as a function of the whole
    wholes.py       tensors of the ranks, and those that are put together of them
    candidates.py   placements that fit a shape, and which of them the values speak for
    computing.py    results of a merged call for the whole
    placing.py      what one tensor is of the whole: said by the run, else told by shapes, bits and values
    inference.py    that, for all tensors of a step, in the order of the calls
    parts.py        calls of single ranks that are none of the whole, and how they hang together with it
    assembled.py    the journal that comes of it, which is aligned and judged like any other
    findings/       differences among the ranks themselves

In: journals of all ranks of a step, and pairs of their calls with those of the other side. Out: a `Journal`, and findings.
Nothing is judged here: a placement that is wrong shows as a call whose result is not what it computes.
"""

from .assembled import Assembled, assemble, leaves_of_ranks
from .findings import Finding
from .microbatches import count_of
from .numbering import parameters_of

__all__ = ["Assembled", "Finding", "assemble", "count_of", "leaves_of_ranks", "parameters_of"]
