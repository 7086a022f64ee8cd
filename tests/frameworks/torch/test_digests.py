"""Tensors on a device wait to be read. A stand-in plays the device: CPU tensors that only the device's own operations may read."""

import contextlib
import json
import os
import re
import signal
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks.protocol import Unreadable  # noqa: E402
from twintrace.frameworks.torch import adapter, digests, outlets, readers, tensors  # noqa: E402
from twintrace.frameworks.torch.batches import MAX_ENTRIES  # noqa: E402
from twintrace.store.device_sums import finish  # noqa: E402
from twintrace.store.digest import digest  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def stand_in(monkeypatch):
    """A device on which nothing can be read from the host: `host` raises, inside a step and outside."""

    def forbidden(tensor):
        raise AssertionError("values of a tensor on a device were asked for on the host")

    monkeypatch.setattr(tensors, "_PLANS", {})
    monkeypatch.setattr(tensors, "_PLACES", {})
    monkeypatch.setattr(tensors, "is_elsewhere", lambda tensor: True)
    monkeypatch.setattr(tensors, "has_device", lambda: True)
    monkeypatch.setattr(adapter.TorchFramework, "host", staticmethod(forbidden))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Triton cannot be used on cpu.*")
        yield


@pytest.fixture
def waiting():
    made = digests.DeviceDigests(fingerprint=True, room=1 << 20, tell=lambda topic, text: None)
    yield made
    made.drop()


def fingerprints(made: digests.DeviceDigests) -> list[str]:
    """What was read, or why nothing was."""
    told = []
    for dtype, nbytes, outcome in made.collect():
        told.append(outcome if isinstance(outcome, str) else finish(outcome[None], [dtype], [nbytes], True)[0][8])
    return told


def fingerprint(tensor) -> str:
    return digest(tensors.host(tensor), tensors.NAMES[tensor.dtype]).fingerprint


# --- the waiting room ---------------------------------------------------------------------------------------------------


def test_what_waits_is_read_in_order(waiting):
    given = [torch.randn(5), torch.arange(7), torch.randn(3, 4).t(), torch.empty(0), torch.randn(6)[1:]]
    wanted = [fingerprint(tensor) for tensor in given]
    assert [waiting.submit(tensor) for tensor in given] == [0, 1, 2, 3, 4]
    rows = waiting.collect()
    assert rows[3] == ("f32", 0, None)
    told = [finish(row[None], [dtype], [nbytes], True)[0][8] for dtype, nbytes, row in rows if row is not None]
    assert told == [text for i, text in enumerate(wanted) if i != 3]
    assert waiting.collect() == []


def test_a_write_that_is_told_comes_after_the_reading(waiting):
    tensor = torch.randn(100)
    view = tensor[10:20]
    wanted = [fingerprint(tensor), fingerprint(view)]
    waiting.submit(tensor)
    waiting.submit(view)
    waiting.before_write([tensor.view(10, 10)])
    tensor.zero_()
    assert fingerprints(waiting) == wanted


def test_a_large_one_is_read_at_once_before_it_is_written_to(waiting):
    tensor = torch.randn(1 << 16)
    wanted = fingerprint(tensor)
    waiting.submit(tensor)
    waiting.before_write([tensor])
    assert waiting.waiting == 0
    tensor.zero_()
    assert fingerprints(waiting) == [wanted]


def test_a_write_to_something_else_reads_nothing(waiting):
    waiting.submit(torch.randn(100))
    waiting.before_write([torch.randn(100)])
    assert waiting.waiting == 1


def test_a_write_that_nobody_told_of_makes_it_missing(waiting):
    tensor, other = torch.randn(100), torch.randn(100)
    wanted = fingerprint(other)
    waiting.submit(tensor)
    waiting.submit(other)
    tensor[3] = 1.0
    assert fingerprints(waiting) == ["it was written to, unseen, before it was read", wanted]


def test_memory_that_is_given_away_makes_it_missing(waiting):
    tensor = torch.randn(100)
    waiting.submit(tensor)
    tensor.untyped_storage().resize_(0)
    assert fingerprints(waiting) == ["its memory was given away, unseen, before it was read"]


def test_freed_memory_is_not_read(waiting):
    tensor = torch.randn(100)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(Unreadable, match="freed"):
        waiting.submit(tensor)


