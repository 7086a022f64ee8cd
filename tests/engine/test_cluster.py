"""Ray: a cluster of several nodes, of which one is killed, gives what this machine gives."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import twintrace as tt
from scripts.layers import LayerError, layer
from twintrace.api import fleet
from twintrace.engine.processes import engine_named

HERE = Path(__file__).parent
LAYER = ("ray==2.60.0", "msgpack==1.2.4")


def test_an_address_without_ray_is_refused():
    with pytest.raises(tt.errors.UsageError, match="--engine ray"):
        engine_named("processes", address="auto")


def test_a_missing_ray_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(tt.errors.MissingPackageError, match=r"pip install 'twintrace\[ray\]'"):
        engine_named("ray")


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_finds_what_this_machine_finds(tmp_path, monkeypatch, checkout_env):
    from benchmarks.simulated import Fault, record_base, write_run

    try:
        python = layer("ray", LAYER)
    except LayerError as error:
        pytest.skip(f"Ray cannot be had: {error}")
    base = record_base(tmp_path / "base", records=100, steps=3)
    write_run(base, tmp_path / "a", ranks=5)
    write_run(base, tmp_path / "b", ranks=5, fault=Fault(rank=3, step=1))
    (tmp_path / "scratch").mkdir()
    command = [python, HERE / "ray_session.py", tmp_path / "scratch", tmp_path / "a", tmp_path / "b"]

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, env=checkout_env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout.splitlines()[-1])

    assert facts["values"] == [number * number for number in range(8)]
    assert facts["told"] == list(range(1, 9))
    assert facts["on_the_lost_node"] >= 1
    assert facts["begun"] > 8  # what the lost node had begun was begun again
    assert facts["error"] == "no 7"
    monkeypatch.setattr(fleet, "MANY_CALLS", 30)
    here = tt.compare(tmp_path / "a", tmp_path / "b", recompute=False)
    assert facts["code"] == here.code == 1
    assert facts["ranks"] == [json.loads(json.dumps(asdict(item))) for item in here.ranks]
    assert here.ranks[3].state == "parted"
