"""A training that must not change by accident: three steps of a small network, always the same."""

import os

import torch
from torch import nn

SLOPE = float(os.environ.get("SLOPE", "0.01"))  # what somebody will change one day


class Net(nn.Module):
    """A layer, a function, a norm and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(nn.functional.leaky_relu(self.first(x), SLOPE)))


def build() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = Net()
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def step(net: Net, optimizer: torch.optim.Optimizer, number: int) -> None:
    drawn = torch.Generator().manual_seed(number)
    x, y = torch.randn(6, 8, generator=drawn), torch.randint(0, 4, (6,), generator=drawn)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
