"""PyTorch code on MindSpore: dumped where `torch` is MSAdapter, compared with PyTorch's own dump."""

import os
import subprocess

import pytest

import twintrace as tt
import twintrace.compat.troubleshooter as ts
from scripts.layers import layer
from tests.compat.troubleshooter.dumps import names, stacks, table
from tests.frameworks.msadapter.test_inside import HERE, MINDTORCH, ROOT

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

NET = """
import sys
import numpy as np
import torch
from torch import nn
import twintrace.compat.troubleshooter as ts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return torch.relu(self.drop(self.fc(x))) + 1


def main(folder, adapted):
    net = Net()
    with torch.no_grad():
        net.fc.weight.copy_(torch.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 7 - 0.8))
        net.fc.bias.copy_(torch.tensor(np.zeros(3, np.float32)))
    net.train()
    x = torch.tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    ts.migrator.api_dump_init(net, folder, retain_backward=True)
    ts.migrator.api_dump_start()
    if adapted:
        import mindspore as ms

        ms.value_and_grad(lambda x: torch.sum(net(x)), None, list(net.parameters()))(x)
    else:
        torch.sum(net(x)).backward()
    ts.migrator.api_dump_stop()


if __name__ == "__main__":
    main(sys.argv[1], adapted=True)
"""


def test_msadapter_beside_pytorch(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(NET)
    path = os.pathsep.join([str(HERE / "standin"), str(ROOT / "src")])
    done = subprocess.run(
        [str(layer("msadapter", MINDTORCH)), str(script), str(tmp_path / "ms")],
        env=os.environ | {"PYTHONPATH": path, "GLOG_v": "4"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    space = {"__name__": "net"}
    exec(compile(NET, str(script), "exec"), space)
    space["main"](tmp_path / "pt", adapted=False)

    trace = tt.open(tmp_path / "ms")
    assert (trace.framework, trace.layout) == ("msadapter", "troubleshooter")
    assert names(tmp_path / "ms", "mindtorch") == names(tmp_path / "pt")
    assert list(stacks(tmp_path / "ms", "mindtorch")) == list(stacks(tmp_path / "pt"))
    ts.migrator.api_dump_compare(tmp_path / "pt", tmp_path / "ms", tmp_path / "out")
    assert "TARGET NET (mindtorch)" in capsys.readouterr().out
    rows = table(tmp_path / "out" / "ts_api_forward_compare.csv") + table(
        tmp_path / "out" / "ts_api_backward_compare.csv"
    )
    assert {row[4] for row in rows} == {"True"}
    assert all(row[0] == row[1] for row in rows)
