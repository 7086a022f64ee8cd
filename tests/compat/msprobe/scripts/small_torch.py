"""A small net on PyTorch, two steps of it, recorded by whoever is asked for: `small_torch.py TOOL OUT TASK …`.

TOOL is a package with `PrecisionDebugger`; each TASK (statistics, md5, tensor) is recorded into OUT/TASK. The real msprobe keeps
its first settings for good: of it, one task.
"""

import importlib
import json
import sys
from pathlib import Path


def record(tool, out, task):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(x + functional.gelu(self.fc(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(8, 4)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x.mul(2.0) @ torch.eye(8))

    torch.manual_seed(0)
    net, x, y = Net(), torch.randn(3, 8, requires_grad=True), torch.tensor([0, 1, 2])
    debugger = importlib.import_module(tool).PrecisionDebugger(config_path=config(out, task))
    for _ in range(2):
        debugger.start(net)
        functional.cross_entropy(net(x), y).backward()
        debugger.stop()
        debugger.step()
        x = x.detach() * 1.5
        x.requires_grad_()


def config(out, task):
    """The path of a config.json for this task."""
    section = {"summary_mode": "md5"} if task == "md5" else {}
    kind = "statistics" if task == "md5" else task
    Path(out).mkdir(parents=True, exist_ok=True)
    path = Path(out) / f"{task}.json"
    fields = {"task": kind, "dump_path": str(Path(out) / task), "level": "mix", "risk_level": "ALL", kind: section}
    path.write_text(json.dumps(fields))
    return str(path)


def each(function):
    """Record each task that the command line names, one after the other."""
    tool, out, *tasks = sys.argv[1:]
    for task in tasks:
        function(tool, out, task)
        if tool.startswith("twintrace."):
            importlib.import_module("twintrace.compat.msprobe.debugger").close()


if __name__ == "__main__":
    each(record)
