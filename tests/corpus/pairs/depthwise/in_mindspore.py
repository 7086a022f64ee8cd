from mindspore import nn, ops


def separable(inside, outside, stride):
    return nn.SequentialCell(
        nn.Conv2d(inside, inside, 3, stride, pad_mode="pad", padding=1, group=inside),
        nn.BatchNorm2d(inside, eps=1e-3),
        nn.ReLU6(),
        nn.Conv2d(inside, outside, 1, pad_mode="valid"),
        nn.BatchNorm2d(outside, eps=1e-3),
        nn.ReLU6(),
    )


class MobileNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Conv2d(3, 8, 3, 2, pad_mode="pad", padding=1, has_bias=True), separable(8, 10, 1), separable(10, 12, 2)
        )
        self.fc = nn.Dense(12, 4)

    def construct(self, x):
        x = self.layers(x)
        return self.fc(ops.mean(x, (2, 3)))


def build():
    return MobileNet()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits, batch["y"]), {"logits": logits}
