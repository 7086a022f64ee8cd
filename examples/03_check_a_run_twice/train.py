"""Three training steps. Without --seed every run begins with other weights; dropout draws other numbers in each.

python train.py [--seed]
"""

import sys

import torch

if "--seed" in sys.argv:
    torch.manual_seed(0)

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.linspace(-1, 1, 64).reshape(8, 8), torch.ones(8, 1)
for _ in range(3):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
