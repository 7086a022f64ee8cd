"""Two ranks add up a tensor. Started by test_collectives.py, through MindSpore's own msrun."""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init

import twintrace as tt


def main(folder: Path) -> None:
    init("mccl")
    value = Tensor(np.full(3, get_rank() + 1, np.float32))
    with tt.record(folder, framework="mindspore", level="api", keep="tensor", strict=True):
        ops.AllReduce()(value)


if __name__ == "__main__":
    ms.set_context(device_target="CPU")
    main(Path(sys.argv[1]))
