"""Runs of MindSpore on several processes under `msrun`: `cases_mindspore.py OUT` records each case; on one: those that are named.

On a CPU MindSpore has process groups, `ops.AllReduce`, `ops.AllGather` and `ops.Broadcast`, and a few of mint's collectives.
"""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import create_group, get_group_size, get_rank, init
from mindspore.mint import distributed

import twintrace as tt

CASES = ("tp", "tp mint", "tp group", "tp missing", "tp twice", "tp order", "dp", "dp missing", "dp sum")
rng = np.random.default_rng(0)
UP, DOWN, HEAD = (rng.normal(size=shape).astype(np.float32) for shape in ((16, 8), (8, 16), (4, 8)))


def cut(array, axis, rank, world):
    return Tensor(np.ascontiguousarray(np.split(array, world, axis)[rank]))


class Net(nn.Cell):
    """Two layers, the first cut by rows and the second by columns, and a head that all ranks have."""

    def __init__(self, case, rank, world):
        super().__init__()
        if case.startswith("dp"):
            rank, world = 0, 1
        place = world - 1 - rank if case == "tp order" else rank
        self.up = nn.Dense(8, 16 // world, weight_init=cut(UP, 0, rank, world), has_bias=False)
        self.down = nn.Dense(16 // world, 8, weight_init=cut(DOWN, 1, place, world), has_bias=False)
        self.head = nn.Dense(8, 4, weight_init=Tensor(HEAD), has_bias=False)
        self.case, self.world = case, world
        if world > 1:
            self.reduce = ops.AllReduce()
            self.reduce_in_group = ops.AllReduce(group="both")

    def construct(self, x):
        h = self.down(ops.gelu(self.up(x)))
        if self.world > 1 and self.case != "tp missing":
            if self.case == "tp mint":
                distributed.all_reduce(h)
            else:
                h = (self.reduce_in_group if self.case == "tp group" else self.reduce)(h)
            if self.case == "tp twice":
                h = self.reduce(h)
        return self.head(h)


def train(out, case, rank, world):
    net, loss = Net(case, rank, world), nn.CrossEntropyLoss()
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1)
    gradients = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
    reduces = case.startswith("dp") and world > 1 and case != "dp missing"
    reducer = nn.DistributedGradReducer(optimizer.parameters, mean=case == "dp") if reduces else None
    data = np.random.default_rng(1)
    with tt.record(out / case, net, keep="tensor", level="mix") as recorder:
        for _ in range(2):
            x, y = data.normal(size=(8, 8)).astype(np.float32), data.integers(0, 4, 8).astype(np.int32)
            if case.startswith("dp"):
                _, grads = gradients(cut(x, 0, rank, world), cut(y, 0, rank, world))
                optimizer(grads if reducer is None else reducer(grads))
            else:
                loss(net(Tensor(x)), Tensor(y))
            recorder.step()


def main(out, *cases):
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    rank, world = 0, 1
    if not cases:
        init()
        rank, world = get_rank(), get_group_size()
        create_group("both", [0, 1])
    for case in cases or CASES:
        train(Path(out), case, rank, world)


if __name__ == "__main__":
    main(*sys.argv[1:])
