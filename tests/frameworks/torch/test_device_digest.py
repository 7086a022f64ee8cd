"""Numbers that a device makes of tensors are those that the host makes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from twintrace.frameworks.torch.batches import triton_for  # noqa: E402
from twintrace.frameworks.torch.tensors import NAMES  # noqa: E402

from . import device_cases  # noqa: E402

pytestmark = pytest.mark.needs_torch
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("dtype", device_cases.TYPES, ids=lambda dtype: NAMES[dtype])
def test_framework_operations_give_the_hosts_numbers(dtype):
    """Where there is no Triton."""
    assert device_cases.faults(list(device_cases.cases(dtype, "cpu")), None) == []


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    "names", [["f32", "bf16"], ["f16", "i64", "u32"], ["c64", "f64"], ["f8e5m2", "b8"]], ids="-".join
)
def test_interpreted_kernel_gives_the_hosts_numbers(names):
    """The Triton kernel's logic, without a GPU. The interpreter is chosen when Triton is imported, so in a process of its own."""
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.frameworks.torch.device_cases", "cpu", *names]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", device_cases.TYPES, ids=lambda dtype: NAMES[dtype])
def test_gpu_gives_the_hosts_numbers(dtype):
    """By Triton and by torch's operations."""
    tensors = list(device_cases.cases(dtype, "cuda", (1, 3, 129, 1000, 70001, 300001)))
    for kernels in (triton_for(torch.device("cuda")), None):
        assert device_cases.faults(tensors, kernels) == []


def test_a_fault_is_told(monkeypatch):
    """The check can fail."""
    tensors = list(device_cases.cases(torch.float32, "cpu", (129,)))
    monkeypatch.setattr(device_cases, "digest", lambda array, dtype: device_cases_digest(array[::-1].copy(), dtype))
    assert device_cases.faults(tensors, None)


device_cases_digest = device_cases.digest
