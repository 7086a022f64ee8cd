"""PyTorch's adapter.

    adapter.py      FRAMEWORK and the watch: which interceptors a level needs
    tensors.py      look at a tensor, recognise it, read it          modules.py      forward hooks, paths, configuration
    calls.py        functions and methods, through the function mode gradients.py    what flows back, from hooks on graph nodes
    ops.py          kernels, through the dispatch mode               collectives.py  torch.distributed
    names.py        what a function is called and writes to          seeding.py      seeds, determinism, dropout
    digests.py      tensors on a device that wait to be read         writes.py       who is about to write to them
    readers.py      reads them in batches (batches.py): digest_triton.py, or digest_plain.py where there is no Triton
    sums.py         rows of sums on their way to the host            streams.py      device, stream and modes around that
    drafts.py       a step that is recorded in full, as events       scripts.py      these events: the plan of a step
    plans.py        a step that is held against a plan               wiring.py       hooks that belong to it

Surprising: no full backward hook anywhere. It inserts autograd nodes, and with them changes gradient bits in real models.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
