from mindspore import nn, ops


class ResidualBlock(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, has_bias=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, has_bias=True)

    def construct(self, x):
        return x + self.conv2(ops.relu(self.conv1(x))) * 0.1


class Upscaler(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv_first = nn.Conv2d(3, 8, 3, has_bias=True)
        self.rb1 = ResidualBlock(8)
        self.rb2 = ResidualBlock(8)
        self.conv_last = nn.Conv2d(8, 12, 3, has_bias=True)

    def shuffle(self, x):
        n, c, h, w = x.shape
        x = ops.reshape(x, (n, c // 4, 2, 2, h, w))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))
        return ops.reshape(x, (n, c // 4, 2 * h, 2 * w))

    def construct(self, small):
        x = self.conv_last(self.rb2(self.rb1(self.conv_first(small))))
        _, _, h, w = small.shape
        base = ops.interpolate(small, size=(2 * h, 2 * w), mode="bilinear", align_corners=False)
        return base + self.shuffle(x)


def build():
    return Upscaler()


def loss(net, batch):
    out = net(batch["small"])
    return ops.mean(ops.abs(out - batch["large"])), {"out": out}
