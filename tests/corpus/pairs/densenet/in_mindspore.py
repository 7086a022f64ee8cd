from mindspore import mint, nn, ops


class Unit(nn.Cell):
    """Gives the new channels only; who calls it joins them."""

    def __init__(self, channels, growth):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.grow = nn.Conv2d(channels, growth, 3, pad_mode="same")

    def construct(self, features):
        x = ops.cat(features, axis=1) if len(features) > 1 else features[0]
        return self.grow(ops.relu(self.bn(x)))


class Dense(nn.Cell):
    def __init__(self, channels, growth):
        super().__init__()
        self.units = nn.CellList([Unit(channels + growth * number, growth) for number in range(3)])

    def construct(self, x):
        features = [x]
        for unit in self.units:
            features.append(unit(features))
        return mint.cat(features, dim=1)


class Shrink(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1)
        self.pool = nn.AvgPool2d(2, 2)

    def construct(self, x):
        return self.pool(self.conv(mint.nn.functional.relu(self.bn(x))))


class DenseNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1)
        self.dense = nn.CellList([Dense(8, 4), Dense(10, 4)])
        self.shrink = Shrink(20)
        self.last_bn = nn.BatchNorm2d(22)
        self.out = nn.Dense(22, 6)

    def construct(self, x):
        x = self.dense[0](self.stem(x))
        x = self.dense[1](self.shrink(x))
        x = ops.relu(self.last_bn(x))
        return self.out(ops.mean(x, (2, 3)))


def build():
    return DenseNet()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits, batch["y"]), {"logits": logits}
