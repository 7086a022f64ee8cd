from mindspore import mint, nn, ops


class Excite(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.reduce = nn.Dense(channels, channels // 4)
        self.grow = nn.Dense(channels // 4, channels)
        self.hsigmoid = nn.HSigmoid()

    def construct(self, x):
        pooled = ops.mean(x, (2, 3))
        gate = self.hsigmoid(self.grow(ops.relu(self.reduce(pooled))))
        n, c = gate.shape
        return ops.mul(x, ops.reshape(gate, (n, c, 1, 1)))


class Bottleneck(nn.Cell):
    def __init__(self, inside, outside, stride):
        super().__init__()
        wide = inside * 3
        self.pw = nn.Conv2d(inside, wide, 1)
        self.pw_bn = nn.BatchNorm2d(wide)
        self.dw = nn.Conv2d(wide, wide, 3, stride, pad_mode="pad", padding=1, group=wide)
        self.dw_bn = nn.BatchNorm2d(wide)
        self.excite = Excite(wide)
        self.pw_linear = nn.Conv2d(wide, outside, 1)
        self.pw_linear_bn = nn.BatchNorm2d(outside)
        self.hswish = nn.HSwish()
        self.use_shortcut = stride == 1 and inside == outside

    def construct(self, x):
        out = self.hswish(self.pw_bn(self.pw(x)))
        out = self.hswish(self.dw_bn(self.dw(out)))
        out = self.pw_linear_bn(self.pw_linear(self.excite(out)))
        if self.use_shortcut:
            return mint.add(x, out)
        return out


class MobileNetV3(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem_conv = nn.Conv2d(3, 8, 3, 2, pad_mode="pad", padding=1)
        self.stem_bn = nn.BatchNorm2d(8)
        self.first = Bottleneck(8, 8, 1)
        self.second = Bottleneck(8, 12, 2)
        self.head = nn.Dense(12, 5)

    def construct(self, x):
        x = ops.hardswish(self.stem_bn(self.stem_conv(x)))
        x = self.second(self.first(x))
        return self.head(x.mean((2, 3)))


def build():
    return MobileNetV3()


def loss(net, batch):
    logits = net(batch["image"])
    return ops.cross_entropy(logits, batch["label"], label_smoothing=0.1), {"logits": logits}
