import torch.nn.functional as F
from torch import nn


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 4, 3, 2, 1)
        self.c2 = nn.Conv2d(4, 6, 3, 2, 1)
        self.c3 = nn.Conv2d(6, 8, 3, 2, 1)
        self.lateral = nn.ModuleList(nn.Conv2d(n, 5, 1) for n in (4, 6, 8))
        self.smooth = nn.ModuleList(nn.Conv2d(5, 5, 3, padding=1) for _ in range(3))
        self.head = nn.Sequential(nn.Conv2d(5, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 2, 1))

    def forward(self, x):
        one = F.relu(self.c1(x))
        two = F.relu(self.c2(one))
        three = F.relu(self.c3(two))
        p3 = self.lateral[2](three)
        p2 = self.lateral[1](two) + F.interpolate(p3, scale_factor=2.0)
        p1 = self.lateral[0](one) + F.interpolate(p2, scale_factor=2.0)
        levels = [smooth(p) for smooth, p in zip(self.smooth, (p1, p2, p3), strict=True)]
        return [self.head(level) for level in levels]


def build():
    return Pyramid()


def loss(net, batch):
    scores = net(batch["x"])
    total = sum((score.sigmoid() ** 2).mean() for score in scores)
    return total, {f"level{number}": score for number, score in enumerate(scores)}
