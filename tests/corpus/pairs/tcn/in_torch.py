import torch.nn.functional as F
from torch import nn


class Causal(nn.Module):
    def __init__(self, inside, outside, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(inside, outside, 3, dilation=dilation)
        self.match = nn.Conv1d(inside, outside, 1) if inside != outside else None

    def forward(self, x):
        y = F.relu(self.conv(self.pad(x)))
        return F.relu(y + (x if self.match is None else self.match(x)))


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Causal(2, 6, 1), Causal(6, 6, 2), Causal(6, 6, 4))
        self.out = nn.Linear(6, 4)

    def forward(self, signal):
        return self.out(self.blocks(signal)[..., -1])


def build():
    return TCN()


def loss(net, batch):
    out = net(batch["signal"])
    return F.huber_loss(out, batch["wanted"]), {"out": out}