def test_a_tensor_that_gets_other_memory_is_missing(waiting):
    tensor = torch.randn(100)
    waiting.submit(tensor)
    tensor.data = torch.randn(100)
    assert fingerprints(waiting) == ["its memory was given away, unseen, before it was read"]


def test_bytes_are_bounded():
    made = digests.DeviceDigests(fingerprint=True, room=10_000, tell=lambda topic, text: None)
    held = []
    for _ in range(50):
        made.submit(torch.randn(500))
        held.append(made.held)
    assert max(held) < 10_000
    assert len(made.collect()) == 50


def test_no_room_reads_each_at_once():
    made = digests.DeviceDigests(fingerprint=True, room=0, tell=lambda topic, text: None)
    tensor = torch.randn(10)
    wanted = fingerprint(tensor)
    made.submit(tensor)
    tensor.data.numpy()[:] = 0  # behind torch's back
    assert made.waiting == 0
    assert fingerprints(made) == [wanted]


def test_number_is_bounded(waiting):
    tensors_ = [torch.randn(2) for _ in range(1000)]
    for tensor in tensors_:
        waiting.submit(tensor)
        assert waiting.waiting < MAX_ENTRIES
    assert fingerprints(waiting) == [fingerprint(tensor) for tensor in tensors_]


def test_one_memory_is_counted_once(waiting):
    whole = torch.randn(1000)
    for start in range(50):
        waiting.submit(whole[2 * start : 2 * start + 100])
    assert waiting.held == 4000


def test_addresses_that_are_used_again_are_not_mistaken(waiting):
    """What waits is held, so its memory is not given to another."""
    wanted = []
    for i in range(200):
        tensor = torch.full((64,), float(i))
        wanted.append(fingerprint(tensor))
        waiting.submit(tensor)
        del tensor
    assert fingerprints(waiting) == wanted


def test_an_error_of_the_device_is_a_reason(waiting, monkeypatch):
    tensor = torch.randn(10)
    waiting.submit(tensor)

    def broken(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand so on")

    monkeypatch.setattr(readers, "launch", broken)
    assert fingerprints(waiting) == [
        "the device could not read it: CUDA error: an illegal memory access was encountered"
    ]


def test_missing_triton_is_told_of():
    told = []
    made = digests.DeviceDigests(fingerprint=False, room=None, tell=lambda topic, text: told.append((topic, text)))
    made.submit(torch.randn(3))
    made.submit(torch.randn(3))
    assert [topic for topic, _ in told] == ["device"]
    assert "Triton cannot be used" in told[0][1]


def test_inference_tensors_wait_too(waiting):
    with torch.inference_mode():
        tensor = torch.randn(10)
    wanted = fingerprint(tensor)
    waiting.submit(tensor)
    assert fingerprints(waiting) == [wanted]


# --- recordings ---------------------------------------------------------------------------------------------------------


def train(path: Path, level: str, keep: str, *, steps: int = 2, write=lambda net, out: out) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 16), nn.Dropout(0.1),
        nn.Linear(16, 4),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    with tt.record(path, net, level=level, keep=keep) as recorder:
        for _ in range(steps):
            out = net(x)
            out = write(net, out.transpose(0, 1).contiguous().t())
            torch.nn.functional.cross_entropy(out, y).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            recorder.step()


def lines(path: Path) -> list[object]:
    """Everything that a reader gets, with statistics rounded."""
    trace = tt.open(path)
    found: list[object] = []
    for step in trace.steps:
        journal = trace.journal(step)
        found += [
            (call.site, call.args, call.kwargs, call.output, call.parameters, call.after, call.stack[:1])
            for call in journal.calls()
        ]
        found += [
            (call.id, each.role, each.slot, each.tensor, each.count)
            for call in journal.calls()
            for each in call.gradients
        ]
        for tensor in sorted(journal.tensors(), key=lambda tensor: tensor.id):
            told = tensor.statistics
            numbers = told and [told.min, told.max, told.zero, pytest.approx(told.norm, rel=1e-12)]
            found.append((tensor.id, tensor.spec, tensor.producer, tensor.fingerprint, tensor.missing, numbers))
    return found


def _inplace(net, out):
    out *= 2
    return out


def _data(net, out):
    net[4].weight.data.mul_(2)
    return out


