"""`ts.save` and `ts.save_grad` where `torch` is MSAdapter."""

import os
import subprocess

import numpy as np
import pytest

from scripts.layers import layer
from tests.frameworks.msadapter.test_inside import HERE, MINDTORCH, ROOT

pytestmark = pytest.mark.needs_mindspore

SCRIPT = """
import mindspore as ms
import numpy as np
import torch
import twintrace.compat.troubleshooter as ts

net = torch.nn.Linear(3, 2)


def forward(x):
    h = ts.save_grad("out/h", net(x))
    ts.save("out/x", {"in": x, "out": [h]}, suffix="s")
    return torch.sum(h * h)


x = torch.tensor(np.ones((2, 3), np.float32))
ms.value_and_grad(forward, None, list(net.parameters()))(x)
ts.save("out/half", torch.tensor([1.5], dtype=torch.bfloat16))
ts.save("out/g", ts.widget.get_pt_grads(net))
"""


def test_saving_beneath_the_names_of_torch(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join([str(HERE / "standin"), str(ROOT / "src")])
    env = os.environ | {"PYTHONPATH": path, "GLOG_v": "4"}
    command = [str(layer("msadapter", MINDTORCH)), "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = {path.name: np.load(path) for path in (tmp_path / "out").iterdir()}
    assert [*sorted(saved)] == [
        "h_backward_float32_2.npy", "half_float32_3.npy", "x.in_s_float32_0.npy", "x.out.0_s_float32_1.npy",
    ]  # fmt: skip
    assert saved["half_float32_3.npy"].tolist() == [1.5]
    np.testing.assert_array_equal(saved["x.in_s_float32_0.npy"], np.ones((2, 3)))
    np.testing.assert_allclose(saved["h_backward_float32_2.npy"], 2 * saved["x.out.0_s_float32_1.npy"], rtol=1e-6)
