"""Reading: lazily, what is whole, and with a word about what is not. Hostile files are in tests/attacks."""

import gc
import itertools
import math
import resource
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import specimens

from twintrace.model.errors import TraceFormatError, TraceNotFoundError
from twintrace.model.records import Frame, Gradient, Header, Keep, Level, Role
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.tensors import Location, Spec
from twintrace.model.values import Nest, TensorRef
from twintrace.store import digest
from twintrace.store import journal as journal_module
from twintrace.store.lines import seal
from twintrace.store.reader import open_native


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return specimens.write_full(tmp_path_factory.mktemp("full") / "trace")


@pytest.fixture
def trace(full, tmp_path):
    """A copy to be damaged."""
    return specimens.copy(full, tmp_path / "trace")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    return specimens.write_killed(tmp_path_factory.mktemp("killed") / "trace")


def test_a_payload_is_checked_once_if_it_is_right(trace, monkeypatch):
    """Values are read to be measured, recomputed and drawn. One that is damaged is refused each time."""
    journal = open_native(trace).journal(0)
    kept = [tensor for tensor in journal.tensors() if tensor.payload is not None and tensor.fingerprint]
    checked = []
    monkeypatch.setattr(journal_module, "fingerprint", lambda array: checked.append(1) or digest.fingerprint(array))
    first = journal.array(kept[0])
    assert journal.array(kept[0]).tobytes() == first.tobytes()
    assert len(checked) == 1
    other = replace(kept[0], fingerprint="0" * 32)
    for _ in range(2):
        with pytest.raises(TraceFormatError, match="recorded fingerprint 0000"):
            journal.array(other)
    assert len(checked) == 3


# --- what a whole journal says --------------------------------------------------------------------------------------


def test_the_header(full):
    header = open_native(full).journal(1).header
    assert header == Header(
        1, 0, 1, "reference", specimens.SETTINGS, {"numpy": "1.26"}, ((0,),), specimens.HEADER["precision"]
    )
    assert header.settings == {"level": Level.MIX, "keep": Keep.TENSOR}


def test_calls_come_folded(full):
    """Frames, configuration and gradients are lines of their own; a call has them all."""
    calls = {call.id: call for call in open_native(full).journal(0).calls()}
    assert list(calls) == [1, 0, 2, 3, 4, 5]  # in the order of the journal: a module's line comes when it returns
    module = calls[0]
    assert module.site == Site(Kind.MODULE, "encoder.0", 0, Phase.FORWARD, "", "Linear")
    assert (module.parent, calls[1].parent) == (None, 0)
    assert module.args == (TensorRef(0),)
    assert module.kwargs == {"mask": TensorRef(0)}
    assert module.output == Nest("tuple", (("0", TensorRef(1)), ("1", TensorRef(5))))
    assert (module.parameters, module.buffers) == ({"weight": 1}, {"mean": 0})
    assert module.stack == (Frame("train.py", 31, "step", "loss = net(x)"), Frame("net.py", 12, "forward", ""))
    assert (module.config.path, module.config.type) == ("encoder.0", "Linear")
    assert module.config.values == {"training": True, "eps": math.inf}
    assert [(g.role, g.slot, g.tensor, g.of, g.count) for g in calls[1].gradients] == [
        (Role.OUTPUT, "", 2, 1, 0),
        (Role.INPUT, "8.mask", 1, 1, 1),
    ]
    assert (calls[2].mutates, calls[2].after, calls[2].site.phase) == (("0",), {"0": 2}, Phase.UPDATE)
    assert calls[3].gradients[0].role is Role.SAVED
    assert (calls[4].raised, calls[4].missing) == ("RuntimeError: no", ("gradients: not a leaf",))
    assert str(calls[5].site) == "backward/op:aten.mm.default#0"


def test_gradients_of_parameters_belong_to_no_call(full):
    [gradient] = open_native(full).journal(0).parameter_gradients()
    assert gradient == Gradient(Role.PARAMETER, "encoder.0.weight", 1, None, 0, gradient.order)


def test_notes(full):
    [note] = open_native(full).journal(0).notes()
    assert (note.topic, note.text, note.order) == ("unseen", "a kernel, by design", 1)


