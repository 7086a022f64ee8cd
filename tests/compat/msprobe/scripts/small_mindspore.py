"""The same net as in small_torch.py, on MindSpore."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from small_torch import config, each


def record(tool, out, task):
    import mindspore as ms
    import numpy as np
    from mindspore import mint, nn, ops

    class Block(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))

        def construct(self, x):
            return self.norm(x + ops.gelu(self.fc(x)))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.blocks, self.head = nn.CellList([Block(), Block()]), nn.Dense(8, 4)

        def construct(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(mint.mul(x, 2.0))

    ms.set_context(mode=ms.PYNATIVE_MODE)
    rng = np.random.default_rng(0)
    net = Net()
    for parameter in net.get_parameters():
        parameter.set_data(ms.Tensor(rng.standard_normal(parameter.shape).astype(np.float32) * 0.3))
    x, y = rng.standard_normal((3, 8)).astype(np.float32), ms.Tensor(np.arange(3, dtype=np.int32))
    if tool.startswith("msprobe"):  # its statistics need a kernel that MindSpore has not on CPU
        square, total, root = ops.square, ops.ReduceSum(), ops.sqrt
        mint.norm = lambda x, *_, **__: root(total(square(x)))
    debugger = importlib.import_module(tool).PrecisionDebugger(config_path=config(out, task))
    step = ms.value_and_grad(lambda x: ops.cross_entropy(net(x), y), 0, net.trainable_params())
    for factor in (1.0, 1.5):
        debugger.start(net)
        step(ms.Tensor(x * np.float32(factor)))
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    each(record)
