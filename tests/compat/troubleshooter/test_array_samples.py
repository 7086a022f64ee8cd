"""The document's samples of saving and comparing arrays, run as they are by `twintrace run-as troubleshooter`."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


@pytest.fixture
def run_as(checkout_env, tmp_path):
    def call(sample):
        command = [sys.executable, "-c", "from twintrace.cli import main; main()", "run-as", "troubleshooter"]
        done = subprocess.run(
            [*command, str(HERE / "samples" / sample)],
            env=checkout_env | {"TMPDIR": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return call


def test_saving_in_construct(run_as, tmp_path):
    run_as("save_mindspore.py")
    saved = {path.name: np.load(path) for path in (tmp_path / "save_ms").iterdir()}
    x1, x2 = np.float32(-0.5962), np.float32(0.4985)
    assert saved == {
        "ms_tensor.0_float32_2.npy": x1,
        "ms_tensor.1_float32_3.npy": x2,
        "ms_tensor.x1_float32_4.npy": x1,
        "ms_tensor.x2_float32_5.npy": x2,
        "ms_tensor_float32_0.npy": x1,
        "ms_tensor_float32_1.npy": x2,
    }


def test_saving_with_a_suffix(run_as, tmp_path):
    run_as("save_torch.py")
    assert sorted(path.name for path in (tmp_path / "save_pt").iterdir()) == [
        "torch_tensor.x1_float32_2.npy",
        "torch_tensor.x1_torch_float32_4.npy",
        "torch_tensor.x2_float32_3.npy",
        "torch_tensor.x2_torch_float32_5.npy",
        "torch_tensor_float32_0.npy",
        "torch_tensor_float32_1.npy",
    ]
    assert np.load(tmp_path / "save_pt" / "torch_tensor_float32_1.npy").shape == (2, 1)


def test_comparing_by_number(run_as):
    done = run_as("compare_npy.py")
    told = r"\[\*User Attention\*\] The compare directory information:\n The orig dir: .*/ta\w+ \n The target dir: .*/tb\w+\n"
    assert re.search(told, done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0] == lines[0][:1] + "-" * (len(lines[0]) - 2) + "+"
    assert lines[1].strip("| ") == "The list of comparison results"
    assert lines[2] == lines[4] == lines[7]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[3:7] if "|" in line]
    assert rows == [
        ["orig array name", "target array name", "result of allclose", "ratio of allclose", "cosine similarity",
         "mean & max diffs"],
        ["data.0_float32_0.npy", "data.0_float32_2.npy", "True", "100.00%", "1.00000", "0.00000, 0.00000"],
        ["data.1_float32_1.npy", "data.1_float32_3.npy", "Shape is inconsistent", "0.00%", "nan", "nan, nan"],
    ]  # fmt: skip


def test_comparing_gradients(run_as):
    done = run_as("compare_grads.py")
    assert "[*User Warning*] The number of files or their corresponding shapes are inconsistent" in done.stderr
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    assert lines[1] == [
        "orig array name", "target array name", "shape of orig", "shape of target", "result of allclose", "ratio of allclose",
        "cosine similarity", "mean & max diffs",
    ]  # fmt: skip
    assert [line[:4] for line in lines[2:]] == [
        ["torch_grads.fc.weight_0_float32_0.npy", "ms_grads.0_float32_4.npy", "(5, 10)", "(5, 10)"],
        ["torch_grads.fc.bias_1_float32_1.npy", "ms_grads.1_float32_5.npy", "(5,)", "(5,)"],
        ["torch_grads.bn.weight_2_float32_2.npy", "None", "(5,)", "None"],
        ["torch_grads.bn.bias_3_float32_3.npy", "None", "(5,)", "None"],
    ]
    assert {tuple(line[4:]) for line in lines[4:]} == {("False", "0.00%", "nan", "nan, nan")}
    assert all(re.fullmatch(r"-?\d\.\d{5}", line[6]) for line in lines[2:4])
