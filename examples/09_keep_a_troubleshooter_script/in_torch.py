"""A network dumped as TroubleShooter's documents have it. Nothing here knows of twintrace."""

import numpy as np
import torch
import troubleshooter as ts
from torch import nn


class SimpleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, kernel_size=3, stride=3, padding=0)
        self.bn = nn.BatchNorm2d(5)
        self.relu = nn.ReLU()
        self.linear = nn.Linear(45, 10)

    def forward(self, x):
        x = self.relu(self.bn(torch.clip(self.conv(x), 0.2, 0.5)))
        return self.linear(x.reshape(x.shape[0], -1))


ts.fix_random(16)
net = SimpleNet()
torch.save(net.state_dict(), "net.pth")
ts.migrator.get_weight_map(pt_net=net, weight_map_save_path="map.json")
ts.migrator.convert_weight(weight_map_path="map.json", pt_file_path="net.pth", ms_file_save_path="net.ckpt")
images, labels = np.random.randn(2, 3, 9, 9).astype(np.float32), np.array([1, 3])
np.savez("batch.npz", images=images, labels=labels)

ts.migrator.api_dump_init(net, output_path="torch_dump", retain_backward=True)
ts.migrator.api_dump_start()
loss = nn.functional.cross_entropy(net(torch.tensor(images)), torch.tensor(labels))
loss.backward()
ts.migrator.api_dump_stop()
