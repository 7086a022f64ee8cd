"""Recorded runs on several ranks, shared by the tests of this folder."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runs(tmp_path_factory, checkout_env):
    """`runs(2, …)`: the folder with these cases of so many ranks, or with all of them, which are recorded once."""
    out = tmp_path_factory.mktemp("ranks")

    whole: set[int] = set()

    def record(world: int, *names: str) -> Path:
        if world in whole or (names and all((out / name).exists() for name in names)):
            return out
        script = Path(__file__).with_name("cases.py")
        command = [sys.executable, "-W", "ignore", str(script), str(out), str(world), *names]
        subprocess.run(command, env=checkout_env | {"OMP_NUM_THREADS": "1"}, check=True, timeout=300)
        if not names:
            whole.add(world)
        return out

    return record
