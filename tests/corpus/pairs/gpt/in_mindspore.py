import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


class DecoderLayer(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm_a = nn.LayerNorm([width], epsilon=1e-5)
        self.qkv = nn.Dense(width, 3 * width)
        self.merge = nn.Dense(width, width)
        self.norm_b = nn.LayerNorm([width], epsilon=1e-5)
        self.wide = nn.Dense(width, 4 * width)
        self.narrow = nn.Dense(4 * width, width)
        self.batch_matmul = ops.BatchMatMul()
        self.batch_matmul_t = ops.BatchMatMul(transpose_b=True)

    def heads_of(self, x):
        n, length, _ = x.shape
        return mint.permute(mint.reshape(x, (n, length, self.heads, self.size)), (0, 2, 1, 3))

    def construct(self, x, hidden_future):
        n, length, width = x.shape
        q, k, v = mint.split(self.qkv(self.norm_a(x)), width, -1)
        q = self.heads_of(q) * self.size**-0.5
        scores = self.batch_matmul_t(q, self.heads_of(k))
        scores = scores.masked_fill(hidden_future, -1e9)
        scores = ops.softmax(scores.astype(ms.float32))
        y = self.batch_matmul(scores, self.heads_of(v))
        y = mint.reshape(mint.permute(y, (0, 2, 1, 3)), (n, length, width))
        x = x + self.merge(y)
        h = ops.gelu(self.wide(self.norm_b(x)), approximate="tanh")
        return x + self.narrow(h)


class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(24, 16)
        self.position = nn.Embedding(12, 16)
        self.layers = nn.CellList([DecoderLayer(16, 2) for _ in range(2)])
        self.last_norm = nn.LayerNorm([16], epsilon=1e-5)

    def construct(self, ids):
        length = ids.shape[1]
        where = ops.arange(length)
        x = self.token(ids) + self.position(where)
        future = Tensor(np.triu(np.ones((length, length), bool), 1))
        for layer in self.layers:
            x = layer(x, future)
        return mint.matmul(self.last_norm(x), self.token.embedding_table.T)


def build():
    return GPT()


def loss(net, batch):
    logits = net(batch["ids"])
    return nn.CrossEntropyLoss()(logits.reshape((-1, 24)), batch["next"].reshape((-1,))), {"logits": logits}
