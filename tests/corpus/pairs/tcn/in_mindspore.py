from mindspore import nn, ops


class Level(nn.Cell):
    def __init__(self, inside, outside, dilation):
        super().__init__()
        self.left = 2 * dilation
        self.filter = nn.Conv1d(inside, outside, 3, pad_mode="valid", dilation=dilation, has_bias=True)
        self.widen = nn.Conv1d(inside, outside, 1, has_bias=True) if inside != outside else None

    def construct(self, x):
        y = ops.relu(self.filter(ops.pad(x, (self.left, 0))))
        if self.widen is not None:
            x = self.widen(x)
        return ops.relu(ops.add(y, x))


class TCN(nn.Cell):
    def __init__(self):
        super().__init__()
        self.levels = nn.CellList([Level(2, 6, 1), Level(6, 6, 2), Level(6, 6, 4)])
        self.regress = nn.Dense(6, 4)

    def construct(self, signal):
        for level in self.levels:
            signal = level(signal)
        return self.regress(signal[:, :, -1])


def build():
    return TCN()


def loss(net, batch):
    out = net(batch["signal"])
    return ops.huber_loss(out, batch["wanted"]), {"out": out}
