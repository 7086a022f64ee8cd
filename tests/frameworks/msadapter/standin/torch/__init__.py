"""Stands in for MSAdapter, as its users have it: a package called `torch`, on PYTHONPATH, that runs on MindSpore.

It hands over to `mindtorch` (of mindnlp 0.5.1), which was written for MindSpore 2.7. From 2.8 on MindSpore's generator kernel wants
a seed and an offset, so mindtorch's class of that name is built on MindSpore's own `Generator` here. Nothing else is changed.
"""

import sys

import mindspore
from mindspore.ops.operations import _inner_ops

del sys.modules["torch"]  # mindtorch puts its own under this name

kernel = _inner_ops.Generator


def kernel_with_state(*state):
    new = [mindspore.Parameter(mindspore.Tensor(0, mindspore.int64), requires_grad=False) for _ in range(2)]
    return kernel(*(state or new))


_inner_ops.Generator = kernel_with_state
try:
    import mindtorch
finally:
    _inner_ops.Generator = kernel


class Generator(mindtorch._C.Generator):
    """mindtorch's interface to MindSpore's generator."""

    def __init__(self, device="cpu"):
        self._device = mindtorch.device(device) if isinstance(device, str) else device
        self._own = mindspore.Generator()

    def _step(self, step):
        given = step if isinstance(step, mindspore.Tensor) else mindspore.Tensor(int(step), mindspore.int64)
        state = self._own._step(given)
        for tensor in state:
            tensor._device = self.device
        return state

    def manual_seed(self, seed):
        self._own.manual_seed(int(seed))
        return self

    def seed(self):
        return self._own.seed()

    def initial_seed(self):
        return self._own.initial_seed()

    def get_state(self):
        return self._own.get_state()

    def set_state(self, state):
        self._own.set_state(state)


mindtorch._C.default_generator.__class__ = Generator
mindtorch._C.default_generator.__init__()
mindtorch.Generator = mindtorch._C.Generator = Generator
