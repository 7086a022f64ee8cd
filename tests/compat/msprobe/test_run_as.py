"""`twintrace run-as msprobe`: scripts that import msprobe run unchanged, on PyTorch, MindSpore and MSAdapter."""

import os
import subprocess
import sys

import pytest

from scripts.layers import layer
from tests.compat.msprobe.dumped import array, data, document, listing
from tests.conftest import ROOT
from tests.frameworks.msadapter.test_inside import MINDTORCH

SCRIPTS = ROOT / "tests" / "compat" / "msprobe" / "scripts"
CONFIG = '{"task": "tensor", "dump_path": "./dump", "level": "mix", "tensor": {"data_mode": ["all"]}}'


def run(framework, folder, env, python=sys.executable):
    """Run a script as its users would, in a directory with a config.json; the directory of its second step."""
    (folder / "config.json").write_text(CONFIG)
    command = [python, "-m", "twintrace", "run-as", "msprobe", str(SCRIPTS / f"on_{framework}.py")]
    env = env | {"GLOG_v": "4"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert listing(folder / "dump") == {"step0", "step1", "step2"}
    return folder / "dump" / "step1" / "rank"


BOTH = ["linear1", "linear2"]


@pytest.mark.needs_torch
def test_on_pytorch(tmp_path, checkout_env):
    found = data(run("pytorch", tmp_path, checkout_env))
    for name in BOTH:
        assert {f"Module.{name}.Linear.{part}" for part in ("forward.0", "backward.0", "parameters_grad")} <= set(found)
    assert "Functional.relu.0.backward" in found


@pytest.mark.needs_mindspore
def test_on_mindspore(tmp_path, checkout_env):
    step = run("mindspore", tmp_path, checkout_env)
    found = data(step)
    assert document(step)["framework"] == "mindspore"
    for name in BOTH:
        assert {f"Cell.{name}.Dense.{part}" for part in ("forward.0", "backward.0", "parameters_grad")} <= set(found)
    assert "Functional.relu.0.backward" in found
    weight = found["Cell.linear1.Dense.forward.0"]["parameters"]["weight"]
    assert weight["dtype"] == "Float32"
    assert array(step, weight).shape == (4, 8)


@pytest.mark.needs_mindspore
def test_on_msadapter(tmp_path):
    """The document's own script; its records are those that msprobe writes of it."""
    python = layer("msadapter", MINDTORCH)
    path = os.pathsep.join([str(ROOT / "tests" / "frameworks" / "msadapter" / "standin"), str(ROOT / "src")])
    step = run("msadapter", tmp_path, os.environ | {"PYTHONPATH": path}, python)
    head = document(step)
    assert (head["framework"], head["task"], head["level"]) == ("mindtorch", "tensor", "mix")
    assert set(head["data"]) == {
        "Functional.linear.0.forward", "Module.linear1.Linear.forward.0", "Functional.linear.1.forward",
        "Module.linear2.Linear.forward.0", "Functional.relu.0.forward", "Functional.relu.0.backward",
        "Functional.linear.1.backward", "Module.linear2.Linear.backward.0", "Functional.linear.0.backward",
        "Module.linear1.Linear.backward.0",
    }  # fmt: skip
    element = head["data"]["Module.linear1.Linear.forward.0"]["input_args"][0]
    assert {key: element[key] for key in ("type", "dtype", "shape", "data_name")} == {
        "type": "mindspore.Tensor", "dtype": "mindspore.float32", "shape": [10, 8],
        "data_name": "Module.linear1.Linear.forward.0.input.0.npy",
    }  # fmt: skip
    assert array(step, element).shape == (10, 8)
    tree = document(step, "construct.json")
    assert tree["Functional.linear.1.backward"] == "Module.linear2.Linear.backward.0"


@pytest.mark.parametrize("door", ["pytorch", "mindspore"])
def test_importing_does_nothing(python, door):
    """No framework, no patch: the doors of this embassy are names."""
    done = python(
        f"import sys\nbefore = set(sys.modules)\nimport twintrace.compat.msprobe.{door} as door\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert not {'torch', 'mindspore', 'msprobe'} & new, new\n"
        "assert callable(door.seed_all) and callable(door.PrecisionDebugger.start)"
    )
    assert done.returncode == 0, done.stderr


def test_what_was_there_comes_back(tmp_path):
    """A script that is run as msprobe leaves nothing behind, also when it fails."""
    from twintrace.compat.run_as import run_as

    script = tmp_path / "script.py"
    script.write_text("import msprobe.pytorch\nfrom msprobe import mindspore\nraise KeyError('mine')")
    before = dict(sys.modules)
    with pytest.raises(KeyError, match="mine"):
        run_as("msprobe", str(script))
    assert [name for name in sys.modules if name.startswith("msprobe")] == [
        name for name in before if name.startswith("msprobe")
    ]
