"""A training as msprobe's documents have it. Nothing here knows of twintrace.

python train.py CONFIG EPS
"""

import sys

import torch
from msprobe.pytorch import PrecisionDebugger, seed_all

seed_all(seed=1234, mode=True)
debugger = PrecisionDebugger(config_path=sys.argv[1])

net = torch.nn.Sequential(
    torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32, eps=float(sys.argv[2])), torch.nn.Linear(32, 4)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    debugger.start(model=net)
    loss = torch.nn.functional.cross_entropy(net(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
    loss.backward()
    debugger.stop()
    optimizer.step()
    debugger.step()
