"""Run by the real msprobe: two small training steps in PyTorch, dumped in each of its modes. The first is MindSpore's."""

import json
import os
import sys
from pathlib import Path

import numpy as np
from msprobe.pytorch import PrecisionDebugger
from small_net import steps


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
    debugger = PrecisionDebugger(config_path=str(config))
    for net, compute in steps():
        debugger.start(model=net)
        loss = compute()
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
