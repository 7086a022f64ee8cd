"""The document's MindSpore sample: the same network with the same weights and data, dumped."""

from pathlib import Path

import mindspore as ms
import numpy as np
import troubleshooter as ts
from mindspore import nn, ops


class SimpleNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, kernel_size=3, stride=3, padding=0, pad_mode="pad", has_bias=True)
        self.bn = nn.BatchNorm2d(5)
        self.relu = nn.ReLU()
        self.linear = nn.Dense(15000, 10)

    def construct(self, x):
        x = self.conv(x)
        x = ops.clip(x, ms.Tensor(0.2, ms.float32), ms.Tensor(0.5, ms.float32))
        x = self.bn(x)
        x = self.relu(x)
        x = x.reshape(1, -1)
        x = self.linear(x)
        x = self.relu(x)
        return x


def train_one_step_mindspore(data_path):
    ts.fix_random()

    net = SimpleNet()
    net.set_train()
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.01)
    criterion = nn.MSELoss()

    def forward_fn(data, label):
        out = net(data)
        loss = criterion(out, label)
        return loss

    grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)

    data = ms.Tensor(np.load(data_path / "data.npy"))
    label = ms.Tensor(np.load(data_path / "label.npy"))

    info_path = Path("pt_net_info")
    ts.migrator.convert_weight_and_load(
        weight_map_path=info_path / "torch_net_map.json",
        pt_file_path=info_path / "torch_troubleshooter_create.pth",
        net=net,
    )

    ts.migrator.api_dump_init(net, output_path="ms_dump", retain_backward=True)

    ts.migrator.api_dump_start()

    _loss, grads = grad_fn(data, label)

    ts.migrator.api_dump_stop()

    optimizer(grads)


data_path = Path("test_data")

train_one_step_mindspore(data_path)
