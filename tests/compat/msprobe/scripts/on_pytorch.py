import torch
import torch.nn as nn
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger, seed_all

seed_all(1234)
debugger = PrecisionDebugger(config_path="./config.json")


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

if __name__ == "__main__":
    for _ in range(3):
        inputs = torch.randn(10, 8, requires_grad=True)
        debugger.start(model=net)
        net(inputs).sum().backward()
        debugger.stop()
        debugger.step()
