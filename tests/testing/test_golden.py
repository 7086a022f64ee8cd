"""Golden traces and `assert_same_run`: what a user's tests see, in a pytest of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from textwrap import dedent

import numpy as np
import pytest

import twintrace as tt
from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import LayerNorm, Linear, Module, Tensor
from twintrace.model.errors import UsageError
from twintrace.testing.golden import portable_copy
from twintrace.testing.runs import assert_same_run


class Net(Module):
    """A layer and a norm."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.layer, self.norm = Linear(3, 4), LayerNorm(4, eps=eps)
        self.layer.weight.array[...] = np.random.default_rng(0).normal(size=self.layer.weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))


def recorded(path, eps=1e-5):
    net = Net(eps)
    with tt.record(path, net, level="mix", framework="reference"):
        mini.total(net(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))).backward()
    return path


def test_the_verdict_is_the_message(tmp_path):
    left, right, other = recorded(tmp_path / "a"), recorded(tmp_path / "b"), recorded(tmp_path / "c", eps=0.1)
    assert_same_run(left, right)
    with pytest.raises(AssertionError, match=r"eps: 1e-05 \| 0\.1") as caught:
        assert_same_run(left, other)
    assert "norm" in str(caught.value)


def test_a_golden_trace_knows_no_machine(tmp_path):
    source = recorded(tmp_path / "a")
    root = tmp_path / "elsewhere"
    portable_copy(source, tmp_path / "golden", root)
    text = (tmp_path / "golden" / "step0" / "rank0" / "journal.jsonl").read_text()
    assert str(tmp_path) not in text
    assert "test_golden.py" not in text  # it is not below the root
    assert "created" not in json.loads((tmp_path / "golden" / "manifest.json").read_text())
    assert_same_run(tmp_path / "golden", source)


def test_only_a_golden_trace_is_replaced(tmp_path):
    source = recorded(tmp_path / "a")
    portable_copy(source, tmp_path / "golden", tmp_path)
    portable_copy(source, tmp_path / "golden", tmp_path)
    (tmp_path / "golden" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        portable_copy(source, tmp_path / "golden", tmp_path)
    assert (tmp_path / "golden" / "notes.txt").read_text() == "mine"


SUITE = """
import numpy as np
import pytest
from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import Tensor

SLOPE = 2.0

@pytest.mark.parametrize("size", [2, 3])
def test_run(golden_trace, size):
    with golden_trace(framework="reference") as rec:
        for _ in range(2):
            mini.total(mini.relu(Tensor(np.arange(size, dtype=np.float32)) * SLOPE))
            rec.step()
"""


@pytest.fixture
def suite(tmp_path, checkout_env):
    """`suite(*options, slope=2.0)`: pytest on a small suite; its exit code and what it said."""
    (tmp_path / "test_suite.py").write_text(dedent(SUITE))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*options, slope=2.0, folder=tmp_path):
        (folder / "test_suite.py").write_text(dedent(SUITE).replace("SLOPE = 2.0", f"SLOPE = {slope}"))
        installed = any(entry.name == "twintrace" for entry in entry_points(group="pytest11"))  # pytest loads it itself
        loaded = [] if installed or "twintrace.testing.plugin" in options else ["-p", "twintrace.testing.plugin"]
        command = [sys.executable, "-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider", *loaded, *options]
        done = subprocess.run(command, cwd=folder, env=checkout_env, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_suite_of_a_user(suite, tmp_path, tmp_path_factory):
    code, said = suite()
    assert code == 1, said
    assert "there is no golden trace at golden/test_suite/test_run_2. Write it with pytest --twintrace-update" in said
    assert suite("--twintrace-update")[0] == 0
    assert sorted(path.name for path in (tmp_path / "golden" / "test_suite").iterdir()) == ["test_run_2", "test_run_3"]
    size = sum(path.stat().st_size for path in (tmp_path / "golden").rglob("*") if path.is_file())
    assert size < 20_000
    assert suite()[0] == 0

    moved = tmp_path_factory.mktemp("moved")
    shutil.copytree(tmp_path / "golden", moved / "golden")
    shutil.copy(tmp_path / "pytest.ini", moved)
    assert suite(folder=moved)[0] == 0

    code, said = suite(slope=3.0)
    assert code == 1
    assert said.count("test_run_2 and trace part at reference.mul") == 1
    assert "If the new run is right: pytest --twintrace-update" in said
    assert suite("--twintrace-update", slope=3.0)[0] == 0
    assert suite(slope=3.0)[0] == 0
