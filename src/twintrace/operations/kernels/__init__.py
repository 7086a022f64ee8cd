"""Float64 computation of each operation: one function for each row of the catalog, with the same argument names.

    KERNELS["layer_norm"](input=x, normalized_shape=(8,), weight=w, bias=None, eps=1e-5)

Floating tensors come as float64 (complex128), integers and bools as they are. A kernel returns a tensor, a tuple of them, or a dict
from the key of a result (`0`, `running_mean`) to its tensor where the call wrote to its arguments. Every kernel can be
differentiated by autograd, writes to none of its inputs, and looks at no value in Python.
Written out in plain steps where a library function would hide its intermediate results, as attention does: bounds are carried
through them.

    registry.py       the table, and functions that kernels share    losses.py      losses
    elementwise.py    arithmetic, comparisons, activations           movement.py    views, copies, selections
    reductions.py     sums, means, extremes, scans, sorting          creation.py    tensors made of numbers
    contractions.py   products, convolutions, pooling, attention     recurrent.py   recurrent layers
    normalisation.py  norms
"""

from __future__ import annotations

from . import contractions, creation, elementwise, losses, movement, normalisation, recurrent, reductions
from .elementwise import GIVEN_RESULT
from .normalisation import FUSED
from .registry import KERNELS, TYPES, Kernel, Random

__all__ = [
    "FUSED", "GIVEN_RESULT", "KERNELS", "TYPES", "Kernel", "Random", "contractions", "creation", "elementwise", "losses",
    "movement", "normalisation", "recurrent", "reductions",
]  # fmt: skip
