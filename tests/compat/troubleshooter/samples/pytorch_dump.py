"""The document's PyTorch sample: one step of a small network, dumped."""

from pathlib import Path

import numpy as np
import torch
import troubleshooter as ts
from torch import nn, optim


class SimpleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, kernel_size=3, stride=3, padding=0)
        self.bn = nn.BatchNorm2d(5)
        self.relu = nn.ReLU()
        self.linear = nn.Linear(15000, 10)

    def forward(self, x):
        x = self.conv(x)
        x = torch.clip(x, 0.2, 0.5)
        x = self.bn(x)
        x = self.relu(x)
        x = x.reshape(1, -1)
        x = self.linear(x)
        x = self.relu(x)
        return x


def generate_data():
    data_path = Path("test_data")
    data_path.mkdir(exist_ok=True)
    np.save(data_path / "label.npy", np.random.randn(1, 10).astype(np.float32))
    np.save(data_path / "data.npy", np.random.randn(1, 3, 90, 300).astype(np.float32))
    return data_path


def train_one_step_torch(data_path):
    ts.fix_random()

    net = SimpleNet()
    net.train()
    optimizer = optim.SGD(net.parameters(), lr=0.01)
    optimizer.zero_grad()
    criterion = nn.MSELoss()

    data = torch.tensor(np.load(data_path / "data.npy"))
    label = torch.tensor(np.load(data_path / "label.npy"))

    info_path = "pt_net_info"
    ts.migrator.save_net_and_weight_params(net, path=info_path)

    ts.migrator.api_dump_init(net, output_path="torch_dump", retain_backward=True)

    ts.migrator.api_dump_start()

    pred = net(data)
    loss = criterion(pred, label)
    loss.backward()

    ts.migrator.api_dump_stop()

    optimizer.step()


data_path = generate_data()

train_one_step_torch(data_path)
