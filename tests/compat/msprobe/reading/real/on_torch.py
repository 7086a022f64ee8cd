"""Run by the real msprobe: two small training steps in PyTorch, dumped in each of its modes. The first is MindSpore's."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from msprobe.pytorch import PrecisionDebugger
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc1 = nn.Linear(8, 4)
        self.fc2 = nn.Linear(4, 3)

    def forward(self, image, features, mask=None):
        wide = functional.relu(self.conv(image)).reshape(2, -1).sum(dim=1, keepdim=True)
        hidden = torch.tanh(self.fc1(features)) + wide
        if mask is not None:
            hidden = torch.where(mask, (hidden.bfloat16() * 2).float(), torch.zeros_like(hidden))
        return functional.softmax(self.fc2(hidden), dim=-1)


def train(folder, task, mode):
    config = folder / f"{task}_{mode}.json"
    section = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
    settings = {
        "dump_path": str(folder / f"{task}_{mode}"),
        "rank": [],
        "step": [],
        "level": "mix",
        "risk_level": "ALL",
    }
    config.write_text(json.dumps(settings | {"task": task, task: section}))
    random = np.random.default_rng(0)
    net = Net()
    for parameter in net.parameters():
        parameter.data = torch.tensor(random.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32))
    debugger = PrecisionDebugger(config_path=str(config))
    for mask in (None, torch.tensor([[True, False, True, True]])):
        image = torch.tensor(random.standard_normal((2, 1, 4, 4)).astype(np.float32))
        features = torch.tensor(random.standard_normal((2, 8)).astype(np.float32))
        debugger.start(model=net)
        loss = functional.cross_entropy(net(image, features, mask=mask), torch.tensor([0, 2]))
        loss.backward()
        debugger.stop()
        debugger.step()
    truth = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    np.savez(folder / f"{task}_{mode}.npz", loss=loss.detach().numpy(), **truth)


for chosen in (("statistics", "statistics"), ("statistics", "md5"), ("tensor", "statistics")):
    child = os.fork()  # one debugger a process; importing takes longer than all the rest
    if not child:
        train(Path(sys.argv[1]), *chosen)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{chosen} failed")
