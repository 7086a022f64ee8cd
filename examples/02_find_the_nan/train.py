"""Train a small classifier whose loss takes the logarithm of a softmax by hand. Where a probability becomes 0, the loss is NaN.

python train.py TRACES [--log-softmax]
"""

import sys

import torch

import twintrace as tt

traces, stable = sys.argv[1], "--log-softmax" in sys.argv

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
x = 10 * torch.randn(32, 4)
target = torch.nn.functional.one_hot(torch.randint(3, (32,)), 3)

with tt.record(f"{traces}/{'stable' if stable else 'by_hand'}", net, keep="statistics") as rec:
    for step in range(8):
        optimizer.zero_grad()
        scores = net(x)
        logarithms = torch.log_softmax(scores, dim=-1) if stable else torch.softmax(scores, dim=-1).log()
        loss = -(logarithms * target).sum() / len(x)
        loss.backward()
        optimizer.step()
        rec.step()
        print(f"step {step}  loss {loss.item():.4f}")
