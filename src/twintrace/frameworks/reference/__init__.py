"""The reference framework: a tiny framework of our own, and its adapter. What every test above this level uses, and what an
author of a new adapter reads first.

    miniature.py    the framework itself: tensors over numpy, a tape, modules, hooks
    adapter.py      FRAMEWORK and the watch: which interceptors a level needs
    tensors.py      look at a tensor, recognise it, read it          modules.py      module calls, paths, configuration
    calls.py        public functions                                 gradients.py    what flows back, from hooks on tape nodes
    ops.py          kernels                                          names.py        what a function is called and writes to
    seeding.py      seeds, dropout

In: the miniature's own hooks; nothing is patched, so there is no patches.py, and one process has no collectives.py.
Surprising: this is the adapter whose rules are strictest. It promises everything that `testing/contract.py` asks for.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
