from mindspore import mint, nn, ops


class Stage(nn.Cell):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv_a = nn.Conv2d(inside, outside, 3)
        self.bn_a = nn.BatchNorm2d(outside)
        self.conv_b = nn.Conv2d(outside, outside, 3)
        self.bn_b = nn.BatchNorm2d(outside)

    def construct(self, x):
        x = mint.nn.functional.relu(self.bn_a(self.conv_a(x)))
        return mint.nn.functional.relu(self.bn_b(self.conv_b(x)))


class UNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enc1 = Stage(1, 6)
        self.enc2 = Stage(6, 8)
        self.bridge = Stage(8, 10)
        self.shrink = nn.MaxPool2d(2, 2)
        self.expand2 = nn.Conv2dTranspose(10, 8, 2, 2, pad_mode="valid", has_bias=True)
        self.dec2 = Stage(16, 8)
        self.expand1 = nn.Conv2dTranspose(8, 6, 2, 2, pad_mode="valid", has_bias=True)
        self.dec1 = Stage(12, 6)
        self.final = nn.Conv2d(6, 1, 1, has_bias=True)

    def construct(self, x):
        skip1 = self.enc1(x)
        skip2 = self.enc2(self.shrink(skip1))
        x = self.bridge(self.shrink(skip2))
        x = self.expand2(x)
        x = self.dec2(ops.concat((skip2, x), 1))
        x = self.expand1(x)
        x = self.dec1(ops.concat((skip1, x), 1))
        return self.final(x)


def build():
    return UNet()


def loss(net, batch):
    logits, mask = net(batch["scan"]), batch["mask"]
    p = mint.sigmoid(logits)
    dice = 1 - 2 * mint.sum(mint.mul(p, mask)) / (mint.sum(p) + mint.sum(mask))
    return nn.BCEWithLogitsLoss()(logits, mask) + dice, {"logits": logits}
