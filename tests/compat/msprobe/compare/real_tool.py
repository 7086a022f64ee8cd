"""Run by the interpreter that has the real tool: record small nets with it, and compare with it.

    python real_tool.py record torch FOLDER         FOLDER/{statistics,md5,tensor}/{npu,bench}
    python real_tool.py compare NPU BENCH OUT …     three arguments for each comparison

All in one process each, because the tool takes seconds to start. It keeps the first settings it gets for good, so its
singleton is taken away between recordings.
"""

import json
import sys
from pathlib import Path

TASKS = {"statistics": {}, "md5": {"summary_mode": "md5"}, "tensor": {}}


def record(framework: str, folder: Path) -> None:
    run = {"torch": _torch, "mindspore": _mindspore}[framework]
    for task, options in TASKS.items():
        kind = "tensor" if task == "tensor" else "statistics"
        for side, noise in (("npu", 1e-3), ("bench", 0.0)):
            place = folder / task / side
            place.mkdir(parents=True)
            settings = {"scope": [], "list": [], "data_mode": ["all"], **options}
            config = {"task": kind, "dump_path": str(place), "rank": [], "step": [], "level": "mix", kind: settings}
            (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
            run(str(place / "config.json"), noise)


def _torch(config: str, noise: float) -> None:
    import torch
    from msprobe.pytorch import PrecisionDebugger
    from torch import nn

    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    given = torch.randn(2, 1, 6, 6) * (1 + noise)
    debugger = _fresh(PrecisionDebugger, config)
    debugger.start(model=net)
    nn.functional.cross_entropy(net(given), torch.tensor([1, 3])).backward()
    debugger.stop()
    debugger.step()


def _mindspore(config: str, noise: float) -> None:
    import mindspore as ms
    from mindspore import nn, ops
    from msprobe.mindspore import PrecisionDebugger

    from benchmarks.tools import _give_mindspore_a_norm

    _give_mindspore_a_norm()
    ms.set_seed(3)
    net = nn.SequentialCell(nn.Dense(8, 6), nn.ReLU(), nn.Dense(6, 4))
    given = ops.ones((3, 8), ms.float32) * (1 + noise)
    debugger = _fresh(PrecisionDebugger, config)
    debugger.start(net)
    ms.grad(lambda value: ops.cross_entropy(net(value), ms.Tensor([1, 3, 0], ms.int32)))(given)
    debugger.stop()
    debugger.step()


def _fresh(kind: type, config: str) -> object:
    kind._instance = None
    return kind(config_path=config)


def compare(arguments: list[str]) -> None:
    from msprobe.msprobe import main

    for npu, bench, out in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        sys.argv = ["msprobe", "compare", "-tp", npu, "-gp", bench, "-o", out]
        main()


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], Path(sys.argv[3]))
    else:
        compare(sys.argv[2:])
