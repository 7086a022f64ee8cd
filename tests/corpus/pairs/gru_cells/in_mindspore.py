from mindspore import nn, ops


class Recurrence(nn.Cell):
    def __init__(self):
        super().__init__()
        self.project = nn.Dense(6, 6)
        self.cell = nn.GRUCell(6, 8)
        self.head = nn.Dense(8, 3)

    def construct(self, frames, h):
        outputs = ()
        for t in range(frames.shape[0]):
            x = ops.tanh(self.project(frames[t]))
            h = self.cell(x, h)
            outputs += (h,)
        return self.head(ops.stack(outputs, axis=0))


def build():
    return Recurrence()


def loss(net, batch):
    out = net(batch["frames"], batch["start"])
    return nn.L1Loss()(out, batch["want"]), {"out": out}
