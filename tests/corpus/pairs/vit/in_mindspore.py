import mindspore as ms
from mindspore import Parameter, mint, nn, ops


class Cut(nn.Cell):
    """Images to patches, patches to vectors."""

    def __init__(self, size, width):
        super().__init__()
        self.size = size
        self.proj = nn.Dense(3 * size * size, width)

    def construct(self, images):
        n, c, h, w = images.shape
        s = self.size
        x = images.reshape((n, c, h // s, s, w // s, s))
        x = ops.transpose(x, (0, 2, 4, 1, 3, 5)).reshape((n, (h // s) * (w // s), c * s * s))
        return self.proj(x)


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)

    def construct(self, x):
        n, length, width = x.shape
        qkv = self.qkv(x).reshape((n, length, 3, self.heads, -1)).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = mint.nn.functional.softmax(mint.matmul(q, k.swapaxes(-2, -1)) * self.scale, dim=-1)
        return self.out(mint.matmul(weights, v).swapaxes(1, 2).reshape((n, length, width)))


class Block(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.pre = nn.LayerNorm((width,), epsilon=1e-6)
        self.mha = Attention(width, heads)
        self.post = nn.LayerNorm((width,), epsilon=1e-6)
        self.ff = nn.SequentialCell(nn.Dense(width, 2 * width), nn.GELU(approximate=False), nn.Dense(2 * width, width))

    def construct(self, x):
        x = self.mha(self.pre(x)) + x
        return self.ff(self.post(x)) + x


class VisionTransformer(nn.Cell):
    def __init__(self, width=16):
        super().__init__()
        self.cut = Cut(4, width)
        self.class_token = Parameter(ops.zeros((1, 1, width), ms.float32))
        self.positions = Parameter(ops.zeros((10, width), ms.float32))
        self.first = Block(width, 2)
        self.last = Block(width, 2)
        self.norm = nn.LayerNorm((width,), epsilon=1e-6)
        self.head = nn.Dense(width, 6)

    def construct(self, images):
        x = self.cut(images)
        token = ops.tile(self.class_token, (x.shape[0], 1, 1))
        x = ops.cat((token, x), axis=1) + self.positions
        x = self.last(self.first(x))
        return self.head(self.norm(x)[:, 0])


def build():
    return VisionTransformer()


def loss(net, batch):
    logits = net(batch["images"])
    return nn.CrossEntropyLoss()(logits, batch["labels"]), {"logits": logits}
