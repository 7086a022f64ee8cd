from mindspore import nn, ops


class AutoEncoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(2, 6, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.bend1 = nn.PReLU(6)
        self.down2 = nn.Conv2d(6, 8, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.bend2 = nn.PReLU(8)
        self.up1 = nn.Conv2d(8, 6, 3, pad_mode="same", has_bias=True)
        self.up2 = nn.Conv2d(6, 2, 3, pad_mode="same", has_bias=True)

    def double(self, x):
        """Each pixel twice in both directions."""
        n, c, h, w = x.shape
        x = ops.tile(x.reshape((n, c, h, 1, w, 1)), (1, 1, 1, 2, 1, 2))
        return x.reshape((n, c, 2 * h, 2 * w))

    def construct(self, x):
        code = self.bend2(self.down2(self.bend1(self.down1(x))))
        return self.up2(self.double(self.up1(self.double(code))))


def build():
    return AutoEncoder()


def loss(net, batch):
    out = net(batch["x"])
    return nn.MSELoss()(out, batch["x"]), {"out": out}
