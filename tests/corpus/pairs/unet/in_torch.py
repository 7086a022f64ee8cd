import torch
import torch.nn.functional as F
from torch import nn


class Double(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = Double(1, 6)
        self.down2 = Double(6, 8)
        self.middle = Double(8, 10)
        self.pool = nn.MaxPool2d(2)
        self.grow2 = nn.ConvTranspose2d(10, 8, 2, stride=2)
        self.up2 = Double(16, 8)
        self.grow1 = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.up1 = Double(12, 6)
        self.mask = nn.Conv2d(6, 1, 1)

    def forward(self, scan):
        one = self.down1(scan)
        two = self.down2(self.pool(one))
        x = self.middle(self.pool(two))
        x = self.up2(torch.cat([two, self.grow2(x)], dim=1))
        x = self.up1(torch.cat([one, self.grow1(x)], dim=1))
        return self.mask(x)


def build():
    return UNet()


def loss(net, batch):
    logits = net(batch["scan"])
    probability = torch.sigmoid(logits)
    overlap = (probability * batch["mask"]).sum()
    dice = 1 - 2 * overlap / (probability.sum() + batch["mask"].sum())
    return F.binary_cross_entropy_with_logits(logits, batch["mask"]) + dice, {"logits": logits}
