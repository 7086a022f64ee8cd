import mindspore as ms
import mindspore.nn as nn
import numpy as np
from mindspore import ops
from msprobe.mindspore import PrecisionDebugger, seed_all

seed_all(1234)
debugger = PrecisionDebugger(config_path="./config.json")


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Dense(8, 4)
        self.linear2 = nn.Dense(4, 2)

    def construct(self, x):
        x1 = self.linear1(x)
        x2 = self.linear2(x1)
        logits = ops.relu(x2)
        return logits


net = Net()


def train_step(inputs):
    return net(inputs).sum()


if __name__ == "__main__":
    grad_fn = ms.value_and_grad(train_step, 0, net.trainable_params())
    for _ in range(3):
        inputs = ms.Tensor(np.random.randn(10, 8).astype(np.float32))
        debugger.start(model=net)
        out, grad = grad_fn(inputs)
        debugger.stop()
        debugger.step()
