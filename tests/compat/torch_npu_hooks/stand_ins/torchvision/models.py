"""ResNet-50: the same graph as torchvision's, layer by layer. STAND_IN_WIDTH makes it thinner (64 is the real one)."""

import os

import torch
from torch import nn

WIDTH = int(os.environ.get("STAND_IN_WIDTH", "64"))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels, planes, stride, downsample):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, classes=1000):
        super().__init__()
        self.channels = WIDTH
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number, (count, stride) in enumerate(zip(layers, (1, 2, 2, 2), strict=True)):
            setattr(self, f"layer{number + 1}", self.make_layer(WIDTH << number, count, stride))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.channels, classes)

    def make_layer(self, planes, count, stride):
        wide = planes * Bottleneck.expansion
        downsample = nn.Sequential(nn.Conv2d(self.channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))
        blocks = [Bottleneck(self.channels, planes, stride, downsample)]
        self.channels = wide
        blocks += [Bottleneck(wide, planes, 1, None) for _ in range(count - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet50():
    return ResNet((3, 4, 6, 3))
