from mindspore import nn, ops


class MLP(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Dense(48, 64)
        self.narrow = nn.Dense(64, 32)
        self.act = nn.Tanh()
        self.classify = nn.Dense(32, 10)

    def construct(self, x):
        x = x.view(x.shape[0], -1)
        x = ops.relu(self.hidden(x))
        return self.classify(self.act(self.narrow(x)))


def build():
    return MLP()


def loss(net, batch):
    logits = net(batch["images"])
    return ops.cross_entropy(logits, batch["labels"]), {"logits": logits}
