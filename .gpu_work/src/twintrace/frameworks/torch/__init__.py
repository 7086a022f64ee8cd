"""PyTorch's workshop.

    adapter.py      FRAMEWORK and the watch: which interceptors a level needs
    tensors.py      look at a tensor, recognise it, read it          modules.py      forward hooks, paths, configuration
    calls.py        functions and methods, through the function mode gradients.py    what flows back, from hooks on graph nodes
    ops.py          kernels, through the dispatch mode               collectives.py  torch.distributed
    names.py        what a function is called and writes to          seeding.py      seeds, determinism, dropout

Surprising: no full backward hook anywhere. It inserts autograd nodes, and with them changes gradient bits in real models.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
