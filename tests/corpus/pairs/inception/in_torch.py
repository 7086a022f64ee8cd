import torch
import torch.nn.functional as F
from torch import nn


class Mixed(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.branch1 = nn.Conv2d(inside, 6, 1)
        self.branch3_1 = nn.Conv2d(inside, 4, 1)
        self.branch3_2 = nn.Conv2d(4, 8, 3, padding=1)
        self.branch5_1 = nn.Conv2d(inside, 4, 1)
        self.branch5_2 = nn.Conv2d(4, 4, 3, padding=1)
        self.branch5_3 = nn.Conv2d(4, 4, 3, padding=1)
        self.pool_proj = nn.Conv2d(inside, 5, 1)

    def forward(self, x):
        one = F.relu(self.branch1(x))
        three = F.relu(self.branch3_2(F.relu(self.branch3_1(x))))
        five = F.relu(self.branch5_3(F.relu(self.branch5_2(F.relu(self.branch5_1(x))))))
        pool = F.relu(self.pool_proj(F.max_pool2d(x, 3, stride=1, padding=1)))
        return torch.cat((one, three, five, pool), dim=1)


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed1 = Mixed(6)
        self.mixed2 = Mixed(23)
        self.aux = nn.Linear(23, 4)
        self.fc = nn.Linear(23, 4)

    def forward(self, x):
        x = self.mixed1(x)
        aux = self.aux(x.mean((2, 3)))
        x = self.mixed2(F.max_pool2d(x, 2))
        return self.fc(x.mean((2, 3))), aux


def build():
    return Inception()


def loss(net, batch):
    logits, aux = net(batch["x"])
    total = F.cross_entropy(logits, batch["y"]) + 0.3 * F.cross_entropy(aux, batch["y"])
    return total, {"logits": logits, "aux": aux}
