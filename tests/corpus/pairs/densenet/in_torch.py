import torch
import torch.nn.functional as F
from torch import nn


class DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class DenseBlock(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(channels + growth * number, growth) for number in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.block1 = DenseBlock(8, 4)
        self.transition = nn.Sequential(
            nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2)
        )
        self.block2 = DenseBlock(10, 4)
        self.norm = nn.BatchNorm2d(22)
        self.fc = nn.Linear(22, 6)

    def forward(self, x):
        x = self.block2(self.transition(self.block1(self.conv0(x))))
        x = F.relu(self.norm(x))
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).view(x.size(0), -1))


def build():
    return DenseNet()


def loss(net, batch):
    logits = net(batch["x"])
    return F.cross_entropy(logits, batch["y"]), {"logits": logits}
