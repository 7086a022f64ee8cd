"""Records a network in GRAPH_MODE, and a jitted function, with MindSpore's own kernel dump on. Run by test_kernels.py."""

import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import twintrace as tt
from twintrace.frameworks.mindspore import compiled


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(3, 4), nn.Dense(4, 2)

    def construct(self, x):
        return self.last(ops.relu(self.first(x)))


class Loss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x):
        return self.net(x).sum()


@ms.jit
def doubled(x):
    return ops.relu(x) * 2.0


def main(folder: Path) -> None:
    x = Tensor(np.arange(15, dtype=np.float32).reshape(5, 3) / 10 - 0.5)
    net = Mlp()
    loss = Loss(net)
    with tt.record(folder / "jit", framework="mindspore", level="api", keep="tensor", strict=True, kernels=True) as rec:
        for _ in range(2):
            doubled(x)
            rec.step()
    doubled(x)  # not recorded, though MindSpore dumps it
    ms.set_context(mode=ms.GRAPH_MODE)
    with tt.record(folder / "graph", net, level="module", keep="tensor", strict=True, kernels=True):
        net(x)
    with tt.record(folder / "gradients", framework="mindspore", level="api", keep="tensor", strict=True, kernels=True):
        gradients = ms.grad(loss, None, loss.trainable_params())(x)
    np.savez(
        folder / "expected.npz",
        x=x.asnumpy(),
        **{name: parameter.asnumpy() for name, parameter in net.parameters_and_names()},
        **{f"gradient{number}": gradient.asnumpy() for number, gradient in enumerate(gradients)},
    )
    (folder / "late.txt").write_text(told_when_late())


def told_when_late() -> str:
    """What is raised in a process that has compiled something before anybody asked."""
    os.environ.pop("MINDSPORE_DUMP_CONFIG")
    compiled._DUMP = compiled._Dump()
    try:
        tt.record("unused", framework="mindspore", level="api", kernels=True)
    except tt.TwintraceError as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
