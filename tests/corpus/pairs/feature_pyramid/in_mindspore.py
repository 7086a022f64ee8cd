from mindspore import nn, ops


class Neck(nn.Cell):
    def __init__(self):
        super().__init__()
        self.lat0, self.lat1, self.lat2 = (nn.Conv2d(n, 5, 1, has_bias=True) for n in (4, 6, 8))
        self.out0, self.out1, self.out2 = (nn.Conv2d(5, 5, 3, has_bias=True) for _ in range(3))

    def up(self, x):
        _, _, h, w = x.shape
        return ops.interpolate(x, size=(h * 2, w * 2), mode="nearest")

    def construct(self, features):
        one, two, three = features
        three = self.lat2(three)
        two = self.lat1(two) + self.up(three)
        one = self.lat0(one) + self.up(two)
        return self.out0(one), self.out1(two), self.out2(three)


class Head(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tower = nn.Conv2d(5, 5, 3, has_bias=True)
        self.score = nn.Conv2d(5, 2, 1, has_bias=True)

    def construct(self, x):
        return self.score(ops.relu(self.tower(x)))


class Pyramid(nn.Cell):
    def __init__(self):
        super().__init__()
        self.backbone = nn.CellList(
            [nn.Conv2d(a, b, 3, 2, pad_mode="pad", padding=1, has_bias=True) for a, b in ((3, 4), (4, 6), (6, 8))]
        )
        self.fpn = Neck()
        self.predictor = Head()

    def construct(self, x):
        features = []
        for conv in self.backbone:
            x = ops.relu(conv(x))
            features.append(x)
        return [self.predictor(level) for level in self.fpn(features)]


def build():
    return Pyramid()


def loss(net, batch):
    scores = net(batch["x"])
    total = 0
    for score in scores:
        total = total + ops.mean(ops.square(ops.sigmoid(score)))
    return total, {f"level{number}": score for number, score in enumerate(scores)}