def test_tensors(full):
    journal = open_native(full).journal(0)
    odd = journal.tensor(0)
    assert (odd.spec, odd.device, odd.requires_grad, odd.producer) == (Spec("f32", (2, 3)), "cpu", True, None)
    s = odd.statistics
    assert (s.min, s.max, s.mean, s.nan, s.posinf, s.neginf, s.zero) == (0.0, 1.0, 1.25 / 3, 1, 1, 1, 1)
    assert s.norm == math.sqrt(1.0625)
    assert odd.payload == Location(0, 24)
    assert journal.array(odd).view(np.uint32)[1, 0] == 0x7FC0BEEF
    assert journal.tensor(3).missing == "meta"
    assert journal.tensor(3).spec == Spec("f32", (2**40,))
    assert journal.tensor(4).facts == {"layout": "sparse_coo", "scale": 0.5}
    assert journal.tensor(5).parts == {"indices": 4, "values": 1}
    assert [tensor.id for tensor in journal.tensors()] == list(range(28))
    assert journal.damage == ()


def test_a_tensor_without_values_says_why(full):
    journal = open_native(full).journal(0)
    with pytest.raises(TraceNotFoundError, match=r"tensor 3 of step 0 rank 0 was not kept: meta\."):
        journal.array(journal.tensor(3))
    with pytest.raises(TraceNotFoundError, match="recorded without tensors"):
        journal.array(journal.tensor(5))


# --- later releases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["future", "calls", "tensors", "ending", "cal", "x", "", "mood", "grade"])
def test_unknown_kinds_and_fields_are_passed_over(trace, kind):
    """Also those that begin like a known one, and at the end."""
    before = specimens.snapshot(open_native(trace))
    lines = [line | {"new": {"a": [1]}} for line in specimens.lines_of(trace)]
    new = [specimens.reseal({"k": kind, "id": n, "dtype": 1}) for n in range(len(lines))]
    specimens.replace_lines(
        trace, [raw for pair in zip(map(specimens.reseal, lines), new, strict=True) for raw in pair][:-1]
    )
    for tolerant in (False, True):
        found = open_native(trace, tolerant=tolerant)
        assert specimens.snapshot(found) == before
        assert found.journal(0).damage == ()
        assert len(found.journal(0)) == 6

    lines.append({"k": "end" + kind})
    specimens.replace_lines(trace, list(map(specimens.reseal, lines)))
    assert open_native(trace).journal(0).complete == (kind == "")


@pytest.mark.parametrize("version", [3, 10**6])
def test_a_later_version_is_refused_by_name(trace, version):
    manifest = trace / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"version": 1', f'"version": {version}'))
    with pytest.raises(TraceFormatError, match=f"version {version}, but this release reads up to 2. Update twintrace"):
        open_native(trace)
    manifest.write_text(whole)
    lines = specimens.lines_of(trace)
    specimens.replace_lines(
        trace, [specimens.reseal(line | ({"format": version} if "format" in line else {})) for line in lines]
    )
    with pytest.raises(TraceFormatError, match=rf"journal.jsonl: line 1 \(head .*version {version}"):
        open_native(trace).journal(0)


# --- what a killed process leaves -----------------------------------------------------------------------------------


def test_a_torn_tail_is_listed_and_skipped(trace):
    journal = specimens.journal_file(trace)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-7])
    for tolerant in (False, True):
        found = open_native(trace, tolerant=tolerant).journal(0)
        assert not found.complete
        assert [str(item) for item in found.damage] == [
            f"{journal}: the last line: torn after 45 bytes; everything before it is whole"
        ]
        assert len(list(found.calls())) == 6


def test_a_last_line_with_a_wrong_check_is_torn_too(trace):
    """After a power failure the length may be there and the bytes not."""
    journal = specimens.journal_file(trace)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20] + b"\0" * 19 + b"\n")
    found = open_native(trace).journal(0)
    assert not found.complete
    assert [item.where for item in found.damage] == [f"line {whole.count(10)}, the last"]
    assert len(list(found.tensors())) == 28


@pytest.mark.parametrize("size", [0, 1, 200])
def test_a_step_that_was_just_begun(trace, size):
    """No first line yet: the step is there, empty, and says so; the other steps are not touched by it."""
    journal = specimens.journal_file(trace, 1)
    journal.write_bytes(journal.read_bytes()[:size])
    found = open_native(trace)
    assert len(found) == 6
    assert list(found.journal(1).calls()) == list(found.journal(1).tensors()) == list(found.journal(1).notes()) == []
    assert found.journal(1).header == Header(1, 0, 1, "unknown")
    assert not found.journal(1).complete
    assert "the process ended before anything was recorded" in str(found.journal(1).damage[-1])


def test_bytes_that_did_not_reach_the_payload_are_in_the_ring(killed, full):
    """Killed before a single byte was written behind: every tensor of both steps can be read, and is what it was."""
    path = killed
    assert specimens.payload_file(path).stat().st_size == 0
    assert (path / "rank0.stage").stat().st_size == specimens.SMALL_RING
    found, whole = specimens.snapshot(open_native(path)), specimens.snapshot(open_native(full))
    for step in ("step 0 rank 0", "step 1 rank 0"):
        assert found[step]["arrays"] == whole[step]["arrays"]
        assert found[step]["calls"] == whole[step]["calls"]
    assert not open_native(path).journal(1).complete
    assert len(open_native(path).journal(1).damage) == 1


