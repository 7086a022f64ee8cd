"""Run by the real msprobe: one small training step in MindSpore, dumped in each of its modes."""

import json
import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops


def norm(x, *_, **__):
    """MindSpore has no kernel for msprobe's norm on a CPU."""
    return ops.sqrt(ops.reduce_sum(ops.square(x)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="valid", has_bias=True)
        self.fc1 = nn.Dense(8, 4)
        self.fc2 = nn.Dense(4, 3)

    def construct(self, image, features):
        wide = ops.relu(self.conv(image)).reshape((2, -1)).sum(axis=1, keepdims=True)
        hidden = ops.tanh(self.fc1(features)) + wide
        return ops.softmax(self.fc2(hidden), axis=-1)


def train(folder, task, mode):
    from msprobe.mindspore import PrecisionDebugger

    config = folder / f"{task}_{mode}.json"
    section = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
    settings = {"dump_path": str(folder / f"{task}_{mode}"), "rank": [], "step": [], "level": "mix"}
    config.write_text(json.dumps(settings | {"task": task, task: section}))
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    mint.norm = norm
    ms.set_seed(0)
    random = np.random.default_rng(0)
    net = Net()
    for _, parameter in net.parameters_and_names():
        parameter.set_data(ms.Tensor(random.normal(0, 0.3, parameter.shape).astype(np.float32)))
    debugger = PrecisionDebugger(config_path=str(config))
    labels = ms.Tensor(np.array([0, 2], np.int32))
    step = ms.value_and_grad(lambda *args: ops.cross_entropy(net(*args), labels), None, net.trainable_params())
    image = ms.Tensor(random.standard_normal((2, 1, 4, 4)).astype(np.float32))
    features = ms.Tensor(random.standard_normal((2, 8)).astype(np.float32))
    debugger.start(model=net)
    loss, _ = step(image, features)
    debugger.stop()
    debugger.step()
    truth = {name: parameter.asnumpy() for name, parameter in net.parameters_and_names()}
    np.savez(folder / f"{task}_{mode}.npz", loss=loss.asnumpy(), **truth)


for chosen in (("statistics", "statistics"), ("statistics", "md5"), ("tensor", "statistics")):
    child = os.fork()  # one debugger a process; importing takes longer than all the rest
    if not child:
        train(Path(sys.argv[1]), *chosen)
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{chosen} failed")
