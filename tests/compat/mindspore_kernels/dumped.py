"""Train a small net for two steps in graph mode while MindSpore dumps its kernels: `dumped.py FOLDER` fills FOLDER/dump.

A file of its own, because MindSpore compiles from source files only.
"""

import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
common = {
    "op_debug_mode": 0,
    "dump_mode": 0,
    "path": str(folder / "dump"),
    "net_name": "Net",
    "iteration": "all",
    "saved_data": "tensor",
    "input_output": 0,
    "kernels": [],
    "support_device": [0],
}
config = folder / "config.json"
config.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}))
os.environ["MINDSPORE_DUMP_CONFIG"] = str(config)  # read when MindSpore is imported

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import nn, ops  # noqa: E402

ms.set_context(mode=ms.GRAPH_MODE)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.l1, self.relu, self.l2 = nn.Dense(8, 4), nn.ReLU(), nn.Dense(4, 2)

    def construct(self, x):
        h = ops.cast(ops.cast(self.relu(self.l1(x)), ms.bfloat16), ms.float32)
        return self.l2(h)


net = Net()
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
step.set_train()
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
for number in range(2):
    step(ms.Tensor(x + number), ms.Tensor(np.ones((3, 2), np.float32)))