@pytest.mark.parametrize("size", [0, 10, 64, 100, 1000])
def test_a_tensor_may_lie_in_both(tmp_path, killed, full, size):
    """The worker was killed in the middle: the first bytes are in the payload, the others in the ring."""
    path = specimens.copy(killed, tmp_path / "trace")
    specimens.payload_file(path).write_bytes(specimens.payload_file(full).read_bytes()[:size])
    found, whole = specimens.snapshot(open_native(path)), specimens.snapshot(open_native(full))
    assert found["step 0 rank 0"]["arrays"] == whole["step 0 rank 0"]["arrays"]
    assert found["step 1 rank 0"]["arrays"] == whole["step 1 rank 0"]["arrays"]


def test_without_ring_and_payload_the_journal_is_still_there(tmp_path, killed):
    path = specimens.copy(killed, tmp_path / "trace")
    (path / "rank0.stage").unlink()
    specimens.payload_file(path).unlink()
    journal = open_native(path).journal(0)
    assert len(list(journal.calls())) == 6
    with pytest.raises(
        TraceFormatError,
        match=r"payload.bin: tensor 0 .* field 'at': bytes 0 to 24 .* which has 0. The payload is cut off",
    ):
        journal.array(journal.tensor(0))


# --- damage in the middle -------------------------------------------------------------------------------------------


def spoil(trace, kind: str, at: int = 20) -> int:
    """Change one byte in the first line of a kind; the line's number."""
    lines = specimens.journal_file(trace).read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if line.startswith(b'{"k":"%b"' % kind.encode()))
    lines[number] = lines[number][:at] + bytes([lines[number][at] ^ 1]) + lines[number][at + 1 :]
    specimens.replace_lines(trace, lines)
    return number + 1


ASK = {
    "call": lambda journal: list(journal.calls()),
    "grad": lambda journal: list(journal.calls()),
    "stack": lambda journal: list(journal.calls()),
    "module": lambda journal: list(journal.calls()),
    "note": lambda journal: list(journal.notes()),
    "tensor": lambda journal: list(journal.tensors()),
}


@pytest.mark.parametrize("kind", ASK)
def test_a_damaged_line_is_named(trace, kind):
    """Strictly read it raises when it is reached; tolerantly it is skipped and listed, once."""
    number = spoil(trace, kind)
    with pytest.raises(
        TraceFormatError, match=rf"journal.jsonl: line {number}: the line's check says .* damaged there"
    ):
        ASK[kind](open_native(trace).journal(0))
    journal = open_native(trace, tolerant=True).journal(0)
    count = len(ASK[kind](journal))
    ASK[kind](journal)
    assert [item.where for item in journal.damage] == [f"line {number}"]
    assert count == {"call": 5, "tensor": 27, "note": 0}.get(kind, 6)


@pytest.mark.parametrize("kind", ASK)
@pytest.mark.parametrize("at", [0, 5, 6, 7, 9])
def test_damage_to_the_kind_of_a_line_does_not_hide_it(trace, kind, at):
    number = spoil(trace, kind, at)
    with pytest.raises(TraceFormatError, match=f"line {number}"):
        ASK[kind](open_native(trace).journal(0))
    journal = open_native(trace, tolerant=True).journal(0)
    ASK[kind](journal)
    assert [item.where for item in journal.damage] == [f"line {number}"]


def test_damage_to_the_number_of_a_tensor_does_not_hide_it(trace):
    """Its number is looked for, not found, and then the reason is."""
    number = spoil(trace, "tensor", len('{"k":"tensor","id":'))
    with pytest.raises(TraceFormatError, match=f"line {number}"):
        open_native(trace).journal(0).tensor(0)
    journal = open_native(trace, tolerant=True).journal(0)
    assert journal.tensor(0).missing == "the line is missing"
    assert [item.where for item in journal.damage] == [f"line {number}"]


def test_a_damaged_tensor_is_missing_when_read_tolerantly(trace):
    number = spoil(trace, "tensor", 40)
    with pytest.raises(TraceFormatError, match=f"line {number}"):
        open_native(trace).journal(0).tensor(0)
    journal = open_native(trace, tolerant=True).journal(0)
    assert f"line {number}" in journal.tensor(0).missing
    assert len(journal.damage) == 1


