"""Recording to another file system: written here, sent behind the run, and nothing lost when the connection is."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import twintrace as tt
from twintrace.api import upload
from twintrace.model.errors import SessionError, TraceExistsError, TraceNotFoundError, UsageError
from twintrace.store import remote, uploading
from twintrace.store.registry import open_trace

fsspec = pytest.importorskip("fsspec")
np = pytest.importorskip("numpy")

URL = "memory://bucket/runs/a"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where traces wait, and no pauses."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(uploading, "PAUSE", 0.001)
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    return tmp_path / "state" / "twintrace" / "uploads"


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/bucket"):
        system.rm("/bucket", recursive=True)


@pytest.fixture
def wire(memory, monkeypatch):
    """The connection: `wire.down` fails every file, `wire.refuse(n)` the next n; `wire.sent` are the files that went."""

    class Wire:
        down, failures, sent = False, 0, []
        gate = threading.Event()

        def refuse(self, count):
            self.failures = count

    found = Wire()
    found.sent, found.gate = [], threading.Event()
    found.gate.set()
    own = type(memory).put_file

    def put_file(self, lpath, rpath, **options):
        found.gate.wait(10)
        if found.down or found.failures:
            found.failures = max(0, found.failures - 1)
            raise ConnectionResetError("cut")
        found.sent.append(rpath.rpartition("/runs/a/")[2])
        return own(self, lpath, rpath, **options)

    monkeypatch.setattr(type(memory), "put_file", put_file)
    return found


def record(path, steps=3, *, keep="tensor", **options):
    """A few steps of a small network, and its recorder."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    with tt.record(path, net, keep=keep, **options) as recorder:
        for step in range(steps):
            net(torch.ones(2, 4) + step).sum().backward()
            if step < steps - 1:
                recorder.step()
    return recorder


@pytest.mark.parametrize("keep", ["tensor", "fingerprint"])
def test_a_run_recorded_to_an_address_is_the_run_recorded_here(memory, tmp_path, home, keep):
    record(URL, keep=keep)
    record(tmp_path / "here", keep=keep)

    here, there = open_trace(tmp_path / "here"), open_trace(URL)
    assert there.places == here.places == ((0, 0), (1, 0), (2, 0))
    assert [call.site for call in there.calls()] == [call.site for call in here.calls()]
    assert tt.compare(URL, tmp_path / "here").code == 0
    assert not home.exists() or not any(home.iterdir())  # all of it has arrived, so nothing stays here


def test_finished_steps_arrive_while_the_run_goes_on_and_journals_last(memory, wire):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    with tt.record(URL, net, keep="tensor") as recorder:
        net(torch.ones(2, 4))
        recorder.step()
        net(torch.ones(2, 4))
        deadline = time.monotonic() + 10
        while "step0/rank0/journal.jsonl" not in wire.sent and time.monotonic() < deadline:
            time.sleep(0.01)
        assert open_trace(URL).places == ((0, 0),)

    of_step = [name for name in wire.sent if name.startswith("step0")]
    assert of_step == ["step0/rank0/payload.bin", "step0/rank0/journal.jsonl"]
    assert wire.sent[0] == "manifest.json"


def test_the_training_does_not_wait_for_the_connection(memory, wire):
    wire.gate.clear()
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    with tt.record(URL, net) as recorder:
        for _ in range(3):
            net(torch.ones(2, 4))
            recorder.step()  # returns although not one file has left
        assert wire.sent == []
        wire.gate.set()
    assert open_trace(URL).places == ((0, 0), (1, 0), (2, 0))


