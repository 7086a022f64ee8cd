import mindspore as ms
from mindspore import Parameter, mint, nn, ops


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.dw = nn.Conv2d(width, width, 7, pad_mode="same", group=width, has_bias=True)
        self.ln = nn.LayerNorm((width,), epsilon=1e-6)
        self.expand = nn.Conv2d(width, 4 * width, 1, has_bias=True)
        self.shrink = nn.Conv2d(4 * width, width, 1, has_bias=True)
        self.layer_scale = Parameter(ops.ones((width, 1, 1), ms.float32))

    def construct(self, x):
        y = mint.permute(self.dw(x), (0, 2, 3, 1))
        y = mint.permute(self.ln(y), (0, 3, 1, 2))
        y = self.shrink(ops.gelu(self.expand(y), approximate="none"))
        return mint.add(x, mint.mul(self.layer_scale, y))


class ConvNeXt(nn.Cell):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2, pad_mode="valid", has_bias=True)
        self.stage = nn.SequentialCell(Block(width), Block(width))
        self.final_ln = nn.LayerNorm((width,), epsilon=1e-6)
        self.head = nn.Dense(width, 5)

    def construct(self, x):
        x = self.stage(self.stem(x))
        return self.head(self.final_ln(ops.mean(x, (2, 3))))


def build():
    return ConvNeXt()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits, batch["y"]), {"logits": logits}
