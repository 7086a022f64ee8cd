"""Its port, dumped likewise. The upper end of the clipping is wrong."""

import mindspore as ms
import numpy as np
import troubleshooter as ts
from mindspore import nn, ops


class SimpleNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, kernel_size=3, stride=3, pad_mode="valid", has_bias=True)
        self.bn = nn.BatchNorm2d(5)
        self.relu = nn.ReLU()
        self.linear = nn.Dense(45, 10)

    def construct(self, x):
        x = self.relu(self.bn(ops.clip_by_value(self.conv(x), 0.2, 0.4)))
        return self.linear(x.reshape(x.shape[0], -1))


net = SimpleNet()
ms.load_checkpoint("net.ckpt", net)
net.set_train()
batch = np.load("batch.npz")

ts.migrator.api_dump_init(net, output_path="ms_dump", retain_backward=True)
ts.migrator.api_dump_start()
forward = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, net.trainable_params())
forward(ms.Tensor(batch["images"]), ms.Tensor(batch["labels"], ms.int32))
ts.migrator.api_dump_stop()
