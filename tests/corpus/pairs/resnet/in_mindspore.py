from mindspore import nn, ops


def conv3x3(inside, outside, stride=1):
    return nn.Conv2d(inside, outside, 3, stride, pad_mode="pad", padding=1)


class ResidualBlock(nn.Cell):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.a = conv3x3(inside, outside, stride)
        self.a_norm = nn.BatchNorm2d(outside, momentum=0.9)
        self.b = conv3x3(outside, outside)
        self.b_norm = nn.BatchNorm2d(outside, momentum=0.9)
        self.act = nn.ReLU()
        self.project = stride != 1 or inside != outside
        if self.project:
            self.down = nn.Conv2d(inside, outside, 1, stride, pad_mode="valid")
            self.down_norm = nn.BatchNorm2d(outside, momentum=0.9)
        self.add = ops.Add()

    def construct(self, x):
        identity = x
        out = self.a(x)
        out = self.a_norm(out)
        out = self.act(out)
        out = self.b(out)
        out = self.b_norm(out)
        if self.project:
            identity = self.down_norm(self.down(identity))
        return self.act(self.add(out, identity))


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = conv3x3(3, 8)
        self.bn1 = nn.BatchNorm2d(8, momentum=0.9)
        self.relu = nn.ReLU()
        self.blocks = nn.CellList([ResidualBlock(8, 8), ResidualBlock(8, 12, 2), ResidualBlock(12, 12)])
        self.mean = ops.ReduceMean(keep_dims=False)
        self.end = nn.Dense(12, 7)

    def construct(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        for block in self.blocks:
            x = block(x)
        return self.end(self.mean(x, (2, 3)))


def build():
    return ResNet()


def loss(net, batch):
    logits = net(batch["images"])
    return nn.CrossEntropyLoss()(logits, batch["labels"]), {"logits": logits}
