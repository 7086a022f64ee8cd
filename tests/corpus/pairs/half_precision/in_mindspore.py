import mindspore as ms
from mindspore import nn, ops


class Mixed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.dense1 = nn.Dense(96, 12)
        self.ln = nn.LayerNorm((12,), epsilon=1e-5)
        self.dense2 = nn.Dense(12, 5)
        self.cast = ops.Cast()

    def construct(self, x):
        x = ops.relu(self.cast(self.conv(x), ms.float32))
        x = self.dense1(self.cast(x.reshape((x.shape[0], -1)), ms.float32))
        x = self.cast(x, ms.float16)
        x = ops.tanh(x * ms.Tensor(0.5, ms.float16))
        x = self.ln(self.cast(x, ms.float32))
        return self.dense2(x)


def build():
    return Mixed()


def loss(net, batch):
    logits = net(batch["x"])
    return ops.cross_entropy(logits.astype(ms.float32), batch["y"]), {"logits": logits}
