import torch.nn.functional as F
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.relu = nn.ReLU()
        self.excite = nn.Conv2d(channels // 4, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.excite(self.relu(self.squeeze(scale))))


class InvertedResidual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        wide = inside * 3
        self.expand = nn.Conv2d(inside, wide, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.act = nn.Hardswish()
        self.depthwise = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.se = SqueezeExcite(wide)
        self.project = nn.Conv2d(wide, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.residual = stride == 1 and inside == outside

    def forward(self, x):
        y = self.act(self.bn1(self.expand(x)))
        y = self.act(self.bn2(self.depthwise(y)))
        y = self.bn3(self.project(self.se(y)))
        return x + y if self.residual else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.blocks = nn.ModuleList([InvertedResidual(8, 8, 1), InvertedResidual(8, 12, 2)])
        self.classifier = nn.Linear(12, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.mean([2, 3]))


def build():
    return MobileNet()


def loss(net, batch):
    logits = net(batch["image"])
    return F.cross_entropy(logits, batch["label"], label_smoothing=0.1), {"logits": logits}
