"""THE LOOM: two sides in; pairs and leftovers out, each with a `because`.

What lives here: finding what belongs together in two records (`align`). In: two `model.pairs.Side`. Out: a
`model.pairs.Alignment`, in which every call is exactly once. Works on names, shapes, statistics and fingerprints; no tensor is
opened. Not here: whether what belongs together is equal (`measure`, `judge`). Surprising: names count little unless both
records come from one program; equal parameters and equal values pin two networks to each other more firmly than their names.
"""

from .loom import align

__all__ = ["align"]
