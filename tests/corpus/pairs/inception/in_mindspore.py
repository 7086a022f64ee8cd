from mindspore import mint, nn, ops


def conv(inside, outside, size):
    return nn.Conv2d(inside, outside, size, pad_mode="same", has_bias=True)


class Branches(nn.Cell):
    def __init__(self, inside):
        super().__init__()
        self.pool = nn.MaxPool2d(3, 1, pad_mode="same")
        self.pooled = conv(inside, 5, 1)
        self.five_in = conv(inside, 4, 1)
        self.five_mid = conv(4, 4, 3)
        self.five_out = conv(4, 4, 3)
        self.three_in = conv(inside, 4, 1)
        self.three_out = conv(4, 8, 3)
        self.one = conv(inside, 6, 1)

    def construct(self, x):
        pooled = ops.relu(self.pooled(self.pool(x)))
        five = ops.relu(self.five_in(x))
        five = ops.relu(self.five_mid(five))
        five = ops.relu(self.five_out(five))
        three = ops.relu(self.three_out(ops.relu(self.three_in(x))))
        one = ops.relu(self.one(x))
        return mint.cat((one, three, five, pooled), 1)


class GoogleNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = Branches(6)
        self.b = Branches(23)
        self.classifier = nn.Dense(23, 4)
        self.side = nn.Dense(23, 4)

    def construct(self, x):
        mid = self.a(x)
        out = self.b(ops.max_pool2d(mid, 2, 2))
        logits = self.classifier(mint.mean(out, (2, 3)))
        return logits, self.side(mint.mean(mid, (2, 3)))


def build():
    return GoogleNet()


def loss(net, batch):
    logits, aux = net(batch["x"])
    main, extra = ops.cross_entropy(logits, batch["y"]), ops.cross_entropy(aux, batch["y"])
    return main + extra * 0.3, {"logits": logits, "aux": aux}
