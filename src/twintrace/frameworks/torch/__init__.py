"""PyTorch's adapter.

    adapter.py      FRAMEWORK and the watch: which interceptors a level needs
    tensors.py      look at a tensor, recognise it, read it          modules.py      forward hooks, paths, configuration
    calls.py        functions and methods, through the function mode gradients.py    what flows back, from hooks on graph nodes
    ops.py          kernels, through the dispatch mode               collectives.py  torch.distributed
    names.py        what a function is called and writes to          seeding.py      seeds, determinism, dropout
    digests.py      tensors on a device that wait to be read         writes.py       who is about to write to them
    batches.py      reads a batch of them: digest_triton.py, or digest_plain.py where there is no Triton

Surprising: no full backward hook anywhere. It inserts autograd nodes, and with them changes gradient bits in real models.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