def test_a_connection_that_comes_back_loses_nothing(memory, wire, tmp_path):
    wire.refuse(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # told or not, as the thread was quick or not
        record(URL)
    record(tmp_path / "here")
    assert tt.compare(URL, tmp_path / "here").code == 0


def test_what_did_not_arrive_is_told_kept_and_sent_later(memory, wire, home, monkeypatch, tmp_path):
    monkeypatch.setattr(uploading, "PATIENCE", 0.2)
    wire.down = True
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        recorder = record(URL)
    root = Path(recorder.path)
    assert re.search(
        rf"7 files of this run, .*ConnectionResetError: cut.*twintrace upload {root}", str(told[-1].message)
    )
    assert root.is_relative_to(home)
    assert open_trace(root).places == ((0, 0), (1, 0), (2, 0))

    left = upload(root)
    assert left.files == 7
    assert "ConnectionResetError" in left.because

    wire.down = False
    wire.refuse(2)
    assert upload(root) is None
    record(tmp_path / "here")
    assert tt.compare(URL, tmp_path / "here").code == 0
    assert not root.exists()


def test_only_what_is_missing_is_sent_again(memory, wire, tmp_path, monkeypatch):
    monkeypatch.setattr(uploading, "PATIENCE", 0.2)
    record(URL, steps=2, local=tmp_path / "a")
    wire.sent.clear()
    assert upload(tmp_path / "a") is None
    assert wire.sent == []

    wire.down = True
    with pytest.warns(RuntimeWarning, match="2 files of this run"):
        record(URL, steps=1, local=tmp_path / "a", resume=True)
    wire.down = False
    assert upload(tmp_path / "a") is None
    assert wire.sent == ["step2/rank0/payload.bin", "step2/rank0/journal.jsonl"]
    assert open_trace(URL).places == ((0, 0), (1, 0), (2, 0))


def test_a_run_is_resumed_on_another_machine(memory, tmp_path):
    record(URL, steps=2, local=tmp_path / "one")
    record(URL, steps=2, local=tmp_path / "other", resume=True)

    assert open_trace(URL).places == ((0, 0), (1, 0), (2, 0), (3, 0))
    assert [step for step, _ in open_trace(tmp_path / "other").places] == [2, 3]


def test_another_trace_is_neither_overwritten_nor_mixed(memory, wire, tmp_path, monkeypatch):
    monkeypatch.setattr(uploading, "PATIENCE", 0.2)
    record(URL, steps=1)
    before = memory.cat_file("/bucket/runs/a/manifest.json")
    with pytest.raises(TraceExistsError, match=r"memory://bucket/runs/a already holds another trace"):
        record(URL, steps=1)
    record(tmp_path / "here", steps=2)
    with pytest.raises(TraceExistsError, match="already holds another trace"):
        upload(tmp_path / "here", URL)
    assert memory.cat_file("/bucket/runs/a/manifest.json") == before
    assert open_trace(URL).places == ((0, 0),)

    record(URL, steps=2, overwrite=True)
    assert open_trace(URL).places == ((0, 0), (1, 0))
    record(URL, steps=1, overwrite=True)
    assert open_trace(URL).places == ((0, 0),)


def test_a_place_that_was_not_seen_at_the_start_is_looked_at_before_anything_is_sent(
    memory, wire, tmp_path, monkeypatch
):
    record(URL, steps=1)
    monkeypatch.setattr(uploading.Uploader, "_look", lambda self: None)  # as if the network had been down then
    for options in ({}, {"resume": True}):
        with pytest.warns(RuntimeWarning, match="already holds another trace"):
            record(URL, steps=2, local=tmp_path / f"b{len(options)}", **options)
    assert open_trace(URL).places == ((0, 0),)


def test_an_earlier_run_that_waits_is_not_written_over(memory, wire, monkeypatch):
    monkeypatch.setattr(uploading, "PATIENCE", 0.1)
    wire.down = True
    with pytest.warns(RuntimeWarning, match="could not be uploaded"):
        record(URL, steps=1)
    with pytest.raises(TraceExistsError, match=r"earlier run has not uploaded .*twintrace upload"):
        record(URL, steps=1)


def test_ranks_on_their_own_machines_make_one_trace(memory, tmp_path):
    from twintrace.store.writer import TraceWriter

    for rank in range(2):
        root = tmp_path / f"machine{rank}"
        manifest = {"framework": "reference", "settings": {}, "world": 2}
        writer = TraceWriter.create(root, manifest, rank=rank, world=2)
        writer.begin_step(0, {"world": 2, "framework": "reference", "settings": {}, "environment": {}, "groups": []})
        writer.close()
        assert upload(root, URL) is None
    assert open_trace(URL).places == ((0, 0), (0, 1))


def test_a_trace_that_is_being_recorded_is_left_to_its_recorder(memory, tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    with tt.record(URL, net, local=tmp_path / "a"):
        net(torch.ones(2, 4))
        with pytest.raises(SessionError, match="recorded or uploaded by another process"):
            upload(tmp_path / "a")


def test_misuse_is_one_sentence(memory, tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 3)
    with pytest.raises(UsageError, match="is local already"):
        tt.record(tmp_path / "a", net, local=tmp_path / "b")
    with pytest.raises(UsageError, match="local directory first"):
        tt.record(URL, net, local="s3://bucket/b")
    with pytest.raises(UsageError, match="nosuch"):
        tt.record("nosuch://bucket/runs/a", net)
    with pytest.raises(TraceNotFoundError, match="not a trace"):
        upload(tmp_path, URL)
    record(tmp_path / "a", steps=1)
    with pytest.raises(UsageError, match="nothing says where to"):
        upload(tmp_path / "a")
    record(URL, steps=1, local=tmp_path / "c")
    with pytest.raises(UsageError, match="on its way to"):
        upload(tmp_path / "c", "memory://bucket/elsewhere")


KILLED = """
import os, sys, torch, twintrace as tt
net = torch.nn.Linear(4, 3)
rec = tt.record(sys.argv[1], net, keep="tensor", local=sys.argv[2])
rec.start()
for step in range(3):
    net(torch.ones(2, 4) + step)
    if step < 2:
        rec.step()
open(sys.argv[2] + "/../ready", "w").close()
import time
time.sleep(60)
"""


def test_a_killed_run_is_uploaded_later(tmp_path, memory):
    """kill -9 in the middle of the third step, while the other side takes nothing."""
    pytest.importorskip("torch")
    target, root = tmp_path / "target", tmp_path / "a"
    target.write_text("a file in the way: nothing can be put below it")
    command = [sys.executable, "-W", "ignore", "-c", KILLED, f"file://{target}/runs/a", str(root)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(open_trace(root).places) == 3

    target.unlink()
    assert upload(root) is None
    found = open_trace(f"file://{target}/runs/a")
    assert found.places == ((0, 0), (1, 0), (2, 0))
    for step in range(3):
        journal = found.journal(step)
        values = [journal.array(tensor) for tensor in journal.tensors() if tensor.payload is not None]
        assert any((value == 1 + step).all() for value in values if value.shape == (2, 4))
    assert [found.journal(step).complete for step in range(3)] == [True, True, False]
