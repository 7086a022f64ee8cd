"""Several ranks, started by MindSpore's own launcher: each has its journal, and its side of every collective."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import twintrace as tt
from twintrace.testing.reading import Reading

pytestmark = [pytest.mark.needs_mindspore, pytest.mark.slow]
SCRIPT = Path(__file__).with_name("two_ranks.py")


@pytest.fixture(scope="module")
def trace(tmp_path_factory, checkout_env):
    place = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = Path(sys.executable).with_name("msrun")
    command = [
        sys.executable,
        str(launcher),
        "--worker_num=2",
        "--local_worker_num=2",
        f"--master_port={port}",
        "--join=True",
    ]
    command += [f"--log_dir={place}", str(SCRIPT), str(place / "trace")]
    # The launcher starts `python`: the one that runs these tests comes first.
    env = checkout_env | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), checkout_env["PATH"]])}
    done = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, timeout=600)
    logs = "\n".join(log.read_text(errors="replace")[-1500:] for log in sorted(place.glob("worker_*.log")))
    assert done.returncode == 0, done.stderr[-1500:] + logs
    return place / "trace"


def test_each_rank_has_its_own_side(trace):
    assert tt.open(trace).places == ((0, 0), (0, 1))
    for rank in (0, 1):
        reading = Reading(trace, rank=rank)
        assert reading.journal.header.world == 2
        summed = reading["api:mindspore.ops.AllReduce#0"]
        assert (reading.inputs(summed)["0"] == np.float32(rank + 1)).all()
        assert (reading.outputs(summed)[""] == np.float32(3)).all()