@pytest.mark.parametrize("keep", ["statistics", "fingerprint"])
@pytest.mark.parametrize("level", ["module", "api", "mix"])
@pytest.mark.parametrize("write", [_inplace, _data])
def test_a_recording_is_the_same_as_on_the_host(tmp_path, request, level, keep, write):
    """Calls, numbers, flow, gradients and values; writes in place, batch norm's buffers and optimizers among them."""
    train(tmp_path / "host", level, keep, write=write)
    request.getfixturevalue("stand_in")
    train(tmp_path / "device", level, keep, write=write)
    assert lines(tmp_path / "device") == lines(tmp_path / "host")


def values(path: Path) -> list[object]:
    """The values that are kept, in the order of their numbers."""
    trace = tt.open(path)
    return [
        (step, tensor.id, trace.journal(step).array(tensor).tobytes())
        for step in trace.steps
        for tensor in sorted(trace.journal(step).tensors(), key=lambda tensor: tensor.id)
    ]


@pytest.mark.parametrize("level", ["module", "api"])
def test_kept_values_are_those_of_the_host(tmp_path, request, monkeypatch, level):
    """They are read on the device first, and each content leaves it once."""
    train(tmp_path / "host", level, "tensor", write=_inplace)
    request.getfixturevalue("stand_in")
    left = []
    pieces = outlets.Outlet.pieces
    monkeypatch.setattr(
        outlets.Outlet, "pieces", lambda self, tensor: left.append(tensor.nbytes) or pieces(self, tensor)
    )
    train(tmp_path / "device", level, "tensor", write=_inplace)
    assert lines(tmp_path / "device") == lines(tmp_path / "host")
    assert values(tmp_path / "device") == values(tmp_path / "host")
    trace = tt.open(tmp_path / "device")
    prints = {
        tensor.fingerprint: tensor.payload.nbytes
        for step in trace.steps
        for tensor in trace.journal(step).tensors()
        if tensor.payload.nbytes
    }
    assert sorted(left) == sorted(prints.values())


