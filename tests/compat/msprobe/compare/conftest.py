"""Recordings that several tests compare: made once, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def recorded(folder: Path, environment: Mapping[str, str], script: str, *arguments: str) -> Path:
    command = [sys.executable, str(HERE / "scripts" / script), str(folder), *arguments]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="session")
def torch_dumps(tmp_path_factory, checkout_env):
    dumps = ("good:tensor:mix", "broken:tensor:mix:broken", "statistics:statistics:mix")
    return recorded(tmp_path_factory.mktemp("torch"), checkout_env, "torch_net.py", *dumps)


@pytest.fixture(scope="session")
def mindspore_dumps(tmp_path_factory, checkout_env):
    dumps = (
        "good:tensor:mix",
        "broken:tensor:mix:broken",
        "cells:statistics:L0",
        "cells_broken:statistics:L0:broken",
        "statistics:statistics:mix",
    )
    return recorded(tmp_path_factory.mktemp("mindspore"), checkout_env, "mindspore_net.py", *dumps)


@pytest.fixture(scope="session")
def rank_dumps(tmp_path_factory, checkout_env):
    dumps = ("good:statistics:mix", "broken:statistics:mix:broken", "--ranks", "2")
    return recorded(tmp_path_factory.mktemp("ranks"), checkout_env, "torch_net.py", *dumps)
