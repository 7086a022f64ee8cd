from mindspore import nn


class LeNet5(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 6, 5, pad_mode="same", has_bias=True),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
        )
        self.classifier = nn.SequentialCell(
            nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10)
        )

    def construct(self, x):
        x = self.features(x)
        x = x.reshape((x.shape[0], -1))
        return self.classifier(x)


def build():
    return LeNet5()


def loss(net, batch):
    criterion = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    logits = net(batch["x"])
    return criterion(logits, batch["y"]), {"logits": logits}