def test_kept_values_survive_a_kill_once_the_step_has_ended(stand_in, tmp_path):
    def record(path, then):
        torch.manual_seed(0)
        net = nn.Linear(64, 64)
        with tt.record(path, net, level="module", keep="tensor") as recorder:
            net(torch.randn(4, 64)).sum().backward()
            recorder.step()
            then()

    child = os.fork()
    if not child:
        record(tmp_path / "killed", lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    record(tmp_path / "whole", lambda: None)
    assert values(tmp_path / "killed") == values(tmp_path / "whole")


def test_training_is_not_changed(stand_in, tmp_path):
    """Gradients and weights, bit for bit."""

    def run(record):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with record(net) as recorder:
            for _ in range(3):
                for _ in range(2):  # accumulated
                    net(torch.randn(4, 8)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if recorder is not None:
                    recorder.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    bare = run(lambda net: contextlib.nullcontext())
    for level in ("module", "api", "mix", "op"):
        assert all(map(torch.equal, bare, run(lambda net: tt.record(tmp_path / level, net, level=level))))  # noqa: B023


def test_nothing_remains_after_a_recording(stand_in, tmp_path):
    """No mode, no patch, no hook."""
    before = torch.UntypedStorage.resize_, torch.overrides.has_torch_function
    train(tmp_path / "trace", "module", "fingerprint", steps=1)
    assert (torch.UntypedStorage.resize_, torch.overrides.has_torch_function) == before
    assert torch.overrides._get_current_function_mode_stack() == []


def test_lines_come_at_the_end_of_a_step(stand_in, tmp_path):
    """And not before: nobody waits for the device inside a step."""
    net = nn.Linear(4, 2)
    journal = tmp_path / "trace" / "step0" / "rank0" / "journal.jsonl"
    with tt.record(tmp_path / "trace", net, level="module") as recorder:
        net(torch.randn(3, 4))
        assert '"k":"call"' in journal.read_text()
        assert '"k":"tensor"' not in journal.read_text()
        recorder.step()
        assert journal.read_text().count('"k":"tensor"') == 4
    assert all(tensor.fingerprint for tensor in tt.open(tmp_path / "trace").journal(0).tensors())


def test_a_write_that_no_call_shows_is_missing_and_told_of(stand_in, tmp_path):
    """Through another alias of the memory, below torch's functions: the version moves, and nobody has said so."""
    net = nn.Linear(4, 2)
    x = torch.randn(3, 4)
    recorder = tt.record(tmp_path / "trace", net, level="module")
    recorder.start()
    net(x)
    with torch._C.DisableTorchFunction():
        x.zero_()
    with pytest.warns(RuntimeWarning, match="written to, unseen"):
        recorder.step()
    recorder.close()
    told = [tensor.missing for tensor in tt.open(tmp_path / "trace").journal(0).tensors()]
    assert told.count(None) == 3
    assert "it was written to, unseen, before it was read" in told


def test_gradients_that_wait_are_read_before_they_are_cleared(stand_in, tmp_path):
    net = nn.Linear(3, 2)
    with tt.record(tmp_path / "trace", net, level="api", keep="fingerprint"):
        net(torch.ones(1, 3)).sum().backward()
        net.weight.grad.mul_(2)
        wanted = fingerprint(net.weight.grad.clone())
        net.zero_grad(set_to_none=False)
    journal = tt.open(tmp_path / "trace").journal(0)
    call = next(call for call in journal.calls() if call.site.name == "torch.Tensor.mul_")
    assert journal.tensor(call.output.id).fingerprint == wanted


def test_what_is_freed_is_read_before(stand_in, tmp_path):
    """FSDP gives parameters' memory back after use."""
    net = nn.Linear(4, 2)
    net.weight.requires_grad_(False)
    with tt.record(tmp_path / "trace", net, level="module") as recorder:
        net(torch.randn(3, 4))
        net.weight.untyped_storage().resize_(0)
        recorder.step()
    assert [tensor.missing for tensor in tt.open(tmp_path / "trace").journal(0).tensors()] == [None] * 4


def test_a_model_that_raises_keeps_what_was_read(stand_in, tmp_path):
    class Raises(nn.Module):
        def forward(self, x):
            raise RuntimeError("here")

    net = nn.Sequential(nn.Linear(4, 4), Raises())
    with pytest.raises(RuntimeError, match="here"), tt.record(tmp_path / "trace", net, level="mix"):
        net(torch.randn(2, 4))
    journal = tt.open(tmp_path / "trace").journal(0)
    assert [call.raised for call in journal.calls() if call.raised]
    assert all(tensor.fingerprint for tensor in journal.tensors())


def test_sparse_and_meta_tensors(stand_in, tmp_path):
    with tt.record(tmp_path / "trace", framework="torch", level="api") as recorder:
        torch.eye(3).to_sparse() * 2
        torch.empty(3, device="meta") + 1
        recorder.step()
    found = list(tt.open(tmp_path / "trace").journal(0).tensors())
    assert any(tensor.parts for tensor in found)
    assert {tensor.missing for tensor in found if tensor.device == "meta"} != {None}


def test_save_outside_a_recorded_region(stand_in, tmp_path):
    """Nobody watches who writes to it then, so it is read at once."""
    recorder = tt.record(tmp_path / "trace", framework="torch", level="api")
    tensor = torch.randn(4)
    wanted = fingerprint(tensor)
    recorder.save("it", tensor)
    tensor.zero_()
    recorder.close()
    assert [told.fingerprint for told in tt.open(tmp_path / "trace").journal(0).tensors()] == [wanted]


class Translator:
    """Another tool's file: knows no line that comes later."""

    def __init__(self):
        self.lines: list[dict] = []

    def has_step(self, step):
        return False

    def begin_step(self, step, header):
        return self

    def take(self, record):
        self.lines.append(record)

    def commit(self):
        pass

    def end_step(self):
        pass

    close = abandon = end_step


def test_who_translates_gets_a_tensor_before_its_call(stand_in, tmp_path):
    """Values that are known late come first all the same."""
    writer = Translator()
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with tt.record(tmp_path / "none", net, level="mix", writer=writer) as recorder:
        for _ in range(2):
            net(torch.randn(2, 4)).sum().backward()
            recorder.step()
    known: set[int] = set()
    calls = 0
    for line in writer.lines:
        if line["k"] == "tensor":
            known.add(line["id"])
            assert line["fp"]
        elif line["k"] == "call":
            calls += 1
            referred = {int(number) for number in re.findall(r'"\$t": (\d+)', json.dumps([line["in"], line["out"]]))}
            assert referred <= known
        elif line["k"] == "end":
            known.clear()
    assert calls >= 10