def test_a_missing_tensor_line(trace):
    lines = [
        raw
        for raw in specimens.journal_file(trace).read_bytes().splitlines(keepends=True)
        if b'"tensor","id":2,' not in raw
    ]
    specimens.replace_lines(trace, lines)
    assert open_native(trace).journal(0).tensor(2).missing == "the line is missing"
    specimens.replace_lines(trace, lines[:-1])
    assert open_native(trace).journal(0).tensor(2).missing == "the process ended before its line was written"


def test_damage_is_listed_up_to_a_limit(trace):
    head, *others = specimens.journal_file(trace).read_bytes().splitlines(keepends=True)
    bad = others[0].replace(b"unseen", b"unsean")
    specimens.replace_lines(trace, [head, *[bad] * 3000, others[-1]])
    journal = open_native(trace, tolerant=True).journal(0)
    assert list(journal.notes()) == []
    assert len(journal.damage) == 1001
    assert "only 1000 damaged places are listed" in str(journal.damage[-1])


def test_a_changed_payload_is_found_out(trace):
    journal = open_native(trace).journal(0)
    for tensor in journal.tensors():
        if tensor.payload and tensor.payload.nbytes:
            payload = specimens.payload_file(trace)
            whole = payload.read_bytes()
            at = tensor.payload.offset + tensor.payload.nbytes - 1
            payload.write_bytes(whole[:at] + bytes([whole[at] ^ 128]) + whole[at + 1 :])
            with pytest.raises(
                TraceFormatError, match=f"tensor {tensor.id} .*recorded fingerprint {tensor.fingerprint}"
            ):
                open_native(trace).journal(0).array(tensor)
            payload.write_bytes(whole)


# --- lazily ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return specimens.write_long(tmp_path_factory.mktemp("long") / "trace", 100_000)


def test_opening_100_000_records_takes_no_time_and_no_memory(long):
    size = specimens.journal_file(long).stat().st_size
    assert size > 17e6
    open_native(long).journal(0)  # imports, page cache
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    began = time.perf_counter()
    journal = open_native(long).journal(0)
    took = time.perf_counter() - began
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(journal) == 50_000
    assert took < 1
    assert held < 3e6  # 17 bytes a line
    assert peak < 24e6  # a piece of the file at a time
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 64e6


def test_records_are_parsed_as_they_are_asked_for(long):
    journal = open_native(long).journal(0)
    began = time.perf_counter()
    calls = journal.calls()
    assert [next(calls).id for _ in range(10)] == list(range(10))
    assert journal.tensor(49_999).producer == 49_999
    assert time.perf_counter() - began < 1
    tracemalloc.start()
    assert sum(call.id for call in itertools.islice(calls, 2000)) == sum(range(10, 2010))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6  # one at a time
    assert sum(call.id for call in calls) == sum(range(2010, 50_000))


def test_tensors_are_mapped_not_loaded(tmp_path):
    """64 MB of values cost no memory until they are looked at."""
    from twintrace.store.writer import TraceWriter

    writer = TraceWriter.create(tmp_path / "trace", specimens.MANIFEST, keep_payload=True)
    journal = writer.begin_step(0, specimens.HEADER)
    journal.add(seal(specimens.tensor_line(writer, 0, np.arange(16 << 20, dtype=np.float32), "f32")))
    writer.close()
    found = open_native(tmp_path / "trace").journal(0)
    digest.fingerprint(np.zeros(8, dtype=np.uint8))  # compiled
    tracemalloc.start()
    array = found.array(found.tensor(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert array[-1] == (16 << 20) - 1
    assert peak < 3e6


def test_small_tensors_are_read_many_at_a_time(tmp_path, monkeypatch):
    from twintrace.store import payloads
    from twintrace.store.writer import TraceWriter

    writer = TraceWriter.create(tmp_path / "trace", specimens.MANIFEST, keep_payload=True)
    journal = writer.begin_step(0, specimens.HEADER)
    arrays = [np.full(64 << (number % 6), number, dtype=np.float32) for number in range(200)]
    for number, array in enumerate(arrays):
        journal.add(seal(specimens.tensor_line(writer, number, array, "f32")))
    writer.close()
    opened = []
    original = payloads._payload_piece
    monkeypatch.setattr(payloads, "_payload_piece", lambda *args: opened.append(args) or original(*args))
    found = open_native(tmp_path / "trace").journal(0)
    for number in (*range(200), *range(199, -1, -1)):
        np.testing.assert_array_equal(found.array(found.tensor(number)), arrays[number])
    large = sum(array.nbytes > 4096 for array in arrays)
    assert len(opened) <= 2 * large + 2 * sum(array.nbytes for array in arrays) // (64 << 10) + 2
