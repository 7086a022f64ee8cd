"""The original: one training step of a small network in PyTorch, recorded.

python in_torch.py TRACES
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import twintrace as tt


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.act = nn.GELU()
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.norm(self.act(self.up(x))))


traces = Path(sys.argv[1])
traces.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
net = Net()
torch.save(net.state_dict(), traces / "net.pth")

generator = np.random.default_rng(0)
x = torch.tensor(generator.normal(size=(8, 16)).astype(np.float32))
labels = torch.tensor(generator.integers(0, 10, size=8))

with tt.record(traces / "torch", net, keep="tensor", overwrite=True):
    loss = nn.functional.cross_entropy(net(x), labels, label_smoothing=0.1)
    loss.backward()
print(f"PyTorch    loss {loss.item():.9f}")
