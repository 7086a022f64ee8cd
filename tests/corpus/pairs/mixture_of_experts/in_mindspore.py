import mindspore as ms
from mindspore import nn, ops


class Expert(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(8, 12, activation=nn.GELU(approximate=False))
        self.down = nn.Dense(12, 8)

    def construct(self, x):
        return self.down(self.up(x))


class MoE(nn.Cell):
    def __init__(self):
        super().__init__()
        self.router = nn.Dense(8, 3)
        self.experts = nn.CellList([Expert() for _ in range(3)])
        self.head = nn.Dense(8, 4)

    def construct(self, x):
        probabilities = ops.softmax(self.router(x).astype(ms.float32), axis=-1)
        top, _ = ops.topk(probabilities, 2)
        chosen = probabilities >= top[:, -1:]
        weights = ops.where(chosen, probabilities, ops.zeros_like(probabilities))
        weights = weights / weights.sum(-1, keepdims=True)
        y = x
        for number, expert in enumerate(self.experts):
            y = y + weights[:, number : number + 1] * expert(x)
        return self.head(y)


def build():
    return MoE()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits, batch["y"]), {"logits": logits}
