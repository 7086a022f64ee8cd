"""A small net in PyTorch and what it is trained on, for the real tool and for our own recorder."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc1 = nn.Linear(8, 4)
        self.fc2 = nn.Linear(4, 3)

    def forward(self, image, features, mask=None):
        wide = functional.relu(self.conv(image)).reshape(2, -1).sum(dim=1, keepdim=True)
        hidden = torch.tanh(self.fc1(features)) + wide
        if mask is not None:
            hidden = torch.where(mask, (hidden.bfloat16() * 2).float(), torch.zeros_like(hidden))
        return functional.softmax(self.fc2(hidden), dim=-1)


def steps():
    """(net, a function that computes the loss) for each of two steps; the first is what on_mindspore.py does."""
    random = np.random.default_rng(0)
    net = Net()
    for parameter in net.parameters():
        parameter.data = torch.tensor(random.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32))
    labels = torch.tensor([0, 2])
    for mask in (None, torch.tensor([[True, False, True, True]])):
        image = torch.tensor(random.standard_normal((2, 1, 4, 4)).astype(np.float32))
        features = torch.tensor(random.standard_normal((2, 8)).astype(np.float32))
        yield (
            net,
            lambda image=image, features=features, mask=mask: functional.cross_entropy(
                net(image, features, mask=mask), labels
            ),
        )
        net.zero_grad()
