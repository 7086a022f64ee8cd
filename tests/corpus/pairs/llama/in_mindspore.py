import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class RMSNorm(nn.Cell):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = Parameter(ops.ones((width,), ms.float32))
        self.eps = eps

    def construct(self, x):
        variance = mint.mean(mint.square(x), -1, True)
        return mint.mul(mint.mul(x, mint.rsqrt(variance + self.eps)), self.weight)


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.wq = mint.nn.Linear(width, width, bias=False)
        self.wk = mint.nn.Linear(width, width, bias=False)
        self.wv = mint.nn.Linear(width, width, bias=False)
        self.wo = mint.nn.Linear(width, width, bias=False)

    def rotate(self, x, cos, sin):
        half = self.size // 2
        turned = mint.cat((mint.neg(x[..., half:]), x[..., :half]), -1)
        return mint.add(mint.mul(x, cos), mint.mul(turned, sin))

    def construct(self, x, cos, sin, mask):
        n, length, width = x.shape
        q = self.wq(x).reshape(n, length, self.heads, self.size).swapaxes(1, 2)
        k = self.wk(x).reshape(n, length, self.heads, self.size).swapaxes(1, 2)
        v = self.wv(x).reshape(n, length, self.heads, self.size).swapaxes(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        scores = mint.div(mint.matmul(q, mint.transpose(k, 2, 3)), math.sqrt(self.size))
        scores = mint.add(scores, mask)
        weights = mint.nn.functional.softmax(scores, dim=-1)
        y = mint.matmul(weights, v)
        return self.wo(mint.reshape(mint.transpose(y, 1, 2), (n, length, width)))


class Layer(nn.Cell):
    def __init__(self, width, heads, wide):
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads)
        self.ffn_norm = RMSNorm(width)
        self.w_gate = mint.nn.Linear(width, wide, bias=False)
        self.w_up = mint.nn.Linear(width, wide, bias=False)
        self.w_down = mint.nn.Linear(wide, width, bias=False)

    def construct(self, x, cos, sin, mask):
        x = mint.add(x, self.attention(self.attention_norm(x), cos, sin, mask))
        h = self.ffn_norm(x)
        h = mint.mul(mint.nn.functional.silu(self.w_gate(h)), self.w_up(h))
        return mint.add(x, self.w_down(h))


class Llama(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(30, 16)
        self.layers = nn.CellList([Layer(16, 4, 24) for _ in range(2)])
        self.norm = RMSNorm(16)
        self.output = mint.nn.Linear(16, 30, bias=False)

    def construct(self, ids, cos, sin):
        x = self.tok_embeddings(ids)
        mask = Tensor(np.triu(np.full((ids.shape[1], ids.shape[1]), -1e9, np.float32), 1))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.output(self.norm(x))


def build():
    return Llama()


def loss(net, batch):
    logits = net(batch["ids"], batch["cos"], batch["sin"])
    return ops.cross_entropy(logits.reshape(-1, 30), batch["next"].reshape(-1)), {"logits": logits}
