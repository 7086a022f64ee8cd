import mindspore as ms
from mindspore import Parameter, nn, ops


class Linear(nn.Cell):
    """Keeps its weight as input × output, as the code that this was taken from did."""

    def __init__(self, inside, outside):
        super().__init__()
        self.kernel = Parameter(ops.zeros((inside, outside), ms.float32))
        self.bias = Parameter(ops.zeros((outside,), ms.float32))

    def construct(self, x):
        return ops.matmul(x, self.kernel) + self.bias


class PixelNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 8, 3, pad_mode="same")
        self.n1 = nn.BatchNorm2d(8)
        self.c2 = nn.Conv2d(8, 12, 3, pad_mode="pad", padding=2, dilation=2)
        self.n2 = nn.BatchNorm2d(12)
        self.linear = Linear(12, 5)

    def construct(self, images):
        x = ops.transpose(images, (0, 3, 1, 2))
        x = ops.leaky_relu(self.n1(self.c1(x)), 0.1)
        x = ops.leaky_relu(self.n2(self.c2(x)), 0.1)
        x = ops.transpose(x, (0, 2, 3, 1))
        n, h, w, c = x.shape
        return self.linear(x.reshape((n, h * w, c)))


def build():
    return PixelNet()


def loss(net, batch):
    out = net(batch["images_last"])
    return ops.mean((out - batch["target"]) ** 2), {"out": out}
