"""Save the weights of a small convolutional network in PyTorch.

python in_torch.py
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(3, 8, 3))
net.add_module("bn", nn.BatchNorm2d(8))
net.add_module("fc", nn.Linear(8, 4))
for name in ("running_mean", "running_var"):
    getattr(net.bn, name).copy_(torch.rand(8))
torch.save(net.state_dict(), "net.pth")

net.fc.weight.data[0] *= 2
torch.save(net.state_dict(), "changed.pth")
