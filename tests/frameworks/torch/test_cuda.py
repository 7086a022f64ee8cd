"""What recording on a GPU promises, where there is one; without one, test_digests.py has a stand-in for it."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from . import device_checks  # noqa: E402

pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", device_checks.CHECKS)
def test_on_a_gpu(name, checkout_env):
    """In a process of its own: process groups, sticky errors and determinism stay there."""
    command = [sys.executable, "-m", "tests.frameworks.torch.device_checks", name]
    done = subprocess.run(command, cwd=ROOT, env=checkout_env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
