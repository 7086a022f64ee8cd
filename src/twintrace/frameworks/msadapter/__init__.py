"""MSAdapter's adapter: PyTorch code that runs on MindSpore.

    adapter.py      FRAMEWORK and the watch                          modules.py      nn.Module: paths, configuration
    tensors.py      MindSpore's tensors, dressed as torch's          names.py        what there is to call, by torch's names
    calls.py        torch.*, torch.nn.functional.*, Tensor methods   updates.py      torch.optim
    gradients.py, ops.py, patches.py                                 MindSpore's own
    seeding.py      seeds, determinism, dropout

In: modules of a `torch` whose tensors are MindSpore's. Out: calls with torch's names, so that a trace can be laid beside one of
PyTorch or of MindSpore. Not here: anything that MindSpore's adapter can do; this one borrows it. Surprising: nothing says
`mindtorch`. Whatever package stands behind the name `torch` is found through its own `nn.Module`.
"""

from .adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
