from mindspore import mint, nn, ops


def mlp(width, wide):
    return nn.SequentialCell(nn.Dense(width, wide), nn.GELU(approximate=False), nn.Dense(wide, width))


class MixerBlock(nn.Cell):
    def __init__(self, tokens, channels):
        super().__init__()
        self.norm_t = nn.LayerNorm((channels,), epsilon=1e-5)
        self.tokens = mlp(tokens, 10)
        self.norm_c = nn.LayerNorm((channels,), epsilon=1e-5)
        self.channels = mlp(channels, 20)

    def construct(self, x):
        y = ops.transpose(self.norm_t(x), (0, 2, 1))
        y = ops.transpose(self.tokens(y), (0, 2, 1))
        x = mint.add(x, y)
        return mint.add(x, self.channels(self.norm_c(x)))


class Mixer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 14, 4, 4, pad_mode="valid", has_bias=True)
        self.blocks = nn.CellList([MixerBlock(9, 14) for _ in range(2)])
        self.norm = nn.LayerNorm((14,), epsilon=1e-5)
        self.head = nn.Dense(14, 5)

    def construct(self, images):
        x = self.embed(images)
        n, c, h, w = x.shape
        x = ops.transpose(x.reshape((n, c, h * w)), (0, 2, 1))
        for block in self.blocks:
            x = block(x)
        return self.head(ops.mean(self.norm(x), 1))


def build():
    return Mixer()


def loss(net, batch):
    logits = net(batch["images"])
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, batch["labels"]), {"logits": logits}
