from pathlib import Path

import mindspore as ms
import troubleshooter as ts
from mindspore import Tensor, nn


class NetWorkSave(nn.Cell):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def construct(self, x):
        ts.save(self.file, x)
        return x


x1 = Tensor(-0.5962, ms.float32)
x2 = Tensor(0.4985, ms.float32)
path = Path("save_ms")
net = NetWorkSave(str(path / "ms_tensor"))

out1 = net(x1)
out2 = net(x2)
out3 = net([x1, x2])
out4 = net({"x1": x1, "x2": x2})
