from mindspore import nn, ops


class Branch(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, pad_mode="valid", has_bias=True)
        self.conv2 = nn.Conv2d(6, 8, 3, pad_mode="valid", has_bias=True)
        self.act = nn.ReLU()
        self.dense = nn.Dense(32, 6)

    def construct(self, x):
        x = ops.max_pool2d(self.act(self.conv1(x)), 2, 2)
        x = self.act(self.conv2(x))
        return self.dense(x.view(x.shape[0], -1))


class Siamese(nn.Cell):
    def __init__(self):
        super().__init__()
        self.branch = Branch()

    def construct(self, one, two):
        return self.branch(one), self.branch(two)


def build():
    return Siamese()


def loss(net, batch):
    one, two = net(batch["one"], batch["two"])
    distance = ops.sqrt(ops.sum((one - two) ** 2, 1))
    near = batch["alike"] * ops.square(distance)
    far = (1 - batch["alike"]) * ops.square(ops.relu(3.0 - distance))
    return ops.mean(near + far), {"one": one, "two": two}
