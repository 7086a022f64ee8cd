"""MindSpore on two real processes (`msrun`, on the CPU) beside one: groups and collectives tell what a tensor is of the whole."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import twintrace as tt

pytestmark = pytest.mark.needs_mindspore
pytest.importorskip("mindspore")

SCRIPT = Path(__file__).with_name("cases_mindspore.py")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, checkout_env):
    """Folders of the runs on one rank, and of those on two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    environment = checkout_env | {"OMP_NUM_THREADS": "1", "GLOG_v": "3"}
    subprocess.run([sys.executable, str(SCRIPT), str(one), "tp", "dp"], env=environment, check=True, timeout=300)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [str(Path(sys.executable).with_name("msrun")), "--worker_num=2", "--local_worker_num=2", "--join=True"]
    started += [f"--master_port={port}", "--cluster_time_out=200", f"--log_dir={two / 'log'}", str(SCRIPT), str(two)]
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    done = subprocess.run(
        started, env=environment | {"PATH": path}, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, (two / "log" / "worker_0.log").read_text()[-2000:]
    return one, two


def _compared(recorded, case):
    return tt.compare(recorded[0] / case[:2], recorded[1] / case)


@pytest.mark.parametrize("case", ["tp", "tp mint", "tp group", "dp"])
def test_a_correct_layout_agrees(recorded, case):
    found = _compared(recorded, case)

    assert found.code == 0, str(found)
    assert any("2 ranks put together" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("tp missing", "no collective adds them up"),
        ("tp twice", "AllReduce"),
        ("tp order", "down"),
        ("dp missing", "not reduced over the ranks"),
        ("dp sum", "SGD"),
    ],
)
def test_a_mistake_is_named(recorded, case, says):
    found = _compared(recorded, case)

    assert found.code == 1, str(found)
    assert says in str(found)


def test_process_groups_are_recorded_by_their_ranks(recorded):
    journal = tt.open(recorded[1] / "tp group").journal(0, 1)
    reductions = [call for call in journal.calls() if call.site.name == "mindspore.ops.AllReduce"]

    assert (0, 1) in journal.header.groups
    assert [call.config.values["ranks"] for call in reductions] == ["0,1"]
