"""Bound on the rounding error of a computation, carried along while it runs in float64.

    with RunningError(unit=2**-24, sum_unit=2**-24) as errors:
        y = torch.nn.functional.layer_norm(x, (64,))
        (g,) = torch.autograd.grad(y, x, gy)
    errors.of(y)      elementwise bound on the error that a kernel of that precision may have, same shape as y; None: exact
    errors.of(g)

Running error analysis (Wilkinson): every float64 tensor has a companion that bounds the error a right kernel may have made so far,
in each element. An operation passes on the errors of its operands by its derivative and adds its own:

    a·b               |a|·E(b) + |b|·E(a) + u·|a·b|
    A @ B             |A|·E(B) + E(A)·|B| + 2·√K·s·|A|·|B|            K terms summed in precision s, in any order
    exp, tanh, …      |f'(x)|·E(x) + c·u·|f(x)|                       c units: no two libraries have the same polynomial

It works below autograd, on the few kernels that everything else is composed of, so it needs no rule for a layer norm or for a
backward pass. An operation with neither a rule nor a decomposition is in `unknown`; its result counts as inexact by eight units.

2·√K instead of K: rounding errors are independent enough that the worst case is never seen; at K = 16384 it would excuse
8 % in float32.

    modes.py        the dispatch modes                   sums.py       sums, means, extremes, softmax
    registry.py     the table of rules                   products.py   products of matrices, convolutions
    arithmetic.py   sums and products of elements        moves.py      moved values, gradients that meet
    functions.py    functions of one argument            composed.py   norms in steps that have rules
"""

from __future__ import annotations

from . import arithmetic, functions, moves, products, sums
from .modes import NoError, RoundedResults, RunningError
from .products import coarse_product
from .registry import FUNCTION_UNITS, WALK

__all__ = [
    "FUNCTION_UNITS", "WALK", "NoError", "RoundedResults", "RunningError", "arithmetic", "coarse_product", "functions",
    "moves", "products", "sums",
]  # fmt: skip
