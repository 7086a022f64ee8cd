"""The document's samples, run as they are by `twintrace run-as torch_npu`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.torch_npu_hooks.dumps import names, table
from twintrace.compat import run_as as running
from twintrace.model.errors import UsageError

HERE = Path(__file__).parent
pytestmark = pytest.mark.needs_torch


@pytest.fixture
def run_as(checkout_env, tmp_path):
    """`run_as(script, …)`: the command, in a folder of its own; what it said."""

    def call(script, *arguments, expect=0, **environment):
        path = os.pathsep.join([checkout_env["PYTHONPATH"], str(HERE / "stand_ins")])
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from twintrace.cli import main; main()",
                "run-as",
                "torch_npu",
                str(script),
                *arguments,
            ],
            env=checkout_env | {"PYTHONPATH": path} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=570,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def test_the_first_sample(run_as, tmp_path):
    done = run_as(HERE / "samples" / "module_op.py", TWINTRACE_NPU="cpu")
    assert done.stderr.count("there is no npu here; .npu() means cpu. TWINTRACE_NPU names another device") == 1
    assert names(tmp_path / "cpu_module_op.pkl") == names(tmp_path / "npu_module_op.pkl")
    rows = table(tmp_path / "module_result.csv")
    assert len(rows) == len(names(tmp_path / "npu_module_op.pkl")) == 34
    assert {row["Name"] for row in rows} >= {
        "Functional_linear_forward_output", "Module_ReLU_backward_input.0", "Tensor_sum_forward_output",
    }  # fmt: skip
    assert all(float(row["RMSE"]) < 1e-6 for row in rows)
    assert "34 tensors compared, 0 calls skipped" in done.stdout


def check_resnet(tmp_path, done):
    rows = table(tmp_path / "resnet50_result.csv")
    counts = {
        name: sum(row["Name"] == f"Module_{name}_forward_output" for row in rows) for name in ("Conv2d", "BatchNorm2d")
    }
    assert counts == {"Conv2d": 53, "BatchNorm2d": 53}
    assert len(rows) == len(names(tmp_path / "npu_resnet50_op.pkl"))
    assert all(float(row["RMSE"]) < 1e-5 for row in rows)
    assert "0 calls skipped" in done.stdout


def test_the_second_sample_made_small(run_as, tmp_path):
    """All layers of a ResNet-50, thin and on a small picture: the values are text, and the whole would be gigabytes."""
    small = tmp_path / "small.py"
    small.write_text((HERE / "samples" / "resnet50.py").read_text().replace("244, 244", "32, 32"))
    check_resnet(tmp_path, run_as(small, TWINTRACE_NPU="cpu", STAND_IN_WIDTH="2"))


@pytest.mark.slow
def test_the_second_sample(run_as, tmp_path):
    check_resnet(tmp_path, run_as(HERE / "samples" / "resnet50.py", TWINTRACE_NPU="cpu", STAND_IN_WIDTH="2"))


SCRIPT = """
import sys, torch, torch_npu, torch_npu.hooks
from torch_npu.hooks import tools
import beside
assert __name__ == "__main__" and sys.argv[1:] == ["--steps", "3"], sys.argv
assert torch.ones(1).npu().device.type == "cpu" and torch.nn.Linear(1, 1).npu(0).weight.device.type == "cpu"
print("ran", beside.VALUE, callable(tools.compare))
"""


def test_a_script_gets_its_arguments_and_its_neighbours(run_as, tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").write_text("VALUE = 7")
    (folder / "script.py").write_text(SCRIPT)
    assert "ran 7 True" in run_as(folder / "script.py", "--steps", "3", TWINTRACE_NPU="cpu").stdout


def test_what_cannot_be_run(run_as, tmp_path):
    (tmp_path / "empty.py").write_text("")
    assert "TWINTRACE_NPU" in run_as(tmp_path / "empty.py", expect=2, TWINTRACE_NPU="tpu:9").stderr
    assert "does not exist" in run_as(tmp_path / "gone.py", expect=2).stderr
    with pytest.raises(UsageError, match="unknown tool 'other': expected one of torch_npu"):
        running.run_as("other", "x.py")
    with pytest.raises(UsageError, match="is not a file"):
        running.run_as("torch_npu", str(tmp_path / "gone.py"))


def test_everything_is_as_it_was_afterwards(tmp_path):
    import torch

    script = tmp_path / "script.py"
    script.write_text(
        "import torch_npu.hooks, torch\nassert hasattr(torch.Tensor, 'npu')\nraise RuntimeError('on purpose')\n"
    )
    before = sys.argv, list(sys.path)
    with pytest.raises(RuntimeError, match="on purpose"):
        running.run_as("torch_npu", str(script))
    assert (sys.argv, list(sys.path)) == before
    assert not [name for name in sys.modules if name.startswith("torch_npu")]
    assert not hasattr(torch.Tensor, "npu")
    assert not hasattr(torch.nn.Module, "npu")
