"""A training script as MSAdapter's users write it: torch's modules, MindSpore's gradients, a recorder around each step."""

import sys

import mindspore as ms
import torch
import torch.nn as nn
import torch.nn.functional as F

import twintrace as tt

rec = tt.record(sys.argv[1], level=sys.argv[2], keep="tensor", strict=True) if sys.argv[2] == "api" else None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Linear(in_features=8, out_features=4)
        self.linear2 = nn.Linear(in_features=4, out_features=2)

    def forward(self, x):
        x1 = self.linear1(x)
        x2 = self.linear2(x1)
        logits = F.relu(x2)
        return logits


net = Net()
rec = rec or tt.record(sys.argv[1], net, level=sys.argv[2], keep="tensor", strict=True)


def train_step(inputs):
    return net(inputs)


if __name__ == "__main__":
    data = (torch.randn(10, 8), torch.randn(10, 8), torch.randn(10, 8))
    grad_fn = ms.value_and_grad(train_step, grad_position=0)

    for inputs in data:
        rec.start()
        out, grad = grad_fn(inputs)
        rec.stop()
        rec.step()
    rec.close()
