"""Dumps to read: small ones made here, and those that the real msprobe writes."""

import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import environment

HERE = Path(__file__).parent


@pytest.fixture
def dump(tmp_path):
    """`dump(records, stacks=…, construct=…, task=…)`: the directory of one rank."""

    def write(records, *, stacks=None, construct=None, folder="step0/rank0", name="dump.json", **head):
        place = tmp_path / "dump" / folder
        place.mkdir(parents=True, exist_ok=True)
        document = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None} | head
        (place / name).write_text(json.dumps(document | {"data": records}, indent=1))
        for file, content in (("stack.json", stacks), ("construct.json", construct)):
            if content is not None:
                (place / file).write_text(json.dumps(content, indent=1))
        return place

    return write


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """`real("torch")`, `real("mindspore")`: the folder of what the real tool dumped, made once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared

    def make(framework):
        folder = shared / f"msprobe-{framework}"
        with (shared / f"msprobe-{framework}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                folder.mkdir(exist_ok=True)
                run(HERE / "real" / f"on_{framework}.py", folder)
                (folder / "complete").touch()
        return folder

    return make


@pytest.fixture(scope="session")
def run_real():
    """`run_real(script, *arguments)`: run a script where the real tool is installed."""
    return run


def run(script, *arguments):
    """Run a script where the real tool is installed."""
    command = [str(environment("msprobe")), str(script), *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
