"""A bar for long work: on a terminal, and nowhere else."""

import contextlib
import os
import pty
import subprocess
import sys
from threading import Thread

import pytest

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

PREPARE = """
import numpy as np, torch, twintrace.compat.troubleshooter as ts
net = torch.nn.Linear(3, 2)
torch.save(net.state_dict(), "net.pth")
ts.migrator.get_weight_map(net, "map.json")
ts.migrator.convert_weight("map.json", "net.pth", "net.ckpt", print_conv_info=False)
for side in ("orig", "target"):
    ts.save(f"{side}/x", {"a": np.ones(3), "b": np.zeros(2)})
"""
# call -> what the bar says
CALLS = {
    "compare_npy_dir('orig', 'target')": "measuring",
    "compare_grads_dir('orig', 'target')": "measuring",
    "convert_weight('map.json', 'net.pth', 'again.ckpt')": "carrying weights over",
    "compare_ms_ckpt('net.ckpt', 'net.ckpt')": "comparing weights",
    "compare_pth_and_ckpt('map.json', 'net.pth', 'net.ckpt')": "comparing weights",
    "convert_weight_and_load('map.json', 'net.pth', __import__('mindspore').nn.Dense(3, 2))": "carrying weights over",
}
SCRIPT = "\n".join(
    [
        "import sys, twintrace.compat.troubleshooter as ts",
        *(
            f"for stream in (sys.stdout, sys.stderr): print('<call>', file=stream, flush=True)\nts.migrator.{c}"
            for c in CALLS
        ),
    ]
)


@pytest.fixture(scope="module")
def run(tmp_path_factory, checkout_env):
    """`run(stderr)`: every call, one after the other; what was said on stdout by each."""
    folder = tmp_path_factory.mktemp("progress")
    subprocess.run([sys.executable, "-c", PREPARE], cwd=folder, env=checkout_env, check=True, capture_output=True)
    for side in ("orig", "target"):  # names by which they belong together
        for number, path in enumerate(sorted((folder / side).iterdir())):
            path.rename(path.with_name(f"{number}.npy"))

    def call(stderr):
        env = checkout_env | {"TERM": "xterm", "COLUMNS": "100", "GLOG_v": "4"}
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=stderr, timeout=200)
        assert done.returncode == 0, done.stderr
        return done

    return call


def each(said):
    """What was said by each call."""
    parts = said.decode().split("<call>")[1:]
    assert len(parts) == len(CALLS)
    return zip(CALLS.values(), parts, strict=True)


def test_on_a_terminal(run):
    ours, theirs = pty.openpty()
    heard = bytearray()

    def listen():
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 4096):
                heard.extend(chunk)

    listener = Thread(target=listen)
    listener.start()
    done = run(theirs)
    os.close(theirs)
    listener.join(10)
    os.close(ours)
    for label, said in each(heard):
        assert label in said
        assert "━" in said
    assert not any(label in said for label, said in each(done.stdout))


def test_never_into_a_pipe(run):
    done = run(subprocess.PIPE)
    for stream in (done.stdout, done.stderr):
        for label, said in each(stream):
            assert label not in said
            assert "\x1b" not in said
            assert "━" not in said
