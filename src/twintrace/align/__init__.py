"""Two sides in; pairs and leftovers out, each with a `because`.

    align(left, right)                     what belongs together in two records
    align(left, right, mapping=mapping)    what the mapping says counts first
    mapping_of(alignment)                  what was found, as a mapping: dumps, loads, load

What lives here, in the order in which it works:

    trees.py, units.py    a side made ready: its tree of calls, its tensors, which calls are one operation
    values.py, classes.py   which tensors hold the same, without opening any
    mappings.py             what a mapping file says
    named.py, reordered.py  two runs of one program: by name and place, held against the flow of data
    inferred.py, sequences.py, flow.py    any two networks: by operation, values, parameters, order, flow of data
    regions.py, updates.py    several calls that do what others do; kernels of optimizers
    completions.py          the sum or padding that completes a call
    containers.py           modules that hold others
    tensors.py, evidence.py, roles.py    the tensors of what belongs together, and why
    layouts.py, arrangements.py, gradients.py    how they lie on each other; gradients
    leftovers.py            why something has no partner, and what depends on it
    pairing.py, features.py    what has been found so far; numbers for what calls have in common

In: two `model.pairs.Side`. Out: a `model.pairs.Alignment`, in which every call is exactly once. No tensor is opened but those whose
shapes leave a choice of layouts, through `Side.values`. Not here: whether what belongs together is equal (`measure`, `judge`).
Surprising: names count for little unless both records come from one program. Equal parameters and equal values pin two networks
to each other more firmly than their names do.
"""

from .aligning import align
from .mappings import Mapping, dumps, load, loads, mapping_of

__all__ = ["Mapping", "align", "dumps", "load", "loads", "mapping_of"]
