import torch
import torch.nn.functional as F
from torch import nn


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(1, 6, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32, 6),
        )

    def forward(self, one, two):
        return self.tower(one), self.tower(two)


def build():
    return Siamese()


def loss(net, batch):
    one, two = net(batch["one"], batch["two"])
    distance = F.pairwise_distance(one, two, eps=0.0)
    near = batch["alike"] * distance.pow(2)
    far = (1 - batch["alike"]) * torch.clamp(3.0 - distance, min=0.0).pow(2)
    return (near + far).mean(), {"one": one, "two": two}
