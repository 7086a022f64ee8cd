"""MindSpore's adapter.

    adapter.py      FRAMEWORK and the watch: which interceptors a level needs
    tensors.py      look at a tensor, recognise it, read it          modules.py      calls of Cells, paths, configuration
    calls.py        functions, methods, primitives                   gradients.py    what flows back, from hooks on graph nodes
    ops.py          kernels, through MindSpore's dispatch mode       updates.py      optimizers
    names.py        what there is to call, and what it writes to     seeding.py      seeds, determinism, dropout
    compiled.py     graphs: @jit and GRAPH_MODE                      patches.py      replace a function for a while
    taps.py         the gradient of one tensor, told to a function

Collectives are primitives and functions like others, so there is no collectives.py.

In: Cells, tensors. Out: calls and gradients, to a `Sink`. Surprising: MindSpore has no function mode and no version counter that
counts. Functions are replaced in their own code, and each write that is seen makes every tensor one to be read again.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
