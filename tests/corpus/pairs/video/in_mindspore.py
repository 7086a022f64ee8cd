from mindspore import nn, ops


class Video(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv3d(2, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.c2 = nn.Conv3d(4, 6, 3, pad_mode="valid", has_bias=True)
        self.fc = nn.Dense(6, 3)

    def construct(self, clip):
        x = self.c1(clip)
        n, c, t, h, w = x.shape
        x = ops.relu(self.bn(x.reshape((n, c, t * h, w))))
        x = ops.relu(self.c2(x.reshape((n, c, t, h, w))))
        return self.fc(x.reshape((x.shape[0], x.shape[1], -1)).mean(2))


def build():
    return Video()


def loss(net, batch):
    logits = net(batch["clip"])
    return ops.cross_entropy(logits, batch["what"]), {"logits": logits}
