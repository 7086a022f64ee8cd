import math

from mindspore import nn, ops


class SelfAttention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.wq = nn.Dense(width, width)
        self.wk = nn.Dense(width, width)
        self.wv = nn.Dense(width, width)
        self.wo = nn.Dense(width, width)

    def split(self, x):
        n, length, _ = x.shape
        return ops.transpose(ops.reshape(x, (n, length, self.heads, self.size)), (0, 2, 1, 3))

    def construct(self, x):
        q, k, v = self.split(self.wq(x)), self.split(self.wk(x)), self.split(self.wv(x))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(self.size)
        weights = ops.softmax(scores, axis=-1)
        mixed = ops.matmul(weights, v)
        n, _, length, _ = mixed.shape
        return self.wo(mixed.transpose(0, 2, 1, 3).reshape((n, length, -1)))


class FeedForward(nn.Cell):
    def __init__(self, width, wide):
        super().__init__()
        self.up = nn.Dense(width, wide)
        self.down = nn.Dense(wide, width)

    def construct(self, x):
        return self.down(ops.gelu(self.up(x), approximate="none"))


class Layer(nn.Cell):
    def __init__(self, width, heads, wide):
        super().__init__()
        self.attn = SelfAttention(width, heads)
        self.ln1 = nn.LayerNorm((width,), epsilon=1e-5)
        self.mlp = FeedForward(width, wide)
        self.ln2 = nn.LayerNorm((width,), epsilon=1e-5)

    def construct(self, x):
        x = self.ln1(x + self.attn(x))
        return self.ln2(x + self.mlp(x))


class Encoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([Layer(16, 4, 32) for _ in range(2)])
        self.head = nn.Dense(16, 5)

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0, :])


def build():
    return Encoder()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits, batch["y"]), {"logits": logits}
